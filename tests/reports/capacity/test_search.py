"""Tests of brackets and next probes from constructed probes: every shape, and what must not change an answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from reports.capacity.probe import Control, Probe, Violations
from reports.capacity.search import Bracket, Goal, Shape, bracket, next_probe
from reports.metrics.in_flight import QueueCourse

_GOAL = Goal((0,), (0.01,))
_LOADS = (70.0, 80.0, 85.0, 90.0, 95.0, 100.0, 105.0, 110.0, 115.0, 120.0)


def _rising(load: float, crossing: float = 100.0, slope: float = 10.0) -> float:
    return 0.01 * (load / crossing) ** slope


def _probe(load: float, *shares: float, n: int = 20_000, effect: float | None = 4.0, overloaded: bool = False) -> Probe:
    return Probe(load, n, tuple(Violations(n, round(share * n), effect) for share in shares), gave_up=overloaded)


def _overloaded(load: float) -> Probe:
    return Probe(load, 1_500, (Violations(1_400, 1_200, None),), gave_up=True)


def _crossing(loads: tuple[float, ...] = _LOADS) -> list[Probe]:
    return [_probe(load, _rising(load)) for load in loads]


def _drawn(share: Callable[[float], float], most: int = 200_000, first_load: float = 30.0, seed: int = 1) -> list[Probe]:
    """The probes of a whole search of a target whose requests are independent, overloaded from load 150 on."""
    rng, probes = np.random.default_rng(seed), list[Probe]()
    while True:
        asked = next_probe(probes, _GOAL, first_load, most - sum(probe.requests for probe in probes))
        if asked is None:
            return probes
        if asked.load >= 150.0:
            probes.append(replace(_overloaded(asked.load), requests=asked.requests // 3))
            continue
        above = int(rng.binomial(asked.requests, min(1.0, share(asked.load))))
        probes.append(Probe(asked.load, asked.requests, (Violations(asked.requests, above, 1.0),)))


def test_crossing_lies_in_a_bracket_that_reaches_the_goal() -> None:
    found = bracket(_crossing(), _GOAL)

    assert found.shape is Shape.CROSSING
    assert found.binding == 0
    assert found.certified is not None
    assert found.refused is not None
    assert found.estimate is not None
    assert found.certified < 100.0 < found.refused
    assert found.estimate == pytest.approx(100.0, rel=0.01)
    assert found.ratio is not None
    assert found.ratio < 1.2
    assert found.more_requests == 0


def test_probes_beside_the_crossing_count_at_it() -> None:
    without = bracket(_crossing((80.0, 85.0, 115.0, 120.0)), _GOAL)

    assert without.estimate == pytest.approx(100.0, rel=0.01)


def test_more_requests_shrink_while_they_are_spent() -> None:
    few = bracket([_probe(load, _rising(load), n=500, effect=40.0) for load in _LOADS], _GOAL)
    more = bracket([_probe(load, _rising(load), n=1_000, effect=40.0) for load in _LOADS], _GOAL)

    assert few.more_requests is not None
    assert more.more_requests is not None
    assert 0 < more.more_requests < few.more_requests


def test_more_requests_are_requests_where_a_limit_counts_their_tokens() -> None:
    """Each request has 50 tokens, and what the tokens show is what as many requests would."""
    narrow = replace(_GOAL, ratio=1.01)
    values = _crossing()
    tokens = [replace(probe, requests=probe.violations[0].n // 50) for probe in values]
    of_values, of_tokens = (bracket(probes, narrow).more_requests for probes in (values, tokens))
    assert of_values is not None
    assert of_tokens is not None
    assert of_values > 50 * 6_000
    assert of_tokens == pytest.approx(of_values / 50, rel=1e-3)


def test_clusters_of_violations_widen_the_bracket() -> None:
    narrow = bracket(_crossing(), _GOAL)
    wide = bracket([replace(probe, violations=(replace(probe.violations[0], effect=16.0),)) for probe in _crossing()], _GOAL)

    assert narrow.ratio is not None
    assert wide.ratio is not None
    assert math.log(wide.ratio) > 1.5 * math.log(narrow.ratio)


def test_probes_just_below_the_crossing_without_a_violation_certify_together() -> None:
    probes = [_probe(load, 0.0, n=1_700, effect=10.0) for load in (160.0, 162.0, 165.0, 168.0, 170.0, 172.0)]
    probes += [_probe(load, share, n=1_700, effect=60.0) for load, share in ((190.0, 0.02), (195.0, 0.05), (210.0, 0.12))]

    found = bracket([_probe(70.0, 0.0, n=400, effect=2.0), *probes], _GOAL)

    assert found.certified is not None
    assert 160.0 <= found.certified < 190.0


def test_a_search_with_controls_probes_above_the_crossing_too_while_nothing_is_certified() -> None:
    """What a simulation explains shows by requests beyond the limit, of which probes below the crossing have none."""
    without = [
        _probe(load, _rising(load, slope=20.0), n=1_300, effect=80.0) for load in (80.0, 95.0, 100.0, 103.0, 106.0, 110.0)
    ]
    control = Control(0.01, (1,) * 8, (1,) * 8, 0.01, 0.01)
    found = bracket(without, _GOAL)
    assert found.certified is None
    assert found.refused is not None
    assert found.estimate is not None
    lower, upper = (
        next_probe(probes, _GOAL, 80.0, 60_000)
        for probes in (without, [replace(each, controls=(control,)) for each in without])
    )
    assert lower is not None
    assert upper is not None
    assert lower.load < found.estimate < upper.load


def test_probes_that_differ_by_more_than_their_clusters_widen_the_bracket() -> None:
    scattered = [_probe(load, _rising(load) * (2.0 if k % 2 else 0.5)) for k, load in enumerate(_LOADS)]

    calm, uneven = bracket(_crossing(), _GOAL), bracket(scattered, _GOAL)

    assert calm.ratio is not None
    assert uneven.ratio is None or uneven.ratio > calm.ratio


def test_too_few_clusters_certify_nothing() -> None:
    probes = [replace(probe, violations=(replace(probe.violations[0], effect=500.0),)) for probe in _crossing()]

    found = bracket(probes, _GOAL)

    assert found.curves[0].clusters is not None
    assert found.curves[0].clusters < 10.0
    assert found.certified is None, "six of 20,000 at the lowest load, where one cluster has 250, may be luck"


def _stalled(load: float, gave_up: bool = True) -> Probe:
    """A probe of which one stall put 700 requests beyond the limit."""
    return Probe(load, 4_800, (Violations(3_800, 700, 1_200.0),), gave_up=gave_up)


def _calm(load: float) -> Probe:
    return _moving(load, 0.0, 0.1, 0.2)


def test_short_calm_probes_certify_as_before_where_nothing_was_met() -> None:
    """What a control variate explains leaves smaller clusters, in short probes, too."""
    explained = Violations(1_999, 0, 4.0, remaining=0.1)
    probes = [replace(_calm(100.0), requests=2_000, violations=(explained,)) for _ in range(3)]

    assert bracket(probes, _GOAL).certified == 100.0


def test_calm_probes_certify_nothing_as_soon_as_a_stall_was_met_near_them() -> None:
    calm = [*(_calm(230.0) for _ in range(3)), *(_calm(256.0) for _ in range(5))]
    long_after = [_calm(230.0) for _ in range(40)]

    assert bracket(calm, _GOAL).certified == 256.0
    assert bracket([*calm, _stalled(245.0)], _GOAL).certified is None
    assert bracket([*calm, _stalled(245.0), *long_after], _GOAL).certified == 230.0


def _gave_up(load: float, stalled: bool) -> Probe:
    """A probe that ended early, far beyond the limit, in a stall or not."""
    return Probe(load, 1_800, (Violations(1_400, 1_050, 25.0, stalled=stalled),), gave_up=True)


def test_probe_that_gave_up_in_a_stall_is_a_cluster_that_was_met_and_no_bound_of_the_capacity() -> None:
    calm = [*(_calm(210.0) for _ in range(3)), *(_calm(230.0) for _ in range(5))]

    overload, stall = (bracket([*calm, _gave_up(252.0, stalled)], _GOAL) for stalled in (False, True))
    assert (overload.certified, overload.refused) == (230.0, 252.0)
    assert (stall.certified, stall.refused) == (None, 252.0)


def test_stall_counts_less_far_below_a_load_at_which_the_queue_grows() -> None:
    probes = [_gave_up(252.0, True), *(_calm(120.0) for _ in range(5))]

    assert bracket(probes, _GOAL).certified is None
    assert bracket([*probes, _overloaded(270.0)], _GOAL).certified == 120.0


def test_curve_is_not_known_above_a_probe_far_beyond_the_limit_though_others_at_its_load_were_calm() -> None:
    lower = Probe(90.0, 20_000, (Violations(20_000, 4_000, 4.0),))

    assert bracket(_crossing(), _GOAL).certified is not None
    found = bracket([*_crossing(), lower], _GOAL)
    assert found.curves[0].crossing is not None
    assert (found.certified or 0.0) < 90.0


def test_stall_that_was_met_counts_less_at_loads_from_which_the_queue_drains_sooner() -> None:
    def certified(load: float, *others: Probe) -> float | None:
        return bracket([_calm(256.0), _stalled(245.0), *others, *(_calm(load) for _ in range(5))], _GOAL).certified

    assert certified(60.0) is None
    assert certified(40.0) == 40.0
    assert certified(60.0, _overloaded(280.0)) == 60.0
    assert certified(150.0, _overloaded(280.0)) == 150.0
    assert certified(180.0, _overloaded(280.0)) is None


def test_scaled_loads_scale_the_bracket() -> None:
    one = bracket(_crossing(), _GOAL)
    tenth = bracket([replace(probe, load=probe.load / 10.0) for probe in _crossing()], _GOAL)

    assert _ends(tenth) == pytest.approx([end / 10.0 for end in _ends(one)])


def test_same_probes_give_the_same_answer() -> None:
    assert bracket(_crossing(), _GOAL) == bracket(_crossing(), _GOAL)
    assert next_probe(_crossing()[:4], _GOAL, 30.0, 50_000) == next_probe(_crossing()[:4], _GOAL, 30.0, 50_000)


def test_order_of_the_probes_changes_nothing() -> None:
    assert _ends(bracket(_crossing()[::-1], _GOAL)) == pytest.approx(_ends(bracket(_crossing(), _GOAL)))


@pytest.mark.parametrize("above", [[130.0], [130.0, 140.0, 200.0], [101.0], [60.0]])
def test_overloaded_probes_never_raise_what_is_certified(above: list[float]) -> None:
    before = bracket(_crossing(), _GOAL)
    after = bracket([*_crossing(), *map(_overloaded, above)], _GOAL)

    assert before.certified is not None
    assert after.certified is None or after.certified <= before.certified
    assert after.refused is not None
    assert after.refused <= min(above)
    assert after.certified is None or after.certified < min(above)


def test_lower_confidence_never_widens_the_bracket() -> None:
    sure, less = bracket(_crossing(), _GOAL), bracket(_crossing(), replace(_GOAL, confidence=0.8))

    assert sure.certified is not None
    assert sure.refused is not None
    assert less.certified is not None
    assert less.refused is not None
    assert sure.certified < less.certified < less.refused < sure.refused


def test_lowest_limit_binds() -> None:
    goal = Goal((0, 1), (0.01, 0.05))
    probes = [_probe(load, _rising(load, 130.0), 5.0 * _rising(load)) for load in _LOADS]

    found = bracket(probes, goal)

    assert found.binding == 1
    assert found.estimate == pytest.approx(100.0, rel=0.01)
    assert found.certified == found.curves[1].low


def test_limit_that_most_requests_exceed_binds_where_no_curve_is_known() -> None:
    found = bracket([_probe(100.0, 0.0, 0.0, n=3_000), _probe(145.0, 0.015, 0.034, n=3_000)], Goal((0, 1), (0.01, 0.01)))

    assert found.estimate is None
    assert found.binding == 1


def test_limit_that_nothing_is_known_of_certifies_nothing() -> None:
    found = bracket([_probe(load, _rising(load), 0.0, n=150) for load in _LOADS[:2]], Goal((0, 1), (0.01, 0.0001)))

    assert found.certified is None


def test_several_limits_divide_the_error_of_a_refusal() -> None:
    one = bracket([_probe(load, _rising(load), 0.0) for load in _LOADS], _GOAL)
    two = bracket([_probe(load, _rising(load), 0.0) for load in _LOADS], Goal((0, 1), (0.01, 0.01)))

    assert one.refused is not None
    assert two.refused is not None
    assert two.certified == one.certified
    assert two.refused > one.refused


def test_limit_that_is_never_exceeded_is_always_held() -> None:
    found = bracket([_probe(load, 0.0) for load in _LOADS], _GOAL)

    assert found.shape is Shape.ALWAYS_HELD
    assert found.certified == max(_LOADS)
    assert found.refused is None
    assert found.estimate is None


def test_limit_that_is_always_exceeded_is_never_held() -> None:
    found = bracket([_probe(load, 0.5) for load in _LOADS], _GOAL)

    assert found.shape is Shape.NEVER_HELD
    assert found.refused == min(_LOADS)
    assert found.certified is None


def test_queue_that_grows_before_the_limit_is_exceeded_is_a_cliff() -> None:
    found = bracket([*(_probe(load, 0.0) for load in (80.0, 90.0, 100.0)), _overloaded(106.0)], _GOAL)

    assert found.shape is Shape.CLIFF
    assert (found.certified, found.refused) == (100.0, 106.0)


def test_load_just_below_one_that_exceeds_the_limit_is_not_certified_without_a_curve() -> None:
    """Times beyond the limit are rare there, and long: calm probes may have missed them."""
    calm = [_probe(load, 0.0) for load in (80.0, 90.0, 100.0)]

    assert bracket([*calm, _overloaded(104.0)], _GOAL).certified == 90.0
    assert bracket([*calm, _probe(104.0, 0.03, effect=400.0)], _GOAL).certified == 90.0


def _moving(load: float, share: float, growth: float, spread: float) -> Probe:
    return replace(_probe(load, share, n=6_000), queue=QueueCourse(growth, spread, 100.0))


def test_one_queue_that_grew_between_steady_ones_refuses_nothing() -> None:
    steady = [_moving(load, 0.0, 0.05, 0.2) for load in (80.0, 90.0, 110.0, 115.0, 120.0, 125.0, 130.0)]

    found = bracket([*steady, _moving(100.0, 0.0, 1.5, 1.8)], _GOAL)

    assert found.refused is None
    assert found.certified is not None
    assert found.certified > 100.0


@pytest.mark.parametrize("gave_up", [False, True])
def test_one_overloaded_probe_between_steady_ones_at_higher_loads_was_disturbed(gave_up: bool) -> None:
    steady = [_moving(load, 0.0, 0.05, 0.2) for load in (80.0, 90.0, 105.0, 110.0, 115.0, 120.0, 125.0, 130.0)]
    disturbed = replace(_moving(100.0, 0.02, 4.0, 4.5), gave_up=gave_up)

    found = bracket([*steady, disturbed], _GOAL)

    assert found.refused is None
    assert bracket([*steady[:2], disturbed], _GOAL).refused == 100.0


def test_load_beyond_capacity_is_not_certified_by_a_limit_that_is_far_away() -> None:
    """No request is beyond the limit yet, while the queues grow as they do at 1.02 times the capacity."""
    probes = [_moving(load, 0.0, 0.04, 0.2) for load in (80.0, 82.0, 84.0, 86.0, 88.0, 90.0)]
    probes += [_moving(102.0, 0.0, growth, spread) for growth, spread in ((0.4, 0.6), (0.9, 1.1), (1.2, 1.4), (1.0, 1.2))]

    found = bracket(probes, _GOAL)

    assert (found.certified, found.refused) == (90.0, None)


def test_probes_that_would_exceed_a_near_limit_at_capacity_show_together_that_the_target_keeps_up() -> None:
    """Their queues move as near capacity, and no request is beyond a limit that at capacity half of such probes reach."""
    far = [_moving(load, 0.0, 0.5, 0.8) for load in (80.0, 82.0, 84.0, 86.0, 88.0, 90.0, 92.0, 94.0, 96.0, 98.0)]
    near = [replace(probe, violations=(replace(probe.violations[0], none_at_capacity=0.5),)) for probe in far]

    assert bracket(far, _GOAL).certified is None
    assert bracket(near, _GOAL).certified == 80.0


def test_growth_of_several_probes_at_a_load_refuses_it_together() -> None:
    held = [_moving(load, 0.0, 0.04, 0.2) for load in (80.0, 82.0, 84.0, 86.0, 88.0, 90.0)]
    growing = [_moving(105.0, 0.0, 1.9, 2.1) for _ in range(2)]

    assert bracket([*held, *growing[:1]], _GOAL).refused is None
    assert bracket([*held, *growing], _GOAL).refused == 105.0


def test_search_leaves_a_load_at_which_the_queue_moves_as_at_capacity() -> None:
    """Three probes at 100 are within the limit, and their queues are not steady: a lower load is probed, not 100 for ever."""
    pilots = [_moving(80.0, 0.0, 0.04, 0.2), _overloaded(106.0), _overloaded(110.0)]
    unsteady = [_moving(100.0, 0.0, 0.7, 1.0) for _ in range(3)]

    again, lower = (next_probe([*pilots, *unsteady[:n]], _GOAL, 50.0, 100_000) for n in (2, 3))

    assert again is not None
    assert again.load == pytest.approx(106.0 / math.sqrt(1.2), rel=1e-3)
    assert lower is not None
    assert 80.0 < lower.load < 100.0


def test_load_whose_queue_moves_as_near_capacity_is_not_certified() -> None:
    """Its probes are within a limit that they would have exceeded at capacity; what is rare near capacity lasts long."""
    limits = (Violations(20_000, 0, 4.0, none_at_capacity=0.02),)
    below, near = (
        [replace(_moving(load, 0.0, 0.5, spread), violations=limits)] * 3 for load, spread in ((80.0, 0.3), (100.0, 0.9))
    )

    assert bracket([*below, *near], _GOAL).certified == 80.0
    assert bracket([*below, *[replace(probe, queue=below[0].queue) for probe in near]], _GOAL).certified == 100.0


def test_load_that_three_probes_do_not_certify_gives_way_to_a_lower_one() -> None:
    """In a recorded search 9 of 20 probes were just below a load that failed, and certified nothing."""
    probes = [_moving(50.0, 0.0, 0.04, 0.2), _moving(100.0, 0.0, 0.4, 0.6), _overloaded(106.0), _overloaded(110.0)]
    loads = list[float]()
    for _ in range(8):
        asked = next_probe(probes, _GOAL, 50.0, 100_000)
        assert asked is not None
        loads.append(asked.load)
        probes.append(_moving(asked.load, 0.0, 0.3, 0.6))

    assert min(loads) < 85.0
    assert max(loads) < 106.0
    assert all(loads.count(load) <= 3 for load in loads)


def test_load_that_is_rounded_when_it_is_sent_counts_as_tried() -> None:
    """A load just below a failing one had six probes in a row: what was sent was its four digits, a little less."""
    probes = [_moving(169.2, 0.0, 0.4, 0.6), _moving(285.0, 0.0, 0.4, 0.6), _overloaded(288.77), _overloaded(310.0)]
    loads = list[float]()
    for _ in range(6):
        asked = next_probe(probes, _GOAL, 50.0, 100_000)
        assert asked is not None
        sent = float(f"{asked.load:.4g}")
        loads.append(sent)
        probes.append(_moving(sent, 0.0, 0.3, 0.6))

    assert all(loads.count(load) <= 3 for load in loads)


def test_users_that_are_rounded_count_as_tried() -> None:
    goal = replace(_GOAL, step=1.0)
    probes = [_moving(30.0, 0.0, 0.4, 0.6), _moving(96.0, 0.0, 0.4, 0.6), _overloaded(101.0), _overloaded(110.0)]
    loads = list[float]()
    for _ in range(6):
        asked = next_probe(probes, goal, 50.0, 100_000)
        assert asked is not None
        loads.append(asked.load)
        probes.append(_moving(asked.load, 0.0, 0.3, 0.6))

    assert all(loads.count(load) <= 3 for load in loads)


def test_probe_too_short_to_show_its_queue_is_made_again_as_long_as_it_takes() -> None:
    short = replace(_probe(100.0, 0.0, n=600), needs=2_000)
    long_enough = replace(_moving(100.0, 0.0, 0.1, 0.3), requests=2_500)

    again = next_probe([_moving(60.0, 0.0, 0.1, 0.3), short], _GOAL, 50.0, 100_000)
    after = next_probe([_moving(60.0, 0.0, 0.1, 0.3), short, long_enough], _GOAL, 50.0, 100_000)

    assert again is not None
    assert (again.load, again.requests) == (100.0, 2_500)
    assert after is not None
    assert after.load > 100.0


@pytest.mark.parametrize("short", ["gave up", "beyond", "three"])
def test_probe_too_short_is_not_made_again_for_nothing(short: str) -> None:
    probe = replace(_probe(100.0, 0.5 if short == "beyond" else 0.0, n=600), needs=2_000, gave_up=short == "gave up")

    asked = next_probe([_moving(60.0, 0.0, 0.1, 0.3), *[probe] * (3 if short == "three" else 1)], _GOAL, 50.0, 100_000)

    assert asked is not None
    assert asked.load != 100.0


def test_load_is_not_certified_by_probes_too_short_to_show_their_queues() -> None:
    short = [replace(_probe(load, 0.0, n=20_000), needs=30_000) for load in (80.0, 90.0, 100.0)]

    assert bracket(short, _GOAL).certified is None
    assert bracket([replace(probe, needs=0) for probe in short], _GOAL).certified == 100.0  # of a closed loop


def test_search_that_reached_its_goal_with_few_probes_probes_the_certified_load_again() -> None:
    probes = [_moving(load, 0.0, 0.04, 0.2) for load in (85.0, 96.0, 96.0)]
    probes += [_overloaded(101.0), _overloaded(110.0)]
    found = bracket(probes, _GOAL)

    asked = next_probe(probes, _GOAL, 50.0, 100_000)

    assert (found.certified, found.refused) == (96.0, 101.0)
    assert asked is not None
    assert asked.load == 96.0


def test_share_that_hardly_rises_is_flat() -> None:
    probes = [_probe(load, _rising(load, slope=0.7), n=20_000, effect=2.0) for load in (25.0, 50.0, 75.0, 100.0, 150.0, 200.0)]

    found = bracket(probes, _GOAL)

    assert found.shape is Shape.FLAT
    assert found.more_requests is None or found.more_requests > 100_000


def test_share_that_falls_is_not_monotone_and_certifies_what_is_below() -> None:
    shares = {70.0: 0.001, 80.0: 0.001, 90.0: 0.05, 100.0: 0.002, 110.0: 0.002, 120.0: 0.06}

    found = bracket([_probe(load, share) for load, share in shares.items()], _GOAL)

    assert found.shape is Shape.NOT_MONOTONE
    assert (found.certified, found.refused) == (80.0, 90.0)


def test_load_with_more_beyond_the_limit_than_a_higher_one_is_probed_again() -> None:
    probes = [_probe(load, share) for load, share in {50.0: 0.0, 90.0: 0.08, 100.0: 0.002, 110.0: 0.002}.items()]

    again = next_probe(probes, _GOAL, 50.0, 100_000)

    assert bracket(probes, _GOAL).shape is Shape.NOT_MONOTONE
    assert again is not None
    assert again.load == 90.0
    assert next_probe([*probes, probes[1], probes[1]], _GOAL, 50.0, 100_000) is None
    assert bracket([*probes, *[_probe(90.0, 0.0)] * 2], _GOAL).shape is not Shape.NOT_MONOTONE


def test_nothing_is_known_without_a_probe() -> None:
    found = bracket([], _GOAL)

    assert (found.shape, found.certified, found.refused, found.binding) == (Shape.UNKNOWN, None, None, None)


def test_few_requests_of_a_sweep_certify_and_refuse_what_is_clear() -> None:
    found = bracket([_probe(10.0, 0.0), _probe(20.0, 0.001), _probe(40.0, 0.4)], _GOAL)

    assert (found.certified, found.refused) == (20.0, 40.0)


def test_probe_without_a_request_is_no_evidence() -> None:
    empty = Probe(10.0, 0, (Violations(0, 0, None),))

    assert bracket([empty], _GOAL).certified is None
    assert _ends(bracket([*_crossing(), empty], _GOAL)) == _ends(bracket(_crossing(), _GOAL))


def test_search_ends_near_the_crossing() -> None:
    found = bracket(_drawn(_rising), _GOAL)

    assert found.ratio is not None
    assert found.ratio <= 1.2
    assert found.certified is not None
    assert found.refused is not None
    assert found.certified < 100.0 < found.refused


def test_search_of_a_cliff_ends_at_it() -> None:
    found = bracket(_drawn(lambda _: 0.0), _GOAL)

    assert found.shape is Shape.CLIFF
    assert found.certified is not None
    assert found.refused is not None
    assert found.certified < 150.0 <= found.refused <= 1.2 * found.certified


def test_search_gives_up_where_every_load_exceeds_the_limit() -> None:
    probes = _drawn(lambda _: 0.5)

    assert bracket(probes, _GOAL).shape is Shape.NEVER_HELD
    assert len(probes) < 20


def test_search_gives_up_where_every_load_holds() -> None:
    probes: list[Probe] = []
    while (asked := next_probe(probes, _GOAL, 30.0, 200_000)) is not None:
        probes.append(_probe(asked.load, 0.0, n=asked.requests))
        assert len(probes) < 20

    assert bracket(probes, _GOAL).certified == max(probe.load for probe in probes)


def test_search_of_users_asks_for_whole_numbers_and_ends_at_neighbours() -> None:
    goal, probes = replace(_GOAL, step=1.0), list[Probe]()
    while (asked := next_probe(probes, goal, 1.0, 200_000)) is not None:
        assert asked.load == round(asked.load) >= 1.0
        probes.append(_probe(asked.load, min(1.0, _rising(asked.load, crossing=3.4)), n=asked.requests))
        assert len(probes) < 40

    found = bracket(probes, goal)
    assert (found.certified, found.refused) == (3.0, 4.0)
    assert found.more_requests == 0


def test_search_of_users_ends_where_one_is_too_many() -> None:
    goal, probes = replace(_GOAL, step=1.0), list[Probe]()
    while (asked := next_probe(probes, goal, 4.0, 200_000)) is not None:
        probes.append(_probe(asked.load, 0.5, n=asked.requests))
        assert len(probes) < 20

    found = bracket(probes, goal)
    assert (found.certified, found.refused, found.shape) == (None, 1.0, Shape.NEVER_HELD)


def test_search_leaves_a_load_at_which_the_queue_grew() -> None:
    short_and_lucky = [_probe(40.0, 0.0, n=900), _probe(64.0, 0.0, n=900), _probe(102.0, 0.04, n=900)]

    asked = next_probe([*short_and_lucky, *map(_overloaded, (99.7, 101.0))], _GOAL, 40.0, 100_000)

    assert asked is not None
    assert asked.load < 99.0


def test_search_starts_at_the_first_load_and_ends_with_its_budget() -> None:
    asked = next_probe([], _GOAL, 42.0, 60_000)

    assert asked is not None
    assert asked.load == 42.0
    assert next_probe([], _GOAL, 42.0, 50) is None
    assert sum(probe.requests for probe in _drawn(_rising, most=20_000)) <= 20_000


def test_search_that_was_cut_short_goes_on_as_it_would_have() -> None:
    whole = _drawn(_rising)
    spent = sum(probe.requests for probe in whole[:6])

    asked = next_probe(whole[:6], _GOAL, 30.0, 200_000 - spent)

    assert asked is not None
    assert asked.load == whole[6].load


def _ends(found: Bracket) -> list[float]:
    return [end for end in (found.certified, found.refused, found.estimate) if end is not None]
