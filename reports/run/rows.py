"""The rows of a report's tables, the same in every format."""

from __future__ import annotations

from reports.metrics.catalogue import (
    ARRIVAL_RATES,
    ATTAINMENT,
    DISPERSION,
    GOODPUT,
    THROUGHPUTS,
    WINDOW,
)
from reports.metrics.metric import FROM_SEND, Anchored
from reports.metrics.mser import RULE
from reports.metrics.run_metrics import Metrics
from reports.metrics.slip import Slip
from reports.metrics.upstream import UPSTREAM_STATISTICS, UpstreamTable
from reports.metrics.windows import Window
from reports.render.tables import Cell, LowerBound, cell_text, share_cell, span_text, three_digits
from reports.statistics.estimate import Estimate, Interval
from reports.statistics.percentiles import Distribution, required_samples

LATENCY_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max", "n")
INTERVAL_COLUMNS = ("mean", "p50", "p99")
_TAIL = 0.999


def bounded(value: float | None, lower_bound: float | None) -> Cell:
    """A percentile, maximum or mean: "≥" where cut-off requests leave a lower bound alone, "failed" among failures."""
    if lower_bound is not None:
        return LowerBound(lower_bound, f"≥ {cell_text(lower_bound)}")
    return "failed" if value is None else value


def percentile_cell(d: Distribution, q: float) -> Cell:
    percentile = d.percentile(q)
    return bounded(percentile.value, percentile.lower_bound)


def three_digits_of(percentile: Estimate, unit: str = "") -> str:
    """The same in three digits, with the ``unit`` after a number."""
    if percentile.lower_bound is not None:
        return f"≥ {three_digits(percentile.lower_bound)}{unit}"
    return "failed" if percentile.value is None else f"{three_digits(percentile.value)}{unit}"


def narrow_text(cell: Cell) -> str:
    """A cell in three digits, for tables of a terminal."""
    if isinstance(cell, LowerBound):
        return f"≥ {three_digits(cell.value)}"
    return three_digits(cell) if isinstance(cell, float) else cell_text(cell)


def latency_rows(metrics: Metrics) -> list[tuple[str, Distribution | None]]:
    """Latencies in ms by name and anchor."""
    rows: list[tuple[str, Distribution | None]] = []
    for metric, value in metrics.latencies.items():
        if isinstance(value, Anchored):
            rows += [(f"{metric.label}, {anchor}", distribution) for anchor, distribution in value.by_anchor]
        else:
            rows.append((metric.label, value))
    return rows


def interval_rows(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """Name, and the 95 % intervals of INTERVAL_COLUMNS in ms, or the reason for having none."""
    return [
        (name, d.mean.interval_text, d.percentile(0.50).interval_text, d.percentile(0.99).interval_text)
        for name, d in latency_rows(metrics)
        if d is not None
    ]


def rate_rows(metrics: Metrics) -> list[tuple[str, Cell, str]]:
    """Rates of the whole run, with their 95 % intervals, and the burstiness of the sends."""
    rates = metrics.rates
    return [
        *(_rate_row(metric.label_with_unit, rates[metric]) for metric in (*ARRIVAL_RATES, *THROUGHPUTS)),
        (f"{DISPERSION.label} (1: Poisson)", metrics.sent_dispersion, ""),
        *_goodput_rows(metrics),
    ]


def _goodput_rows(metrics: Metrics) -> list[tuple[str, Cell, str]]:
    goodput = metrics.goodput
    if goodput is None:
        return []
    every = " and ".join(map(str, goodput.objectives))
    attained, from_send = share_cell(goodput.attainment), share_cell(goodput.attainment_from_send)
    rows: list[tuple[str, Cell, str]] = [
        _rate_row(f"{GOODPUT.label}: {every} ({GOODPUT.table_unit})", goodput.rate),
        (f"{ATTAINMENT.label} (% of {goodput.judged_text})", attained, _percent(goodput.attainment_interval)),
        (f"{ATTAINMENT.label}, {FROM_SEND} (%)", from_send, _percent(goodput.from_send_interval)),
    ]
    if goodput.undetermined:
        name = f"{ATTAINMENT.label} (%) with {goodput.undetermined:,} cut off, undetermined"
        rows.append((name, None, _percent(goodput.attainment_limits)))
    if len(goodput.objectives) > 1:
        rows += [
            (f"  {objective} alone (%)", share_cell(met / judged) if judged else None, "")
            for objective, met, judged in zip(goodput.objectives, goodput.met, goodput.judged, strict=True)
        ]
    return rows


def _percent(share: Interval | None) -> str:
    return "" if share is None else " – ".join(share_cell(limit).text for limit in share)


def _rate_row(name: str, rate: Estimate) -> tuple[str, Cell, str]:
    return name, rate.value, "" if rate.value is None else rate.interval_text


def tail_rows(metrics: Metrics) -> list[tuple[str, Cell, str]]:
    """p99.9 in ms of the latencies with enough values for it, and its 95 % interval or the reason for having none."""
    tails = [(name, d) for name, d in latency_rows(metrics) if d is not None and d.supports(_TAIL)]
    return [(name, percentile_cell(d, _TAIL), d.percentile(_TAIL).interval_text) for name, d in tails]


def unsupported_p99(metrics: Metrics) -> list[str]:
    """The names of the latencies with too few values for a claim about p99."""
    return [name for name, d in latency_rows(metrics) if d is not None and not d.supports(0.99)]


def guard_note(metrics: Metrics) -> str | None:
    """The meaning of the mark beside a p99 of too few values; None where there is no such p99."""
    if not unsupported_p99(metrics):
        return None
    return f"too few values for a claim about p99, which needs {required_samples(0.99):,} (99 % confidence)"


def cut_off_note(metrics: Metrics) -> str:
    """What "≥" means beside the number of requests that it comes from, to follow a sentence; "" where there are none."""
    named = [(name, d.censored) for name, d in latency_rows(metrics) if d is not None and d.censored]
    if not named:
        return ""
    counts = "; ".join(f"{name}: {censored:,}" for name, censored in named)
    return (
        f' "≥" is a lower bound, since requests were cut off (cancelled, timed out, or in flight at the stop), and took longer '
        f"than until then: {counts}; n counts the others."
    )


SLIP_COLUMNS = ("sends", "p50 ms", "p99 ms", "max ms")


def slip_by_worker_rows(metrics: Metrics) -> list[tuple[str, tuple[float | int | None, ...]]]:
    """The client's slip under SLIP_COLUMNS, by worker; none where there was one worker."""
    if len(metrics.slip_by_worker) < 2:
        return []
    return [(f"Worker {worker}", _slip_row(slip)) for worker, slip in sorted(metrics.slip_by_worker.items())]


def slip_over_time_rows(metrics: Metrics) -> list[tuple[str, tuple[float | int | None, ...]]]:
    """The client's slip under SLIP_COLUMNS, in tenths of the time in which requests were due."""
    return [(f"{span_text(part.start_s, part.end_s, 2)} s", _slip_row(part.slip)) for part in metrics.slip_over_time]


def _slip_row(slip: Slip) -> tuple[float | int | None, ...]:
    return slip.sends, slip.p50_ms, slip.p99_ms, slip.max_ms


WINDOW_COLUMNS = (
    f"start {WINDOW.unit}",
    f"end {WINDOW.unit}",
    *(metric.table_unit for metric in THROUGHPUTS),
    "p50 ms",
    "p99 ms",
)


def window_rows(metrics: Metrics) -> list[tuple[str, tuple[Cell, ...] | str]]:
    """The whole run and its steady part under WINDOW_COLUMNS; in place of a missing steady part, the reason."""
    windows = metrics.windows
    if windows.whole is None:
        return []
    latency, _ = metrics.latency
    steady = windows.not_steady or "" if windows.steady is None else _window_row(windows.steady)
    return [
        (f"Whole run (p50, p99: {latency.label})", _window_row(windows.whole)),
        (f"Steady ({RULE}; p50, p99: {latency.label})", steady),
    ]


def _window_row(window: Window) -> tuple[Cell, ...]:
    latency = window.e2e_ms if window.ttft_ms is None else window.ttft_ms
    percentiles = (None, None) if latency is None else (percentile_cell(latency, 0.5), percentile_cell(latency, 0.99))
    return (window.start_s, window.end_s, *(rate.value for rate in window.throughputs.values()), *percentiles)


def upstream_rows(table: UpstreamTable) -> list[tuple[str, float | int | None]]:
    """Upstream's rows under upstream's names."""
    return [(statistic.printed, statistic.value(table)) for statistic in UPSTREAM_STATISTICS]
