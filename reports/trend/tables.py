"""The tables and sentences of a trend, the same in every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from reports.compare.comparable import Weight
from reports.compare.measures import Measure
from reports.compare.tables import DIFFERENCE_COLUMNS, difference_row, told_in_words
from reports.metrics.estimates import Estimate
from reports.render.plain_text import printable
from reports.render.tables import Cell, Table, cell_text, link_to
from reports.trend.history import Standing, Trend, TrendRun

_UNFOLDED = 12  # rows of a table of less interest

WhereTo = Callable[[Path], Path]


def runs_table(trend: Trend, where_to: WhereTo | None = None) -> Table:
    """A row a run: when, how it stands to the baseline, and its measures. ``where_to``: what leads from a page to a file."""
    measures = trend.measures
    return Table(
        "runs",
        "Runs in the order of time",
        ("run", "started (UTC)", "folder", "against the baseline", *(_column(m) for m in measures), "findings"),
        tuple(
            (
                number,
                when(run),
                _folder(run, where_to),
                run.verdict,
                *(_value(run, m) for m in measures),
                ", ".join(run.findings),
            )
            for number, run in enumerate(trend.runs, start=1)
        ),
        "Latencies count from the schedule. A verdict is of one run against the baseline, all its measures together.",
    )


def changes_table(trend: Trend) -> Table:
    """A row a run and measure: its interval, and what changed against the baseline."""
    columns = ("run", "folder", "measure", "95 % of value", "baseline", "value", *DIFFERENCE_COLUMNS[3:])
    rows: list[tuple[Cell, ...]] = []
    for number, run in enumerate(trend.runs, start=1):
        for d in run.differences:
            title, *rest = difference_row(d)
            rows.append((number, printable(run.name), title, _interval(d.measure, run.estimates.get(d.measure.name)), *rest))
    note = (
        "A is the baseline, B the run. At most 5 % of "
        "equal runs are called different in any measure (Holm): of many runs, some will be."
    )
    return Table("changes", "Changes against the baseline", columns, tuple(rows), note, long=True)


def settings_table(trend: Trend) -> Table:
    """A row a run and setting in which it differs from the baseline."""
    rows = tuple(
        (number, printable(run.name), d.weight.value, *map(printable, (d.what, _baseline_values(d.values), d.values[-1])))
        for number, run in enumerate(trend.runs, start=1)
        for d in run.disagreements
    )
    note = "refuse: no verdict is given. warn: part of a change may come from here. changed: of the target, as is meant."
    columns = ("run", "folder", "what it does", "setting", "baseline", "this run")
    return Table("settings", "What differs from the baseline", columns, rows, note, long=len(rows) > _UNFOLDED)


def left_out_table(trend: Trend) -> Table:
    """Runs without a place in the trend."""
    rows = tuple((printable(one.name), printable(one.why)) for one in trend.left_out)
    return Table("left-out", "Left out", ("folder", "why"), rows)


def headline(trend: Trend) -> str:
    """What the newest run that can be compared says."""
    if trend.baseline is None:
        return "No run is valid, so there is no baseline, and nothing is compared."
    newest = trend.newest_compared
    if newest is None:
        return printable(f"No run is comparable to the baseline {trend.baseline}.")
    return printable(f"The newest: {told_in_words(newest.name, trend.baseline, newest.differences)}")


def counted(trend: Trend) -> str:
    """How many runs there are, and how many of them say nothing."""
    standings = Counter(run.standing for run in trend.runs)
    parts = [f"{len(trend.runs)} run{'' if len(trend.runs) == 1 else 's'}"]
    parts += [f"{standings[one]} {one.value}" for one in (Standing.INVALID, Standing.DIFFERENT) if standings[one]]
    return ", ".join([*parts, f"{len(trend.left_out)} left out"] if trend.left_out else parts)


def refusal(run: TrendRun) -> str:
    """In what a run that is not comparable differs."""
    return ", ".join(printable(d.what) for d in run.disagreements if d.weight is Weight.REFUSE)


def when(run: TrendRun) -> str:
    return f"{run.started_at:%Y-%m-%d %H:%M:%S}"


def in_unit(measure: Measure, value: float) -> float:
    """A share is read in per cent."""
    return value if measure.relative else 100.0 * value


def unit_of(measure: Measure) -> str:
    return measure.unit if measure.relative else "%"


def _column(measure: Measure) -> str:
    return f"{measure.title}, {unit_of(measure)}"


def _value(run: TrendRun, measure: Measure) -> Cell:
    estimate = run.estimates.get(measure.name)
    return None if estimate is None or estimate.value is None else in_unit(measure, estimate.value)


def _interval(measure: Measure, estimate: Estimate | None) -> str:
    if estimate is None:
        return cell_text(None)
    if estimate.interval is None or measure.relative:
        return estimate.interval_text
    low, high = (in_unit(measure, bound) for bound in estimate.interval)
    return f"{cell_text(low)} – {cell_text(high)}"


def _folder(run: TrendRun, where_to: WhereTo | None) -> Cell:
    name = printable(run.name)
    return link_to(name, where_to(run.folder / "report.html")) if run.has_page and where_to is not None else name


def _baseline_values(values: tuple[str, ...]) -> str:
    return " | ".join(dict.fromkeys(values[:-1]))
