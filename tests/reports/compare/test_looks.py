"""Looks at an experiment: what they cost, and that they find what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.compare.looks import FIRST_LOOK, Looks, weighted_holm
from reports.compare.spread import Evidence, Spread
from reports.statistics.probability import student_tail_of

_EXPERIMENTS = 20_000


def _called(looks: Looks, shift: float) -> float:
    """The share of experiments with a significant look; ``shift`` is in standard deviations of a block's difference."""
    blocks = np.random.default_rng(7).standard_normal((_EXPERIMENTS, looks.most)) + shift
    called = np.zeros(_EXPERIMENTS, dtype=np.bool_)
    for count in range(FIRST_LOOK, looks.most + 1):
        so_far = blocks[:, :count]
        t = np.abs(so_far.mean(axis=1)) / (so_far.std(axis=1, ddof=1) / math.sqrt(count))
        called |= 2.0 * student_tail_of(t, count - 1.0) < looks.level(count, 0.05)
    return float(called.mean())


@pytest.mark.parametrize("most", [3, 10])
def test_equal_servers_are_called_different_in_5_percent_of_experiments_however_often_one_looks(most: int) -> None:
    assert _called(Looks(most), 0.0) == pytest.approx(0.05, abs=0.006)


def test_a_large_difference_is_found_by_few_blocks() -> None:
    assert _called(Looks(3), 4.5) > 0.9
    assert _called(Looks(10), 2.0) > 0.95


@pytest.mark.parametrize("block", [3, 6, 10])
def test_the_repeated_p_value_is_the_level_at_which_a_look_would_just_call(block: int) -> None:
    looks = Looks(10)
    for together in (0.003, 0.015, 0.02, 0.05, 0.17, 0.35):
        assert looks.together(block, looks.level(block, together)) == pytest.approx(together)
    values = [looks.together(block, own) for own in np.geomspace(1e-9, 1.0, 200)]
    assert values == sorted(values)
    assert all(value >= own for value, own in zip(values, np.geomspace(1e-9, 1.0, 200), strict=True))


def test_small_levels_are_those_that_each_look_adds_by_the_root_of_its_part() -> None:
    """After k of 10 blocks √(k / 10) of the level is spent."""
    looks, parts = Looks(10), {3: math.sqrt(0.3), 4: math.sqrt(0.4) - math.sqrt(0.3), 10: 1.0 - math.sqrt(0.9)}
    for block, part in parts.items():
        assert looks.level(block, 0.004) == pytest.approx(0.004 * part)
        assert looks.together(block, 1e-6) == pytest.approx(1e-6 / part)
    for outside in (2, 11):
        assert (looks.level(outside, 0.05), looks.together(outside, 1e-9)) == (0.0, 1.0)
    assert Looks(3).level(3, 0.05) == pytest.approx(0.05, rel=0.03)  # the only look, from simulated blocks
    assert looks.level(3, 0.05) == pytest.approx(0.05 * math.sqrt(0.3), rel=0.03)
    assert looks.together(3, 0.9) == 0.9


def test_the_levels_of_looks_are_the_same_at_every_call_on_every_machine() -> None:
    """Blocks are simulated with a seed: a comparison that is repeated has the same verdict."""
    assert [Looks(10).level(block, 0.05) for block in (3, 6, 10)] == pytest.approx([0.0267734315, 0.0074644918, 0.0083103431])


def test_intervals_and_p_values_pay_for_the_looks_and_fewer_than_three_blocks_show_nothing() -> None:
    spread = Spread(0.1, 0.01, 4.0, Evidence.RUN_PAIRS)
    looked = Looks(10).at(spread, 5)
    assert looked.p_value > spread.p_value
    assert looked.interval(0.95)[0] < spread.interval(0.95)[0]
    assert looked.smallest_shown(0.05) > spread.smallest_shown(0.05)
    two = Looks(10).at(Spread(0.1, 1e-9, 1.0, Evidence.RUN_PAIRS), 2)
    assert (two.p_value, two.interval(0.95)) == (1.0, (-math.inf, math.inf))


def test_the_measure_that_decides_has_most_of_the_error() -> None:
    errors = {"p50_ttft": 0.1, "p99_ttft": math.inf, "p99_e2e": 0.2}
    assert Looks(10).weights(errors) == pytest.approx({"p50_ttft": 0.1, "p99_ttft": 0.1, "p99_e2e": 0.8})
    assert Looks(10).weights({"p50_ttft": 0.1, "p99_e2e": 0.2}) == pytest.approx({"p50_ttft": 0.2, "p99_e2e": 0.8})
    assert Looks(10).weights({"p99_e2e": 0.2}) == {"p99_e2e": 1.0}
    assert Looks(10, "p50_ttft").deciding(errors) == "p50_ttft"
    assert Looks(10, "p99_ttft").deciding(errors) is None
    assert Looks(10).deciding({"p99_e2e": 0.0, "p50_e2e": 0.1, "p99_ttft": 0.0}) == "p50_e2e"
    assert Looks(10, "p99_ttft").weights({"p50_ttft": 1.0, "p50_e2e": 1.0}) == {"p50_ttft": 0.5, "p50_e2e": 0.5}
    assert weighted_holm([0.03, 0.001], [0.8, 0.2]) == pytest.approx([0.03, 0.005])
    assert weighted_holm([0.03, 0.02], [0.8, 0.2]) == pytest.approx([0.0375, 0.0375])
