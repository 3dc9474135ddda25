"""Tests of whether a target keeps up with a load."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from reports.capacity.stability import falls_behind, keeps_up, likely_falls_behind, none_at_capacity
from reports.metrics.in_flight import QueueCourse

_TAIL = 0.01
_PARTS, _STEPS, _BEGINNING = 12, 3_000, 600


def _queues(paths: int, seed: int) -> NDArray[np.float64]:
    """Reflected Brownian motions, as the number in the system is at capacity, shape [paths, steps]."""
    walks = np.cumsum(np.random.default_rng(seed).normal(size=(paths, _STEPS)), axis=1)
    return walks - np.minimum.accumulate(np.minimum(walks, 0.0), axis=1)


@pytest.fixture(scope="module")
def longest_queues() -> NDArray[np.float64]:
    """The longest of each of 4,000 paths."""
    longest: NDArray[np.float64] = _queues(4_000, 3).max(axis=1)
    return longest


@pytest.fixture(scope="module")
def at_capacity() -> list[QueueCourse]:
    """The courses of 6,000 paths."""
    paths = 6_000
    queues = _queues(paths, 5)
    parts = queues[:, _BEGINNING:].reshape(paths, _PARTS, -1).mean(axis=2) / np.sqrt(_STEPS - _BEGINNING)
    growths = parts[:, -4:].mean(axis=1) - parts[:, :-4].min(axis=1)
    spreads = np.ptp(parts, axis=1)
    return [QueueCourse(float(growth), float(spread), 50.0) for growth, spread in zip(growths, spreads, strict=True)]


@pytest.mark.parametrize("probes", [1, 2, 5, 12])
def test_at_capacity_each_test_is_wrong_as_often_as_it_may_be(at_capacity: list[QueueCourse], probes: int) -> None:
    groups = [at_capacity[k : k + probes] for k in range(0, len(at_capacity) - probes + 1, probes)]
    allowed = 3.0 * np.sqrt(_TAIL / len(groups)) + _TAIL

    for is_wrong in (keeps_up, falls_behind):
        assert np.mean([is_wrong(group, _TAIL) for group in groups]) <= allowed
        assert np.mean([is_wrong(group, 0.2) for group in groups]) == pytest.approx(0.2, abs=0.05)


def test_steady_queues_keep_up_and_growing_ones_fall_behind() -> None:
    steady, growing = [QueueCourse(0.03, 0.15, 50.0)], [QueueCourse(3.0, 3.2, 50.0)]

    assert keeps_up(steady, _TAIL)
    assert not falls_behind(steady, _TAIL)
    assert falls_behind(growing, _TAIL)
    assert not keeps_up(growing, _TAIL)


def test_no_probe_shows_nothing() -> None:
    assert not keeps_up([], 0.5)
    assert not falls_behind([], 0.5)
    assert not likely_falls_behind([])


def test_three_unsteady_probes_are_likely_too_much() -> None:
    unsteady = [QueueCourse(0.1, 0.9, 50.0)] * 3

    assert likely_falls_behind(unsteady)
    assert not likely_falls_behind(unsteady[:2])
    assert not likely_falls_behind([QueueCourse(0.1, 0.3, 50.0)] * 3)


@pytest.mark.parametrize("level", [0.4, 0.7, 1.0, 1.5])
def test_no_queue_of_that_length_is_as_likely_at_capacity_as_paths_say(
    longest_queues: NDArray[np.float64], level: float
) -> None:
    seen = float((longest_queues < level * np.sqrt(_STEPS)).mean())

    assert none_at_capacity(level * 50.0, QueueCourse(0.0, 0.0, 50.0)) == pytest.approx(seen, abs=0.04)


def test_a_limit_or_a_course_that_is_unknown_shows_nothing() -> None:
    assert none_at_capacity(None, QueueCourse(0.0, 0.0, 50.0)) == 1.0
    assert none_at_capacity(10.0, None) == 1.0
