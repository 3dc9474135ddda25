"""Upstream's ``--op_stats_csv`` and ``--check_perf_json``: one row of statistics, and a check against reference numbers."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from reports.errors import CheckPerfError, OpStatsError
from reports.metrics.run_metrics import Metrics, UpstreamTable
from reports.run.rows import upstream_rows

# Names that differ between upstream's printed table and its CSV and reference files.
_CSV_NAMES = {
    "Avg. IP tokens per request": "Avg. Input tokens per request",
    "Avg. OP tokens per request": "Avg. Output tokens per request",
}
_ROW_NAMES = [name for name, _ in upstream_rows(UpstreamTable(None, None, None, None, None, None, None, None, 0))]
OP_STATS_COLUMNS = [_CSV_NAMES.get(name, name) for name in _ROW_NAMES]
_HIGHER_IS_BETTER = {"Requests/Sec", "OP tokens/sec"}
_LOWER_IS_BETTER = {"Avg. latency (ms)", "P99 latency (ms)", "P90 latency (ms)", "Total latency (ms)"}


@dataclass(frozen=True)
class PerfCheck:
    """One metric against its reference. ``worse_by`` is the relative change for the worse, negative for the better."""

    metric: str
    value: float | None
    reference: float
    worse_by: float | None
    passed: bool

    def __str__(self) -> str:
        value = "none" if self.value is None else f"{self.value:.2f}"
        change = "" if self.worse_by is None else f" ({abs(self.worse_by):.1%} {'worse' if self.worse_by > 0 else 'better'})"
        return f"{'pass' if self.passed else 'FAIL'}  {self.metric}: {value} against {self.reference:.2f}{change}"


def op_stats(metrics: Metrics) -> dict[str, float | int | None]:
    """Upstream's statistics under the names of its CSV."""
    return {_CSV_NAMES.get(name, name): value for name, value in upstream_rows(metrics.upstream)}


def append_op_stats(metrics: Metrics, path: Path) -> None:
    """Append one row, with a header where the file is new or empty.

    Raises OpStatsError when the file has other columns, as a file of upstream's own has; OSError when it cannot be written.
    """
    check_op_stats_file(path)
    stats = op_stats(metrics)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(stats))
        if not before:
            writer.writeheader()
        elif not before.endswith("\n"):
            file.write("\r\n")
        writer.writerow(stats)


def check_op_stats_file(path: Path) -> None:
    """Raise OpStatsError when ``path`` is a file that no row can be appended to: other columns, or no text."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), None)
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OpStatsError(f"--op_stats_csv {path}: {error}") from error
    if header is not None and header != OP_STATS_COLUMNS:
        raise OpStatsError(f"--op_stats_csv {path}: its columns are not ours; name another file")


def read_reference(path: Path, key: str | None) -> dict[str, float]:
    """Read ``{key: {metric: value}}``. Raises CheckPerfError naming the option that is wrong."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckPerfError(f"--check_perf_json {path}: {error}") from error
    if key is None:
        raise CheckPerfError("--check_perf_json needs --check_perf_key, the entry of the file to check against")
    if not isinstance(document, dict) or not isinstance(document.get(key), dict):
        raise CheckPerfError(f"--check_perf_key {key}: {path} has no such entry")
    reference: dict[str, float] = document[key]
    if not reference:
        raise CheckPerfError(f"--check_perf_key {key}: the entry in {path} names no metric")
    known = _HIGHER_IS_BETTER | _LOWER_IS_BETTER | set(_CSV_NAMES.values()) | set(_CSV_NAMES) | {"Total requests"}
    for metric, value in reference.items():
        if metric not in known:
            raise CheckPerfError(f"--check_perf_json {path}: unknown metric {metric!r}; known: {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise CheckPerfError(f"--check_perf_json {path}: {metric} must be a number, not {value!r}")
    return reference


def check_perf(metrics: Metrics, reference: dict[str, float], rtol: float, atol: float) -> list[PerfCheck]:
    """Hold each metric named in ``reference`` against it.

    Rates may be lower and latencies higher than the reference by at most ``atol + rtol · reference``; better always
    passes. Token and request counts must be within it on both sides. A metric that does not exist fails.
    """
    stats = op_stats(metrics)
    return [_check(metric, stats[_CSV_NAMES.get(metric, metric)], value, rtol, atol) for metric, value in reference.items()]


def _check(metric: str, value: float | None, reference: float, rtol: float, atol: float) -> PerfCheck:
    if value is None:
        return PerfCheck(metric, None, reference, None, False)
    worse = reference - value if metric in _HIGHER_IS_BETTER else value - reference
    if metric not in _HIGHER_IS_BETTER | _LOWER_IS_BETTER:
        worse = abs(worse)
    return PerfCheck(
        metric, value, reference, worse / abs(reference) if reference else None, worse <= atol + rtol * abs(reference)
    )
