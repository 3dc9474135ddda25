"""Tests of the requests beyond a limit."""

from __future__ import annotations

import numpy as np

from reports.capacity.violations import stalled, violations


def test_failed_requests_are_beyond_every_limit() -> None:
    values_ms = np.full(200, 10.0)
    values_ms[::50] = np.inf

    found = violations(values_ms, 20.0, 0.01)

    assert (found.n, found.above, found.share) == (200, 4, 0.02)


def test_requests_that_come_together_have_a_larger_effect() -> None:
    rng = np.random.default_rng(5)
    apart = rng.exponential(1.0, 20_000)
    together = np.repeat(rng.exponential(1.0, 400), 50)

    found = violations(apart, 4.6, 0.01).effect, violations(together, 4.6, 0.01).effect

    assert found[0] is not None and found[1] is not None  # noqa: PT018
    assert found[0] < 3.0
    assert found[1] > 15.0


def test_conversations_of_their_own_speed_have_a_larger_effect() -> None:
    rng = np.random.default_rng(5)
    groups = rng.integers(0, 20, 5_000)
    values_ms = rng.exponential(1.0, 5_000) * np.where(groups == 3, 3.0, 1.0)

    alone, grouped = violations(values_ms, 6.0, 0.02).effect, violations(values_ms, 6.0, 0.02, groups).effect

    assert alone is not None and grouped is not None  # noqa: PT018
    assert grouped > 2.0 * alone


def test_few_requests_show_no_effect() -> None:
    assert violations(np.arange(99.0), 50.0, 0.01).effect is None
    assert violations(np.array([]), 50.0, 0.01).n == 0


def test_target_that_answers_nothing_for_longer_than_the_limit_while_requests_wait_has_stalled() -> None:
    due_ns = np.arange(400) * 10e6
    held_until_ns = np.where((due_ns > 1e9) & (due_ns < 1.6e9), 1.6e9, due_ns)

    assert stalled(due_ns, held_until_ns + 50e6, 500.0)
    assert not stalled(due_ns, held_until_ns + 50e6, 700.0)
    assert not stalled(due_ns, due_ns * 1.5 + 50e6, 500.0), "a queue that grows is answered later and later, and all the time"


def test_target_that_is_too_slow_for_the_limit_has_not_stalled() -> None:
    due_ns = np.arange(50) * 50e6

    assert not stalled(due_ns, due_ns + 20e6, 1.0)


def test_target_without_requests_has_not_stalled() -> None:
    due_ns = np.array([0.0, 5e9, 5.01e9])

    assert not stalled(due_ns, due_ns + 20e6, 500.0)
    assert not stalled(np.array([]), np.array([]), 500.0)
