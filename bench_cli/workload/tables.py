"""The statistics of a workload as tables, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from reports.render.tables import Cell, Quantity, Table
from workloads.table.statistics import LengthStatistics, PrefixSharing, SessionStatistics, WorkloadStatistics
from workloads.table.workload import Workload, WorkloadFacts


def workload_tables(workload: Workload, statistics: WorkloadStatistics) -> tuple[Table, ...]:
    """Facts, then lengths where there are some."""
    facts = Table("workload", "Workload", ("fact", "value"), tuple(_facts(workload.facts, statistics)))
    lengths = lengths_table(statistics.lengths)
    return (facts, lengths) if lengths.rows else (facts,)


def lengths_table(lengths: tuple[LengthStatistics, ...]) -> Table:
    """Percentiles of each kind of length."""
    rows = tuple(
        (
            f"{length.name}, {length.unit}",
            length.rows,
            length.mean,
            length.p50,
            length.p90,
            length.p99,
            length.max,
            length.total,
        )
        for length in lengths
    )
    return Table("lengths", "Lengths", ("length", "rows", "mean", "p50", "p90", "p99", "max", "sum"), rows)


def _facts(facts: WorkloadFacts, statistics: WorkloadStatistics) -> Iterator[tuple[Cell, ...]]:
    yield "source", facts.source
    yield "format", facts.format
    yield "rows", statistics.rows
    yield "rows not read", facts.rejected_rows
    arrivals = statistics.arrivals
    if arrivals is not None:
        yield "duration, s", arrivals.duration_s
        yield "rate, requests/s", arrivals.rate_per_s
        yield "mean gap, ms", None if arrivals.mean_gap_s is None else 1e3 * arrivals.mean_gap_s
        yield "CV of gaps", arrivals.gap_cv
        yield "distinct arrival times", arrivals.instants
        yield "tick, ms", None if facts.tick_ns is None else facts.tick_ns / 1e6
    if statistics.sessions is not None:
        yield from _of_sessions(statistics.sessions)
    if statistics.prefixes is not None:
        yield from _of_prefixes(statistics.prefixes, facts.block_tokens)


def _of_sessions(sessions: SessionStatistics) -> Iterator[tuple[Cell, ...]]:
    yield "conversations", sessions.sessions
    yield "turns per conversation, mean", sessions.mean_turns
    yield "turns per conversation, most", sessions.most_turns
    yield "turns that wait for an answer", sessions.waiting_turns


def _of_prefixes(prefixes: PrefixSharing, block_tokens: int | None) -> Iterator[tuple[Cell, ...]]:
    if block_tokens is not None:
        yield "block, tokens", block_tokens
    yield f"prompt {prefixes.unit}", prefixes.total
    yield f"prompt {prefixes.unit} that repeat a prefix", prefixes.repeated
    yield "prefix sharing", Quantity(prefixes.share, f"{100 * prefixes.share:.1f} %")
