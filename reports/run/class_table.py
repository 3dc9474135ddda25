"""The table of the classes of a mixture and of the probes, and the probes in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tabulate import tabulate

from reports.gates.words import percentage
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.metric import Metric
from reports.metrics.traffic_classes import ClassNumbers
from reports.render.plain_text import printable
from reports.render.tables import Cell, Quantity, Table
from reports.run.rows import narrow_text, percentile_cell, three_digits_of
from reports.run_report import RunReport
from reports.statistics.percentiles import Distribution, percentile_key, required_samples

_MOST_CLASSES = 20
_PROBES_APART = "Probes are in no other number of this report but the server's and the client's."


def class_table(report: RunReport) -> Table:
    """A row for each class of a mixture, and for the probes. A column without any value is left out."""
    parts = [
        part for part in _CLASS_COLUMNS if not part.optional or any(part.of(numbers) is not None for numbers in report.classes)
    ]
    largest = sorted(report.classes, key=lambda numbers: -numbers.scheduled)[:_MOST_CLASSES]
    shown = [numbers for numbers in report.classes if numbers in largest or numbers.is_probe]
    rows = tuple((_class_name(numbers), *(part.of(numbers) for part in parts)) for numbers in shown)
    hidden = len(report.classes) - len(shown)
    notes = [f"The largest; summary.json has {hidden:,} more."] if hidden else []
    notes += [f"Latencies count from the schedule; a p99 from fewer than {required_samples(0.99)} requests is unreliable."]
    notes += ["Withdrawn ones were cancelled as planned."] if any(numbers.withdrawn for numbers in report.classes) else []
    notes += ["Objectives are the class's own, or else the run's."] if report.metrics.goodput or _has_goodput(report) else []
    notes += [_PROBES_APART] if report.probe else []
    return Table("classes", "By class", ("class", *(part.title for part in parts)), rows, " ".join(notes))


def console_class_table(report: RunReport) -> str:
    """The same for a terminal of 80 columns: short names in two lines, and three digits; "" without classes."""
    table = class_table(report)
    if not table.rows:
        return ""
    names = ["Class", *(_NARROW.get(title, title) for title in table.columns[1:])]
    heads = zip(*((*name.split("\n"), "")[:2] for name in names), strict=True)
    cells = [[narrow_text(cell) for cell in row] for row in table.rows]
    alignment = ("left", *["right"] * (len(names) - 1))
    drawn = tabulate([*heads, *cells], tablefmt="plain", colalign=alignment, disable_numparse=True)
    return f"{drawn}\n{_PROBES_APART}" if report.probe else drawn


def probe_sentence(report: RunReport) -> str:
    """How the probes fared; "" where there are none."""
    probe = report.probe
    if probe is None:
        return ""
    latency, d = (E2E, probe.e2e_ms) if probe.ttft_ms is None else (TTFT, probe.ttft_ms)
    parts = [f"{probe.done:,} of {probe.scheduled:,} succeeded"]
    parts += [] if d is None else [f"{latency.label} p50 {_ms(d, 0.5)}, p99 {_ms(d, 0.99)}"]
    return f"Probes, in no other number here: {'; '.join(parts)}."


def _ms(d: Distribution, q: float) -> str:
    return three_digits_of(d.percentile(q), " ms")


@dataclass(frozen=True, slots=True)
class _ClassColumn:
    """A column of the table by class; an ``optional`` one is left out where no class has a value."""

    title: str
    of: Callable[[ClassNumbers], Cell]
    optional: bool = False


_NARROW = {"withdrawn": "with-\ndrawn", "good/s": "good\n/s"} | {
    f"{metric.label.split()[0]} {q} ms": f"{metric.label.split()[0]}\n{q}, ms" for metric in (TTFT, E2E) for q in ("p50", "p99")
}


def _latency_columns(metric: Metric, of: Callable[[ClassNumbers], Distribution | None]) -> list[_ClassColumn]:
    def column(q: float) -> _ClassColumn:
        def value(numbers: ClassNumbers) -> Cell:
            d = of(numbers)
            return None if d is None else percentile_cell(d, q)

        return _ClassColumn(f"{metric.short or metric.label} {percentile_key(q)} ms", value, optional=True)

    return [column(0.5), column(0.99)]


_CLASS_COLUMNS = (
    _ClassColumn("n", lambda numbers: numbers.scheduled),
    _ClassColumn("done", lambda numbers: numbers.done),
    _ClassColumn("failed", lambda numbers: numbers.failed),
    _ClassColumn("withdrawn", lambda numbers: numbers.withdrawn or None, optional=True),
    *_latency_columns(TTFT, lambda numbers: numbers.ttft_ms),
    *_latency_columns(E2E, lambda numbers: numbers.e2e_ms),
    _ClassColumn(
        "met %", lambda numbers: None if numbers.goodput is None else _percent(numbers.goodput.attainment), optional=True
    ),
    _ClassColumn("good/s", lambda numbers: numbers.goodput_rate, optional=True),
)


def _percent(share: float) -> Quantity:
    return Quantity(100 * share, percentage(share))


def _class_name(numbers: ClassNumbers) -> str:
    return "load" if numbers.name is None else printable(numbers.name)


def _has_goodput(report: RunReport) -> bool:
    return any(numbers.goodput is not None for numbers in report.classes)
