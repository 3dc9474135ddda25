"""The table of the targets of a run of several, and the servers' own gauges, a row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tabulate import tabulate

from bench_records.manifest import Manifest
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.metric import Metric
from reports.metrics.server_load import ServerLoad
from reports.metrics.server_series import Level, place_of
from reports.metrics.target_numbers import TargetNumbers
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import Cell, Table
from reports.run.rows import narrow_text, percentile_cell
from reports.run_report import RunReport
from reports.statistics.percentiles import Distribution, percentile_key, required_samples

_BY_LOAD = "least_in_flight"
_MOST_TARGETS = 32
_MOST_IN_ANSWER = 8


def target_table(report: RunReport) -> Table:
    """A row for each target, in the order of --url. A column without any value is left out; no row where there is one."""
    parts = [part for part in _COLUMNS if not part.optional or any(part.of(numbers) is not None for numbers in report.targets)]
    rows = tuple((_name(numbers), *(part.of(numbers) for part in parts)) for numbers in report.targets[:_MOST_TARGETS])
    hidden = len(report.targets) - len(rows)
    notes = [f"The first; summary.json has {hidden:,} more."] if hidden else []
    notes += _spread(report.manifest)
    notes += [f"Latencies count from the schedule; a p99 from fewer than {required_samples(0.99)} requests is unreliable."]
    notes += ["The server's counts are by its statistics and metrics, and include probes."]
    return Table("targets", "By target", ("target", *(part.title for part in parts)), rows, " ".join(notes))


def _spread(manifest: Manifest) -> list[str]:
    """How requests were spread over the targets."""
    balance = manifest.target.balance
    if balance is None:
        return []
    if balance == _BY_LOAD and manifest.distribution is not None:
        return [f"Requests were spread by {balance}: each worker counted those that it had in flight itself."]
    return [f"Requests were spread by {balance}."]


def console_target_table(report: RunReport, most: int = _MOST_TARGETS) -> str:
    """The client's part of it for a terminal of 80 columns, with three digits; "" for a run of one target."""
    if not report.targets:
        return ""
    parts = [part for part in _COLUMNS if part.narrow and any(part.of(numbers) is not None for numbers in report.targets)]
    heads = zip(*((*(part.narrow or "").split("\n"), "")[:2] for part in parts), strict=True)
    rows = [[_name(numbers), *(narrow_text(part.of(numbers)) for part in parts)] for numbers in report.targets[:most]]
    (first, second), alignment = heads, ("left", *["right"] * len(parts))
    drawn = tabulate([("Target", *first), ("", *second), *rows], tablefmt="plain", colalign=alignment, disable_numparse=True)
    hidden = len(report.targets) - len(rows)
    return f"{drawn}\n{counted(hidden, 'more target is', 'more targets are')} in the report." if hidden else drawn


def answer_target_table(report: RunReport) -> list[str]:
    """The same in the lines of the answer, with the first targets."""
    return console_target_table(report, _MOST_IN_ANSWER).splitlines()


def server_level_table(report: RunReport) -> Table:
    """The gauges and means of each server, which have no sum; no row where one page of metrics was read."""
    rows = tuple((printable(place_of(server)), *_levels(load)) for server, load in report.servers.items())
    columns = ("Server", *_LEVEL_COLUMNS)
    filled = [0, *(k for k in range(1, len(columns)) if any(row[k] is not None for row in rows))]
    kept = tuple(tuple(row[k] for k in filled) for row in rows)
    note = "Means over the readings of the run. Counts of all servers are added up elsewhere; gauges and means are not."
    return Table("servers", "Each server's own numbers", tuple(columns[k] for k in filled), kept, note)


_LEVEL_COLUMNS = (
    "active", "in the batch", "waiting", "KV cache %", "KV cache max %", "queue ms", "TTFT ms", "E2E ms", "requests",
    "output tokens", "preemptions",
)  # fmt: skip


def _levels(load: ServerLoad) -> tuple[Cell, ...]:
    cache, times = load.kv_cache_used_fraction, load.times
    return (
        _mean(load.active_requests),
        _mean(load.scheduled_requests),
        _mean(load.waiting_requests),
        None if cache is None else 100 * cache.mean,
        None if cache is None else 100 * cache.max,
        times.queue_ms,
        times.ttft_ms,
        times.e2e_ms,
        _whole(load.metrics_requests if load.metrics_requests is not None else load.finished_requests),
        _whole(load.generated_tokens),
        _whole(load.preemptions),
    )


def _mean(level: Level | None) -> float | None:
    return None if level is None else level.mean


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column; an ``optional`` one is left out where no target has a value. ``narrow`` is its name in two lines of a terminal,
    None of one that is not shown there.
    """

    title: str
    of: Callable[[TargetNumbers], Cell]
    narrow: str | None = None
    optional: bool = False


def _latency_columns(metric: Metric, of: Callable[[TargetNumbers], Distribution | None]) -> list[_Column]:
    def column(q: float) -> _Column:
        def value(numbers: TargetNumbers) -> Cell:
            d = of(numbers)
            return None if d is None else percentile_cell(d, q)

        key = percentile_key(q)
        return _Column(
            f"{metric.short or metric.label} {key} ms", value, f"{metric.label.split()[0]}\n{key}, ms", optional=True
        )

    return [column(0.5), column(0.99)]


_COLUMNS = (
    _Column("requests", lambda numbers: numbers.sent, "requests"),
    _Column("done", lambda numbers: numbers.done),
    _Column("failed", lambda numbers: numbers.failed, "failed"),
    _Column("failures", lambda numbers: _kinds(numbers), optional=True),
    _Column("withdrawn", lambda numbers: numbers.withdrawn or None, optional=True),
    _Column("output tokens", lambda numbers: _whole(numbers.output_tokens), "output\ntokens", optional=True),
    *_latency_columns(TTFT, lambda numbers: numbers.ttft_ms),
    *_latency_columns(E2E, lambda numbers: numbers.e2e_ms),
    _Column("server: requests", lambda numbers: _whole(numbers.counted.requests), optional=True),
    _Column("server: failed", lambda numbers: _whole(numbers.counted.failed), optional=True),
    _Column("server: output tokens", lambda numbers: _whole(numbers.counted.output_tokens), optional=True),
)


def _kinds(numbers: TargetNumbers) -> str | None:
    return ", ".join(f"{kind} {count:,}" for kind, count in numbers.failed_by_kind.items()) or None


def _name(numbers: TargetNumbers) -> str:
    return printable(numbers.address.rpartition("://")[2])
