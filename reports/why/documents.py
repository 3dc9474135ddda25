"""The answer of ``bench why`` as a document."""

from __future__ import annotations

from dataclasses import replace

from reports.metrics.phase_shares import LatencyParts, PercentileParts, PhaseShare, RequestParts
from reports.metrics.request_phases import Phase
from reports.render.document import Block, Code, Document, Heading, Notes, Paragraph
from reports.render.plain_text import printable
from reports.render.tables import Cell, Quantity, Table, span_text, three_digits
from reports.run_report import RunReport
from reports.statistics.estimate import Estimate
from reports.why.answer import ClassParts, ExplainedRun, PartsDifference, StretchParts, Why
from reports.why.step_log import StepFacts
from reports.why.trial import divides, is_by_option, trial
from reports.why.waterfall import spans
from reports.why.words import (
    LEAST_SHARE,
    STEP_COLUMNS,
    WORDS,
    answer,
    change,
    missing_intervals,
    percentile_name,
    phases_text,
    remarks,
    remedy,
    shares_text,
    steps_text,
    unlike_sources,
    without_intervals,
    without_largest,
    without_latency,
)

_CONTRADICTION = "contradiction"
_HEAD = "head of the answer"
_TOTAL = "together"
_INTERVAL = "95 % interval"
_INTERVAL_WIDTH = 15
_PHASES_WIDTH = 65
_BAR_CELLS, _BEFORE, _DURING, _AT = 30, "·", "█", "│"
_TRY, _TRY_AFTER = "Try it with the same requests: ", "After that change, send the same requests: "
_SEE, _SEE_PARTS = "See what it changed: ", "See what it consists of: "
_LAST_WRAPS = (None, None, _PHASES_WIDTH)


def document(why: Why) -> Document:
    """The document: the answer first, then the table that it is from, and what it cannot show."""
    if len(why.runs) == 1:
        return _of_run(why.runs[0])
    names = [run.report.folder.path.name for run in why.runs]
    a, b = (printable(name) for name in names)
    blocks: list[Block] = [Heading(f"Why {b} (B) differs from {a} (A)")]
    for difference in why.differences:
        blocks += _of_difference(difference, why)
    if not why.differences:
        blocks.append(Paragraph("The runs have no latency in common whose parts could be compared."))
    return tuple(blocks)


def _of_run(run: ExplainedRun) -> Document:
    blocks: list[Block] = []
    tried: set[Notes] = set()  # two latencies often have one remedy
    for latency in run.latencies:
        parts = latency.percentiles[-1]
        blocks += [
            Paragraph(answer(latency.metric, parts), is_answer=True, aside=without_largest(latency.metric, parts)),
            parts_table(latency),
            without_table(latency),
            class_parts_table(run.classes_of(latency.metric)),
            stretch_parts_table(run.stretches_of(latency.metric)),
            request_parts_table(run.slowest.get(latency.metric.key, ()), latency.metric.label),
            *(waterfall_table(request, latency.metric.label) for request in run.chosen.get(latency.metric.key, ())),
            *(
                Paragraph(without_latency(latency.metric, number, run.report.requests))
                for number in run.without.get(latency.metric.key, ())
            ),
            Paragraph(" ".join(remarks(run.report, parts))),
            Paragraph(remedy(parts)),
        ]
        commands = _trial(run.report, parts)
        blocks += [] if commands in tried else [commands]
        tried.add(commands)
    if run.logged is not None:
        blocks += [Paragraph(steps_text(run.logged)), steps_table(run.steps), Paragraph(STEP_COLUMNS)]
    if not run.latencies:
        blocks.append(Paragraph("No request has a latency whose parts could be shown.", is_answer=True))
    return tuple(blocks)


def _of_difference(difference: PartsDifference, why: Why) -> list[Block]:
    """The change alone, where no request around the percentile of a run has parts."""
    if not (difference.a.around and difference.b.around):
        return [Paragraph(change(difference), is_answer=True)]
    sides = zip("AB", why.runs, (difference.a, difference.b), strict=True)
    notes = [Paragraph(f"{name}: {' '.join(remarks(run.report, parts))}") for name, run, parts in sides]
    return [
        Paragraph(change(difference), is_answer=True, aside=unlike_sources(difference)),
        _difference_table(difference),
        Paragraph(without_intervals(difference)),
        *notes,
    ]


def parts_table(latency: LatencyParts) -> Table:
    """A row for each phase: what it takes around each percentile, and the last percentile without it. The column of intervals
    is left out where no share has one: a remark says why.
    """
    last = latency.percentiles[-1]
    names = [percentile_name(parts.q) for parts in latency.percentiles]
    columns = (
        "phase",
        *(column for name in names for column in (f"{name} ms", f"{name} %")),
        _INTERVAL,
        "without it",
        "source",
    )
    phases = [share.phase for share in last.shares]
    rows = [_row(phase, latency) for phase in phases]
    if any(parts.contradicted for parts in latency.percentiles):
        rows.append(_contradiction(latency))
    rows.append((_TOTAL, *_totals(latency), None, last.value_ms, ""))
    title = f"Parts of {latency.metric.label}"
    sides = "l" + "r" * (len(columns) - 2) + "l"
    table = Table(title.lower(), title, columns, tuple(rows), sides=sides)
    if missing_intervals(last) is None:
        return replace(table, widths=(*[None] * (len(columns) - 3), _INTERVAL_WIDTH, None, None))
    return replace(table.chosen([name for name in columns if name != _INTERVAL]), sides=f"l{sides[2:]}")


def without_table(latency: LatencyParts) -> Table:
    """A row for each phase that the answer names and that has a source: the last percentile without it, with its interval; no
    row where none has one.
    """
    last = latency.percentiles[-1]
    name = f"{percentile_name(last.q)} {latency.metric.label} without a phase"
    known = [share for share in last.shares if share.phase is not Phase.UNATTRIBUTED]
    named = [share for share in known if (share.share.value or 0.0) >= LEAST_SHARE]
    rows = tuple((f"without {share.phase.value}", share.without_ms, share.without.interval_text or None) for share in named)
    shown = rows if any(share.without.interval is not None for share in named) else ()
    return Table(name, name, ("", f"{percentile_name(last.q)} ms", _INTERVAL), shown, sides="lrr")


def class_parts_table(classes: tuple[ClassParts, ...]) -> Table:
    """A row for each class: its percentile, and its phases with the largest share first; no row without classes."""
    name = f"{percentile_name(classes[0].parts.q)} {classes[0].metric.label}" if classes else ""
    rows = tuple((of_class.name, of_class.parts.value_ms, shares_text(of_class.parts)) for of_class in classes)
    return Table(
        f"{name} by class", f"{name} by class", ("class", f"{name} ms", "phases"), rows, sides="lrl", widths=_LAST_WRAPS
    )


def stretch_parts_table(stretches: tuple[StretchParts, ...]) -> Table:
    """A row for each stretch of the run: its percentile, and its phases with the largest share first."""
    name = f"{percentile_name(stretches[0].parts.q)} {stretches[0].metric.label}" if stretches else ""
    rows = tuple(
        (span_text(stretch.start_s, stretch.end_s, 1), stretch.parts.value_ms, shares_text(stretch.parts))
        for stretch in stretches
    )
    return Table(
        f"{name} over time", f"{name} over time", ("due, s", f"{name} ms", "phases"), rows, sides="rrl", widths=_LAST_WRAPS
    )


def steps_table(stretches: tuple[StepFacts, ...]) -> Table:
    """A row for each stretch of the run: what the engine's steps did, without prompts and beside them."""
    columns = ("time, s", "steps", "known", "sequences", "waiting", "alone ms", "beside", "beside ms", "added ms", "KV blocks")
    rows = tuple(
        (
            span_text(facts.start_s, facts.end_s, 1),
            *(facts.steps, facts.known, facts.sequences, facts.waiting, facts.alone_ms),
            *(facts.beside, facts.beside_ms, facts.added_ms, facts.most_kv_blocks),
        )
        for facts in stretches
    )
    return Table("steps", "Steps of the engine", columns, rows, sides="rrrrrrrrrr")


def request_parts_table(requests: tuple[RequestParts, ...], label: str) -> Table:
    """A row for each request, the slowest first, with its phases."""
    rows = tuple((found.index, found.due_s, found.latency_ms, phases_text(found)) for found in requests)
    columns = ("request", "due, s", f"{label} ms", "phases, ms")
    return Table(
        f"slowest by {label}",
        f"Slowest requests by {label}",
        columns,
        rows,
        sides="rrrl",
        widths=(None, None, None, _PHASES_WIDTH),
    )


def waterfall_table(request: RequestParts, label: str) -> Table:
    """A row for each phase that took time, in their order: from when to when since the request was due, and a bar, where that
    is known. What the sources contradict each other by has a row without them. Where the wait for the head of the answer is no
    phase of its own, a row before the phases that begin later has when it came.
    """
    rows: list[tuple[Cell, ...]] = []
    head_ms = None if request.phases_ms.get(Phase.FIRST_BYTE) else request.head_ms
    for span in spans(request):
        if head_ms is not None and span.from_ms is not None and span.from_ms > head_ms:
            rows.append(_head_row(head_ms, request.latency_ms))
            head_ms = None
        if span.from_ms is None:
            rows.append((span.phase.value, None, None, span.ms, ""))
        else:
            to_ms = span.from_ms + span.ms
            rows.append((span.phase.value, span.from_ms, to_ms, span.ms, _bar(span.from_ms, to_ms, request.latency_ms)))
    if head_ms is not None:
        rows.append(_head_row(head_ms, request.latency_ms))
    if request.contradiction_ms:
        rows.append((_CONTRADICTION, None, None, request.contradiction_ms, ""))
    title = f"Request {request.index}, due at {request.due_s:,.3f} s: {label} {three_digits(request.latency_ms)} ms"
    return Table(
        f"request {request.index} {label}".lower(), title, (title, "from ms", "to ms", "ms", ""), tuple(rows), sides="lrrrl"
    )


def _head_row(head_ms: float, whole_ms: float) -> tuple[Cell, ...]:
    return (_HEAD, head_ms, None, None, _BEFORE * min(round(_BAR_CELLS * head_ms / whole_ms), _BAR_CELLS - 1) + _AT)


def _bar(from_ms: float, to_ms: float, whole_ms: float) -> str:
    """A bar of at least one cell."""
    start, end = (round(_BAR_CELLS * ms / whole_ms) for ms in (from_ms, to_ms))
    start = min(start, _BAR_CELLS - 1)
    return _BEFORE * start + _DURING * max(1, end - start)


def _trial(run: RunReport, parts: PercentileParts) -> Notes:
    """The commands that try the remedy, a line each; nothing where there are none."""
    leads = (_TRY if is_by_option(run, parts) else _TRY_AFTER, _SEE_PARTS if divides(run, parts) else _SEE)
    return Notes(tuple((lead, Code(command)) for lead, command in zip(leads, trial(run, parts), strict=False)))


def _row(phase: Phase, latency: LatencyParts) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for parts in latency.percentiles:
        share = parts.by_phase[phase]
        cells += [share.mean_ms.value, _share(share.share.value)]
    last = latency.percentiles[-1].by_phase[phase]
    return (phase.value, *cells, _limits(last), last.without_ms, WORDS[phase].source)


def _contradiction(latency: LatencyParts) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for parts in latency.percentiles:
        cells += [parts.contradiction_ms, _share(parts.contradiction_ms / parts.mean_ms if parts.mean_ms else None)]
    return (_CONTRADICTION, *cells, None, None, "client, server")


def _totals(latency: LatencyParts) -> list[Cell]:
    cells: list[Cell] = []
    for parts in latency.percentiles:
        cells += [parts.mean_ms if parts.around else None, _share(1.0 if parts.mean_ms else None)]
    return cells


def _share(value: float | None) -> Cell:
    return None if value is None else Quantity(value, f"{100.0 * value:.1f}")


def _limits(share: PhaseShare) -> str | None:
    return share.share.limits_text(lambda value: f"{100.0 * value:.1f}") or None


def _difference_table(difference: PartsDifference) -> Table:
    """A row for each phase; without the column of intervals where none has one: a paragraph says why."""
    rows: list[tuple[Cell, ...]] = [
        (phase.phase.value, _value(phase.a), _value(phase.b), _changed(phase.difference), _interval(phase.difference))
        for phase in difference.phases
    ]
    a, b = difference.a, difference.b
    if a.contradicted or b.contradicted:
        rows.append((_CONTRADICTION, *_both(a.contradiction_ms, b.contradiction_ms), None))
    rows += [
        (_TOTAL, *_both(a.mean_ms, b.mean_ms), None),
        (
            f"{percentile_name(a.q)} itself",
            a.value_ms,
            b.value_ms,
            _changed(difference.percentile),
            _interval(difference.percentile),
        ),
    ]
    name = f"{percentile_name(a.q)} {difference.metric.label}"
    columns = ("phase", "A ms", "B ms", "B − A ms", _INTERVAL)
    table = Table(f"parts of {name}", f"Parts of {name}", columns, tuple(rows), sides="lrrrr")
    return table if not without_intervals(difference) else replace(table.chosen(columns[:-1]), sides="lrrr")


def _both(a: float, b: float) -> tuple[Cell, ...]:
    return a, b, _signed(b - a)


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _changed(estimate: Estimate | None) -> Quantity | None:
    return None if estimate is None or estimate.value is None else _signed(estimate.value)


def _interval(estimate: Estimate | None) -> str | None:
    return None if estimate is None else estimate.interval_text or None


def _signed(value: float) -> Quantity:
    return Quantity(value, f"{value:+,.2f}")
