"""The tables and sentences of a sweep, the same in every format."""

from __future__ import annotations

from pathlib import Path

from reports.metrics.catalogue import ATTAINMENT, E2E, GOODPUT, OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import Cell, Table, cell_text, link_to, share_cell
from reports.sweep.curves import setting_number
from reports.sweep.held import found_text, gates_of, held_of, load_text
from reports.sweep.points import Sweep, SweepPoint, SweepRun

_MOST_NAMED = 3
_TOKENS = OUTPUT_TOKEN_THROUGHPUT.table_unit
_UNFOLDED = 12  # rows of a table of less interest
FRONT_NOTE = "Pareto front: of the valid points whose queue did not grow, no other one has both more tokens/s and a lower p99"


def points_table(sweep: Sweep) -> Table:
    """A row for each point: settings, numbers with intervals, whether it is on the Pareto front, and findings."""
    varied = sweep.axes if len(sweep.axes) > 1 else ()
    return Table(
        "points",
        "Points",
        (
            *("point", *map(printable, varied), "Pareto front", "validity"),
            *("offered/s", REQUEST_THROUGHPUT.table_unit, _TOKENS, f"95 % of {_TOKENS}"),
            *(f"{sweep.latency} p50 ms", f"{sweep.latency} p99 ms", f"95 % of {sweep.latency} p99"),
            *(f"{E2E.short} p99 {E2E.unit}", *(("goodput/s", "attainment %") if has_objectives(sweep) else ())),
            *("held", "failed", "findings"),
        ),
        tuple(
            (
                _named(point, number, varied),
                *(_setting(point, name) for name in varied),
                *_numbers(point, number in sweep.front, with_goodput=has_objectives(sweep)),
            )
            for number, point in enumerate(sweep.points)
        ),
        " ".join(
            (
                "Latencies count from the schedule. A point links to the report of its first run, which has all settings.",
                *objectives_note(sweep),
            )
        ),
    )


def runs_table(sweep: Sweep) -> Table:
    """A row for each run: its folder, and the command that repeats it."""
    rows = tuple(
        (printable(point.name), _folder(run), "valid" if run.valid else "INVALID", printable(run.command))
        for point in sweep.points
        for run in point.runs
    )
    return Table(
        "runs", "Runs and how to repeat them", ("point", "run", "validity", "command"), rows, long=len(rows) > _UNFOLDED
    )


def front_sentence(sweep: Sweep) -> str:
    """The points on the Pareto front, in one sentence."""
    if not sweep.front:
        return "No point is on the Pareto front: none is valid, with a queue that did not grow, tokens/s and a p99."
    names = "; ".join(sweep.points[position].name for position in sweep.front)
    listed = f": {names}" if len(sweep.front) <= _MOST_NAMED else ""
    return printable(f"On the Pareto front: {len(sweep.front)} of {counted(len(sweep.points), 'point')}{listed}.")


def answer(sweep: Sweep) -> str:
    """How much the target holds, in one sentence, and how to narrow it; of a sweep over one measure of the load, else the
    Pareto front.
    """
    held = held_of(sweep)
    if held is None:
        return front_sentence(sweep)
    if held.failed is None and held.highest is None:
        undecided = ", ".join(map(load_text, held.undecided))
        return printable(
            f"Undecided at every {held.axis} ({undecided}): the runs are too short or not valid; raise --num_requests."
        )
    found = found_text(held)
    found = found[0].upper() + found[1:]
    if held.failed is None and held.needs_more_requests:
        return printable(f"{found}; raise --num_requests to decide.")
    low, high = (held.most, 2.0 * held.most) if held.failed is None else (held.low, held.failed)
    values = _between(low, high, whole=held.whole)
    if not values:
        return printable(f"{found}.")
    verb = "to find the limit" if held.failed is None else "to narrow it"
    verb += ", with a higher --num_requests" if held.needs_more_requests else ""
    return printable(f"{found}; {verb}: bench sweep --over {held.axis}={','.join(values)} {sweep.measured}")


def gate_table(sweep: Sweep) -> Table:
    """The requirements of --fail_if, and whether the points show that they hold."""
    rows = tuple((str(gate.requirement), gate.status.value, printable(gate.why)) for gate in gates_of(sweep))
    note = (
        f"Passed where a {printable(' and '.join(sweep.axes))} of at least the limit held, FAILED where one of at most the "
        "limit did not, else undecided: measure between."
    )
    return Table("gates", "Gates", ("requirement", "status", "evidence"), rows, note)


def _between(low: float, high: float, *, whole: bool) -> list[str]:
    """At most four settings between two, evenly, to three digits or as many as part them; ``whole`` numbers where those of the
    sweep are.
    """
    numbers = [low + (high - low) * part / 5 for part in range(1, 5)]
    if whole:
        numbers = [number for number in map(float, map(round, numbers)) if low < number < high]
    digits = 10 if whole else 3
    while True:
        texts = [f"{float(f'{number:.{digits}g}'):.10g}" for number in numbers]
        if digits == 10 or all(low < float(text) < high for text in texts):
            return list(dict.fromkeys(texts))
        digits += 1


def counts_text(sweep: Sweep) -> str:
    """The counts of invalid points and of missing runs, if any."""
    invalid = sum(not point.valid for point in sweep.points)
    missing = sweep.planned - sweep.recorded
    parts = [f"{invalid} of {counted(len(sweep.points), 'point')} not valid"] if invalid else []
    return ", ".join([*parts, f"{missing} of {counted(sweep.planned, 'run')} not measured yet"] if missing else parts)


def _named(point: SweepPoint, number: int, varied: tuple[str, ...]) -> Cell:
    """The name of a point, or its number where separate columns contain its settings; a link to its report."""
    first = point.runs[0]
    name = str(number + 1) if varied else printable(point.name)
    return link_to(name, Path(first.folder, "report.html")) if first.has_page else name


def _folder(run: SweepRun) -> Cell:
    name = printable(run.folder)
    return link_to(name, Path(run.folder, "report.html")) if run.has_page else name


def _setting(point: SweepPoint, axis: str) -> Cell:
    """The value as a number where it is one, so that the table sorts by it."""
    number = setting_number(point, axis)
    if number is None:
        value = dict(point.settings).get(axis)
        return None if value is None else printable(value)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def has_objectives(sweep: Sweep) -> bool:
    return any(point.attainment is not None for point in sweep.points)


def objectives_note(sweep: Sweep) -> tuple[str, ...]:
    """What makes objectives decide whether a point held, where no gate does."""
    required = {gate.requirement.metric for point in sweep.points for gate in point.gates}
    if not has_objectives(sweep) or required & {ATTAINMENT, GOODPUT}:
        return ()
    return ("Objectives alone do not decide whether a point held: for that, add --slo 'attainment>=99%' to the verb.",)


def held_text(point: SweepPoint) -> str:
    return {True: "yes", False: "no", None: "undecided"}[point.held]


def _goodput(point: SweepPoint) -> tuple[Cell, ...]:
    return (point.goodput.value, None if point.attainment is None else share_cell(point.attainment))


def _numbers(point: SweepPoint, on_front: bool, *, with_goodput: bool) -> tuple[Cell, ...]:
    return (
        "yes" if on_front else "",
        "valid" if point.valid else "INVALID",
        point.offered_rate,
        point.request_throughput.value,
        point.output_token_throughput.value,
        point.output_token_throughput.limits_text(cell_text),
        point.latency_p50_ms.value,
        point.latency_p99_ms.value,
        point.latency_p99_ms.limits_text(cell_text),
        point.e2e_p99_ms.value,
        *(_goodput(point) if with_goodput else ()),
        held_text(point),
        point.failed,
        ", ".join(point.findings),
    )
