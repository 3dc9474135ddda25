"""The tables and sentences of a trend, the same in every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from reports.compare.comparable import Weight
from reports.compare.lines import lines
from reports.compare.measures import Measure
from reports.compare.tables import DIFFERENCE_COLUMNS, difference_row, summary_sentence
from reports.render.plain_text import printable
from reports.render.tables import Cell, Table, cell_text, link_to
from reports.statistics.estimate import Estimate
from reports.trend.history import Standing, Trend, TrendRun

_MOST_NAMED = 3  # runs in a sentence
_UNFOLDED = 12  # rows of a table of less interest

LinkTarget = Callable[[Path], Path]


def runs_table(trend: Trend, link_target: LinkTarget | None = None) -> Table:
    """A row for each run: start, verdict, and measures. ``link_target`` returns the path from a page to a file."""
    measures = trend.measures
    return Table(
        "runs",
        "Runs in the order of time",
        ("run", "started (UTC)", "folder", "against the baseline", *(_column(m) for m in measures), "findings"),
        tuple(
            (
                number,
                start_text(run),
                _folder(run, link_target),
                run.verdict,
                *(_value(run, m) for m in measures),
                ", ".join(run.findings),
            )
            for number, run in enumerate(trend.runs, start=1)
        ),
        "Latencies count from the schedule. A verdict compares one run with the baseline, in all measures together.",
    )


def changes_table(trend: Trend) -> Table:
    """A row for each run and measure: its interval, and its change against the baseline."""
    columns = ("run", "folder", "measure", "95 % of value", "baseline", "value", *DIFFERENCE_COLUMNS[3:])
    rows: list[tuple[Cell, ...]] = []
    for number, run in enumerate(trend.runs, start=1):
        for d in run.differences:
            title, *rest = difference_row(d)
            rows.append((number, printable(run.name), title, _interval(d.measure, run.estimates.get(d.measure.name)), *rest))
    note = (
        "A is the baseline, B the run. At most 5 % of equal runs differ in any measure by chance (Holm): of many runs, some do."
    )
    return Table("changes", "Changes against the baseline", columns, tuple(rows), note, long=True)


def settings_table(trend: Trend) -> Table:
    """A row for each run and setting that differs from the baseline."""
    rows = tuple(
        (number, printable(run.name), line.weight.value, *map(printable, (line.what, *line.sides)))
        for number, run in enumerate(trend.runs, start=1)
        for line in lines(run.disagreements)
    )
    note = "refuse: no verdict. warn: part of a change may come from here. changed: a change of the target, the likely subject."
    columns = ("run", "folder", "effect", "setting", "baseline", "this run")
    return Table("settings", "Differences from the baseline", columns, rows, note, long=len(rows) > _UNFOLDED)


def left_out_table(trend: Trend) -> Table:
    """Runs that are not in the trend, and why."""
    rows = tuple((printable(run.name), printable(run.why)) for run in trend.left_out)
    return Table("left-out", "Left out", ("folder", "why"), rows)


def headline(trend: Trend) -> str:
    """The verdict on the newest comparable run, in one sentence."""
    if trend.baseline is None:
        return "No run is valid, so there is no baseline and no comparison."
    newest = trend.newest_compared
    if newest is None:
        return printable(f"No run is comparable to the baseline {trend.baseline}.")
    is_newest = newest is trend.runs[-1] and not trend.newer_left_out
    which = "The newest run" if is_newest else "The newest comparable run"
    sentence = f"{which}: {summary_sentence(newest.name, trend.baseline, newest.differences)}"
    return printable(" ".join(filter(None, (sentence, newer_text(trend)))))


def newer_text(trend: Trend) -> str:
    """The runs that are newer than the one that is judged, in one sentence; "" where there are none."""
    newer = [(run.started_at, f"{run.name} ({run.standing.value})") for run in trend.newer]
    newer += [(run.started_at, f"{run.name} (left out)") for run in trend.newer_left_out if run.started_at is not None]
    if not newer:
        return ""
    listed = ", ".join(text for _, text in sorted(newer)[-_MOST_NAMED:])
    return printable(f"Newer, and not judged: {listed}{' and others' if len(newer) > _MOST_NAMED else ''}.")


def counts_text(trend: Trend) -> str:
    """The number of runs, and of those that are not compared."""
    standings = Counter(run.standing for run in trend.runs)
    parts = [f"{len(trend.runs)} run{'' if len(trend.runs) == 1 else 's'}"]
    parts += [
        f"{standings[standing]} {standing.value}" for standing in (Standing.INVALID, Standing.DIFFERENT) if standings[standing]
    ]
    return ", ".join([*parts, f"{len(trend.left_out)} left out"] if trend.left_out else parts)


def refusal(run: TrendRun) -> str:
    """The settings that make a run not comparable."""
    return ", ".join(printable(d.what) for d in run.disagreements if d.weight is Weight.REFUSE)


def start_text(run: TrendRun) -> str:
    return f"{run.started_at:%Y-%m-%d %H:%M:%S}"


def in_unit(measure: Measure, value: float) -> float:
    """The value in ``unit_of(measure)``: a share in per cent."""
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
        return estimate.limits_text(cell_text)
    low, high = (in_unit(measure, bound) for bound in estimate.interval)
    return f"{cell_text(low)} – {cell_text(high)}"


def _folder(run: TrendRun, link_target: LinkTarget | None) -> Cell:
    name = printable(run.name)
    return link_to(name, link_target(run.folder / "report.html")) if run.has_page and link_target is not None else name
