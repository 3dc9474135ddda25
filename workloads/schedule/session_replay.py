"""Conversations of a trace, replayed: each begins at its recorded time, and each later turn waits for the answer before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workloads.arrivals.processes import Recorded
from workloads.elements.request import Turn
from workloads.prompts.drawn import Drawn
from workloads.schedule.load import Sessions
from workloads.schedule.sessions import TURN_RULES, SessionRules, TurnClock
from workloads.table.workload import Workload


def behind_their_parents(workload: Workload, rows: Sequence[int]) -> tuple[int, ...]:
    """The part of ``rows``, which rise, whose parents are in ``rows``, with the parents of these, and so on."""
    parents = workload.table["parent"].to_pylist()
    sent: set[int] = set()
    for row in rows:
        if parents[row] is None or parents[row] in sent:
            sent.add(row)
    return tuple(row for row in rows if row in sent)


def names_of(workload: Workload) -> tuple[str, ...]:
    """A name of the conversation of each row: that of its first turn, by the trace, or by its number."""
    names: list[str] = []
    columns = zip(workload.table["parent"].to_pylist(), workload.table["session"].to_pylist(), strict=True)
    for number, (parent, session) in enumerate(columns):
        names.append(names[parent] if parent is not None else session or f"row {number + 1}")
    return tuple(names)


def in_conversations(drawn: Drawn, workload: Workload) -> Drawn:
    """The requests of ``drawn`` as turns of the conversations of ``workload``, without those whose parents are not sent."""
    kept = set(behind_their_parents(workload, drawn.kept))
    names = names_of(workload)
    sent = [(row, request) for row, request in zip(drawn.kept, drawn.requests, strict=True) if row in kept]
    return replace(
        drawn,
        requests=tuple(replace(request, session=names[row]) for row, request in sent),
        kept=tuple(row for row, _ in sent),
        dropped_behind=len(drawn.kept) - len(sent),
    )


def replayed_sessions(sent: Workload, rules: SessionRules) -> Sessions:
    """The conversations of ``sent``, whose requests are its rows, at its times."""
    names = ("arrival_ns", "parent", "think_time_ns")
    first_ns: list[int] = []
    turns: list[Turn] = []
    for arrival_ns, parent, think_time_ns in zip(*(sent.table[name].to_pylist() for name in names), strict=True):
        first_ns.append(arrival_ns if parent is None else first_ns[parent])
        if parent is None:
            turns.append(Turn())
        elif rules.clock is TurnClock.RECORDED:
            turns.append(Turn(parent, after_first_ns=arrival_ns - first_ns[-1]))
        else:
            turns.append(Turn(parent, rules.think_time_ns if think_time_ns is None else think_time_ns))
    begins = tuple(begin for begin, turn in zip(first_ns, turns, strict=True) if turn.parent is None)
    description = f"{len(begins):,} sessions at the trace's own times, {TURN_RULES[rules.clock]}"
    return Sessions(Recorded(begins), tuple(turns), description, rules.history)
