"""Upstream's ``--op_stats_csv`` and ``--check_perf_json``: one row of statistics, and a check against reference numbers."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from reports.errors import CheckPerfError, OpStatsError
from reports.metrics.metric import Better
from reports.metrics.run_metrics import Metrics
from reports.metrics.upstream import UPSTREAM_STATISTICS, UpstreamStatistic
from reports.statistics.estimate import two_decimals

OP_STATS_COLUMNS = [statistic.column for statistic in UPSTREAM_STATISTICS]


@dataclass(frozen=True)
class PerfCheck:
    """One metric against its reference. ``worse_by`` is the relative change for the worse, negative for the better."""

    metric: str
    value: float | None
    reference: float
    worse_by: float | None
    passed: bool

    def __str__(self) -> str:
        value = "none" if self.value is None else _number(self.value)
        change = "" if not self.worse_by else f" ({abs(self.worse_by):.1%} {'worse' if self.worse_by > 0 else 'better'})"
        return f"{'pass' if self.passed else 'FAIL'}  {self.metric}: {value} against {_number(self.reference)}{change}"


def _number(value: float) -> str:
    """Without separators, as scripts parse it."""
    return two_decimals(value).replace(",", "")


def op_stats(metrics: Metrics) -> dict[str, float | int | None]:
    """Upstream's statistics under the names of its CSV."""
    return {statistic.column: statistic.value(metrics.upstream) for statistic in UPSTREAM_STATISTICS}


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
    """Raise OpStatsError for a file to which no row can be appended, since it has other columns or is no text."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header = next(csv.reader(file), None)
    except FileNotFoundError as error:
        if not path.absolute().parent.is_dir():
            raise OpStatsError(f"--op_stats_csv {path}: there is no folder {path.parent}; make it first") from error
        return
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise OpStatsError(f"--op_stats_csv {path}: {error}") from error
    if header is not None and header != OP_STATS_COLUMNS:
        raise OpStatsError(f"--op_stats_csv {path}: its columns differ from those of this version; name another file")


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
    known = _statistics_by_name()
    for metric, value in reference.items():
        if metric not in known:
            raise CheckPerfError(f"--check_perf_json {path}: unknown metric {metric!r}; known: {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise CheckPerfError(f"--check_perf_json {path}: {metric} must be a number, not {value!r}")
    return reference


def check_perf(metrics: Metrics, reference: dict[str, float], rtol: float, atol: float) -> list[PerfCheck]:
    """Check each metric named in ``reference`` against its value there.

    Rates may be lower and latencies higher than the reference by at most ``atol + rtol · reference``; better always
    passes. Token and request counts must be within it on both sides. A metric that does not exist fails.
    """
    statistics = _statistics_by_name()
    checks = []
    for name, expected in reference.items():
        statistic = statistics[name]
        value = statistic.value(metrics.upstream)
        if value is None:
            checks.append(PerfCheck(name, None, expected, None, passed=False))
            continue
        worse = _deterioration(value, expected, statistic.better)
        relative = worse / abs(expected) if expected else None
        checks.append(PerfCheck(name, value, expected, relative, passed=worse <= atol + rtol * abs(expected)))
    return checks


def _statistics_by_name() -> dict[str, UpstreamStatistic]:
    """By the names of upstream's files and of its printed table."""
    return {name: statistic for statistic in UPSTREAM_STATISTICS for name in (statistic.column, statistic.printed)}


def _deterioration(value: float, reference: float, better: Better | None) -> float:
    """By how much ``value`` is worse than ``reference``, negative where it is better."""
    match better:
        case Better.HIGHER:
            return reference - value
        case Better.LOWER:
            return value - reference
        case None:
            return abs(value - reference)
