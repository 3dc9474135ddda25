"""Which target each request goes to."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.request import Balance, Request
from workloads.schedule.balance import assigned_targets
from workloads.schedule.schedule import Schedule, SessionSchedule


def _schedule(count: int, seed: int = 0, sessions: tuple[str | None, ...] = (None,)) -> Schedule:
    requests = tuple(Request(1, "x", session=sessions[k % len(sessions)]) for k in range(count))
    return Schedule(requests, (0,) * count, seed)


@given(count=st.integers(0, 200), targets=st.integers(1, 7), seed=st.integers(0, 9))
def test_of_each_block_of_requests_every_target_gets_one(count: int, targets: int, seed: int) -> None:
    assigned = assigned_targets(_schedule(count, seed), Balance.ROUND_ROBIN, targets)
    assert len(assigned) == count
    for start in range(0, count, targets):
        block = assigned[start : start + targets]
        assert len(set(block)) == len(block)
        assert set(block) <= set(range(targets))


def test_it_depends_on_the_seed_and_on_nothing_else() -> None:
    one, again, other = (assigned_targets(_schedule(64, seed), Balance.ROUND_ROBIN, 2) for seed in (1, 1, 2))
    assert one == again != other
    assert assigned_targets(_schedule(64, 1), Balance.LEAST_IN_FLIGHT, 2) == one
    assert assigned_targets(_schedule(32, 1), Balance.ROUND_ROBIN, 2) == one[:32]  # more requests change none of the first


@pytest.mark.parametrize("period", [2, 3, 4, 8])
def test_every_nth_request_is_not_always_sent_to_one_target(period: int) -> None:
    """Worker w of n has every n-th request, and a dataset may alternate between short and long prompts."""
    assigned = assigned_targets(_schedule(4_000), Balance.ROUND_ROBIN, 2)
    for first in range(period):
        share = sum(assigned[first::period]) / len(assigned[first::period])
        assert 0.44 < share < 0.56


def test_the_turns_of_a_session_stay_together_and_sessions_are_dealt_out_evenly() -> None:
    names = ("a", "b", None, "c", "d", "a", None)
    schedule = _schedule(70, sessions=names)
    assigned = assigned_targets(schedule, Balance.SESSION, 2)
    by_session = {name: {t for t, r in zip(assigned, schedule.requests, strict=True) if r.session == name} for name in "abcd"}
    assert all(len(targets) == 1 for targets in by_session.values())
    assert sum(Counter(t for (t,) in by_session.values()).values()) == 4
    alone = [t for t, request in zip(assigned, schedule.requests, strict=True) if request.session is None]
    assert set(alone) == {0, 1}  # each is dealt out by itself
    sessions = SessionSchedule(
        tuple(Request(1, "x", session=f"s{k // 3}") for k in range(12)), (0,) * 12, (None,) * 12, (0,) * 12, 0
    )
    first_turns = assigned_targets(sessions, Balance.SESSION, 2)[::3]
    assert sorted(first_turns) == [0, 0, 1, 1]
