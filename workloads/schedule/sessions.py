"""Sessions: when the conversations of requests begin, and what their later turns wait for."""

from __future__ import annotations

from dataclasses import replace

from workloads.arrivals.processes import LONGEST_S, AllAtOnce, Constant, Recorded
from workloads.elements.errors import Field, WorkloadError
from workloads.elements.request import HistorySource, Turn
from workloads.prompts.conversations import SessionRules, TurnClock
from workloads.prompts.drawn import Drawn
from workloads.schedule.load import OpenLoop, Sessions
from workloads.table.workload import Workload

_SECOND_NS = 1_000_000_000
TURN_RULES = {
    TurnClock.THINK_TIME: "a later turn due its think time after the answer before it",
    TurnClock.RECORDED: "a later turn due at its recorded time, or at the end of the answer before it",
}


def sessions_from(drawn: Drawn, load: OpenLoop, rules: SessionRules) -> Sessions:
    """The sessions of ``drawn``, which begin when ``load`` has arrivals."""
    sessions = Sessions(load.arrivals, drawn.turns, "", rules.history, load.duration_s)
    return replace(sessions, description=f"{drawn.sessions:,} sessions, {sessions.law}, {TURN_RULES[rules.clock]}")


def sessions_of_users(drawn: Drawn, users: int, rate_per_s: float | None, history: HistorySource) -> Sessions:
    """The sessions of ``drawn`` dealt to ``users`` in turn, each of which carries out its own one after another.

    With ``rate_per_s`` request k of a user is due k / rate after its first, or at the end of the answer before it, and
    users begin evenly over 1 / rate. Without, it is due at that end, after its think time, and all users begin at once.
    Raises WorkloadError for a rate at which the last request is due years later.
    """
    last: list[int | None] = [None] * users  # request of each user
    sent = [0] * users
    dealt: list[Turn] = []
    number = -1  # of the session
    for index, turn in enumerate(drawn.turns):
        number += turn.parent is None
        user = number % users
        if rate_per_s is None or not sent[user]:
            dealt.append(Turn(last[user], turn.think_time_ns if sent[user] else 0))
        else:
            after_s = sent[user] / rate_per_s
            if after_s > LONGEST_S:
                raise WorkloadError(
                    Field("user_rate"), f" {rate_per_s:g} is so low that the last request would come years from now"
                )
            dealt.append(Turn(last[user], after_first_ns=round(after_s * _SECOND_NS)))
        last[user] = index
        sent[user] += 1
    description = f"{drawn.sessions:,} sessions of {users:,} users, one after another"
    if rate_per_s is None:
        return Sessions(AllAtOnce(), tuple(dealt), description, history)
    description += f", at most {rate_per_s:g} requests/s each"
    return Sessions(Constant(rate_per_s * users), tuple(dealt), description, history)


def replayed_sessions(sent: Workload, rules: SessionRules, duration_s: float | None = None) -> Sessions:
    """The conversations of ``sent``, whose requests are its rows, at its times, which lie within ``duration_s``."""
    names = ("arrival_ns", "parent", "think_time_ns", "joins")
    first_ns: list[int] = []
    turns: list[Turn] = []
    for arrival_ns, parent, think_time_ns, joins in zip(*(sent.table[name].to_pylist() for name in names), strict=True):
        first_ns.append(arrival_ns if parent is None else first_ns[parent])
        if parent is None:
            turns.append(Turn())
        elif rules.clock is TurnClock.RECORDED:
            turns.append(Turn(parent, after_first_ns=arrival_ns - first_ns[-1], joins=tuple(joins or ())))
        else:
            think_ns = rules.think_time_ns if think_time_ns is None else think_time_ns
            turns.append(Turn(parent, think_ns, joins=tuple(joins or ())))
    begins = tuple(begin for begin, turn in zip(first_ns, turns, strict=True) if turn.parent is None)
    description = f"{len(begins):,} sessions at the trace's own times, {TURN_RULES[rules.clock]}"
    return Sessions(Recorded(begins), tuple(turns), description, rules.history, duration_s)
