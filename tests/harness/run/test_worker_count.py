"""How many workers a load gets on which machine, and when they get cores of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.host.cpus import Cores
from harness.run.worker_count import Demand, Workers, choose_workers, pin


def _machine(cores: int, quota: float | None = None) -> Cores:
    return Cores(tuple(range(cores)), tuple(frozenset({core}) for core in range(cores)), quota)


def _rate(requests_per_s: float, tokens: float = 20.0, at_most: int = 10_000) -> Demand:
    return Demand(requests_per_s, tokens, at_most, at_most)


def _users(count: int) -> Demand:
    return Demand(None, 20.0, count, count)


@pytest.mark.parametrize(
    ("demand", "cores", "target_is_here", "count"),
    [
        (_rate(10), _machine(16), False, 1),
        (_rate(500), _machine(16), False, 3),  # 0.75 of a core, each a third busy
        (_rate(500), _machine(2), False, 1),  # one core is left to the parent
        (_rate(500), _machine(4), True, 2),  # half of the cores are the target's
        (_rate(500), _machine(2), True, 1),
        (_rate(500), _machine(16, quota=2.5), False, 1),
        (_rate(100_000), _machine(64), False, 63),
        (_rate(100_000, at_most=5), _machine(64), False, 5),
        (_users(8), _machine(16), False, 1),
        (_users(2_000), _machine(16), False, 8),
        (_users(2_000), _machine(1), False, 1),
    ],
)
def test_the_load_and_the_machine_decide(demand: Demand, cores: Cores, target_is_here: bool, count: int) -> None:
    assert choose_workers(demand, cores, target_is_here).count == count


@given(
    st.builds(Demand, st.none() | st.floats(1e-3, 1e6), st.floats(1, 1e4), st.integers(1, 10**6), st.integers(1, 10**6)),
    st.builds(_machine, st.integers(1, 300), st.none() | st.floats(0.01, 300)),
    st.booleans(),
)
def test_there_is_always_one_worker_and_never_more_than_can_share_the_load(
    demand: Demand, cores: Cores, target_is_here: bool
) -> None:
    assert 1 <= choose_workers(demand, cores, target_is_here).count <= min(demand.at_most, 256)


def test_what_was_chosen_is_explained() -> None:
    assert choose_workers(_rate(100), _machine(8), False).reason == "100 requests/s keep 0.15 of a core busy"
    peak = Demand(100, 20.0, 10, 10, "at the peak")
    assert choose_workers(peak, _machine(8), False).reason == "100 requests/s at the peak keep 0.15 of a core busy"
    short = choose_workers(_rate(500), _machine(2), True).reason
    assert short == "500 requests/s keep 0.75 of a core busy, which needs 3; the target shares 2 cores"
    assert choose_workers(_rate(1_000, at_most=2), _machine(16), False).reason.endswith(
        "more than 2 should not share this load"
    )
    assert choose_workers(_users(300), _machine(16), False).reason == "up to 300 in flight, 256 a worker"


@pytest.mark.parametrize(
    ("workers", "cores", "target_is_here", "asked", "pinned"),
    [
        (2, _machine(8), False, None, (7, 6)),
        (2, _machine(4), False, None, (3, 2)),
        (2, _machine(3), False, None, ()),  # two are kept for everything else
        (1, _machine(2), False, None, ()),
        (2, _machine(8), True, None, ()),  # the target may be using them
        (2, _machine(8, quota=3.0), False, None, ()),
        (2, _machine(8), False, False, ()),
        (2, _machine(2), True, True, (1, 0)),
    ],
)
def test_workers_get_cores_where_there_are_cores_to_spare(
    workers: int, cores: Cores, target_is_here: bool, asked: bool | None, pinned: tuple[int, ...]
) -> None:
    assert pin(Workers(workers, "why"), cores, target_is_here, asked).pinned_cores == pinned


def test_two_workers_do_not_share_a_physical_core_while_there_is_another() -> None:
    siblings = tuple(frozenset({core % 4, core % 4 + 4}) for core in range(8))
    cores = Cores(tuple(range(8)), siblings)
    assert pin(Workers(5, "why"), cores, False, True).pinned_cores == (7, 6, 5, 4, 3)


def test_more_workers_than_cores_cannot_be_pinned() -> None:
    with pytest.raises(ValueError, match="3 workers cannot have a core each: there are 2"):
        pin(Workers(3, "why"), _machine(2), False, True)
