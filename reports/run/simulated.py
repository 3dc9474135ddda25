"""The numbers of a simulated run with the model's error: apart from the run's own, which ``rows.py`` has."""

from __future__ import annotations

from bench_records.manifest import Simulation
from reports.metrics.catalogue import E2E, REQUEST_THROUGHPUT, TPOT, TTFT
from reports.metrics.metric import Anchored, Metric
from reports.render.counts import counted
from reports.render.tables import Cell, Table, three_digits
from reports.run_report import RunReport
from reports.statistics.percentiles import Distribution

_SHOWN = ("p50", "p99")
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
_MEAN = "mean"


def simulation_table(report: RunReport) -> Table:
    """Each number beside its range with the model's error; no rows of a run that was measured."""
    simulation = report.manifest.simulation
    rows = [] if simulation is None else [row for metric in (TTFT, TPOT, E2E) for row in _rows(report, simulation, metric)]
    if simulation is not None and (limits := simulation.ranges.get(REQUEST_THROUGHPUT.key, {}).get("value")) is not None:
        rows.append(
            (f"{REQUEST_THROUGHPUT.label}, {REQUEST_THROUGHPUT.unit}", report.metrics.rates[REQUEST_THROUGHPUT].value, *limits)
        )
    header = ("from the schedule", "this simulation", "5 %", "95 %")
    return Table(
        "model_error", "With the model's error", header, tuple(rows), _note(0 if simulation is None else simulation.draws)
    )


def _note(draws: int) -> str:
    """What a range covers."""
    error = "the error that the fit had on what it was not fitted to"
    if not draws:
        return f"From 5 to 95 % of this simulation longer or shorter by {error}: the model's constants were not drawn."
    drawn = f"{counted(draws, 'draw')} of the model's constants on the same requests"
    return f"From 5 to 95 % over {drawn}, each longer or shorter by {error}."


def _rows(report: RunReport, simulation: Simulation, metric: Metric) -> list[tuple[Cell, ...]]:
    found = _distribution(report, metric)
    if found is None:
        return []
    own = {_MEAN: found.mean.value} | {name: found.percentile(q).value for name, q in _QUANTILES.items()}
    ranges = simulation.ranges.get(metric.key, {})
    return [(f"{name} {metric.label}, ms", own.get(name), *limits) for name, limits in ranges.items()]


def _distribution(report: RunReport, metric: Metric) -> Distribution | None:
    found = report.metrics.latencies.get(metric)
    return found.scheduled if isinstance(found, Anchored) else found


def model_error(report: RunReport) -> str:
    """The headline numbers with the model's error in one sentence; "" of a run that was measured, without draws, or without
    such a number.
    """
    simulation = report.manifest.simulation
    if simulation is None or not simulation.draws:
        return ""
    parts = []
    for metric in (TTFT, TPOT, E2E):
        ranges = simulation.ranges.get(metric.key, {})
        limits = [f"{name} {_between(ranges[name])}" for name in _SHOWN if name in ranges]
        parts += [f"{metric.label} {', '.join(limits)}"] if limits else []
    rate = simulation.ranges.get(REQUEST_THROUGHPUT.key, {}).get("value")
    parts += [f"{_between(rate)} requests/s"] if rate is not None else []
    if not parts:
        return ""
    return f"With the model's error, by {counted(simulation.draws, 'draw')} of its constants (ms): {'; '.join(parts)}."


def _between(limits: tuple[float, float]) -> str:
    low, high = (three_digits(limit) for limit in limits)
    return low if low == high else f"{low} – {high}"
