"""A workload as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator

from bench_cli.workload.pictures import arrival_pictures, length_pictures, prefix_pictures, session_pictures
from bench_cli.workload.tables import workload_tables
from reports.page.page import Card, Page, Section, Tone
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import three_digits
from reports.statistics.estimate import two_decimals
from workloads.table.statistics import WorkloadStatistics
from workloads.table.workload import Workload, WorkloadFacts


def workload_page(workload: Workload, statistics: WorkloadStatistics) -> Page:
    """The content of the page, in its order."""
    reservation = " ".join(_reservations(workload.facts))
    sections = (
        Section("arrivals", "Arrivals", tuple(arrival_pictures(workload)), pairs=True),
        Section("lengths", "Lengths", length_pictures(workload), pairs=True),
        Section(
            "sharing",
            "Conversations and prefixes",
            (*session_pictures(workload), *prefix_pictures(statistics.prefixes)),
            pairs=True,
        ),
        Section("numbers", "Numbers", workload_tables(workload, statistics)),
    )
    return Page(
        title=printable(f"Workload {workload.facts.source}"),
        lead="What the file asks of a server, before anything is sent.",
        facts=(("Format", workload.facts.format), ("Rows not read", f"{workload.facts.rejected_rows:,}")),
        verdict=_verdict(statistics),
        tone=Tone.CAUTION if reservation else Tone.GOOD,
        aside=reservation,
        cards=tuple(_cards(statistics)),
        sections=tuple(section for section in sections if section.blocks),
        footer="Drag in a picture to zoom, double-click to reset. Click a series to hide it, a column's head to sort.",
    )


def _verdict(statistics: WorkloadStatistics) -> str:
    arrivals, sessions = statistics.arrivals, statistics.sessions
    text = counted(statistics.rows, "request")
    if sessions is not None:
        text += f" of {counted(sessions.sessions, 'conversation')}"
    if arrivals is not None and arrivals.rate_per_s is not None:
        text += f" in {_seconds(arrivals.duration_s)} s: {two_decimals(arrivals.rate_per_s)} a second"
    return f"{text}."


def _reservations(facts: WorkloadFacts) -> Iterator[str]:
    if facts.tick_ns is not None:
        yield f"Arrivals lie on a grid of {facts.tick_ns / 1e9:g} s: replayed as they are, they come in bursts."
    if facts.rejected_rows:
        yield f"{counted(facts.rejected_rows, 'row of the file is', 'rows of the file are')} not in it."


def _seconds(length_s: float) -> str:
    """A length in whole seconds, or to three digits of a short one."""
    return f"{length_s:,.0f}" if length_s >= 9.95 else three_digits(length_s)


def _cards(statistics: WorkloadStatistics) -> Iterator[Card]:
    arrivals = statistics.arrivals
    if arrivals is not None and arrivals.rate_per_s is not None:
        yield Card("Rate", two_decimals(arrivals.rate_per_s), "requests/s", f"over {_seconds(arrivals.duration_s)} s")
        yield Card("CV of gaps", f"{arrivals.gap_cv:.2f}", "", "a Poisson process has 1")
    for length in statistics.lengths:
        yield Card(
            f"{length.name} length".capitalize(),
            three_digits(length.mean),
            length.unit,
            f"p50 {length.p50:,}, p99 {length.p99:,}",
        )
    if statistics.sessions is not None:
        yield Card(
            "Turns", f"{statistics.sessions.mean_turns:.2f}", "a conversation", f"at most {statistics.sessions.most_turns:,}"
        )
    if statistics.prefixes is not None:
        yield Card("Prefix sharing", f"{100 * statistics.prefixes.share:.1f}", "%", f"of {statistics.prefixes.unit} of prompts")
