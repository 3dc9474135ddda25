"""The search for the highest rate, over clients whose limit is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.calibration.ladder import Limit, climb


def _always() -> bool:
    return True


def _times(count: int) -> Callable[[], bool]:
    left = iter([True] * count)
    return lambda: next(left, False)


def _client(limit: float, tried: list[float] | None = None) -> Callable[[float], str | None]:
    def attempt(rate: float) -> str | None:
        if tried is not None:
            tried.append(rate)
        return None if rate <= limit else f"too much at {rate:g}"

    return attempt


@given(st.floats(20, 900_000))
def test_the_limit_is_found_to_within_a_fifth(limit: float) -> None:
    found = climb(_client(limit), first=250, top=1_000_000, has_time=_always)
    assert found.held_per_s is not None
    assert found.failed_per_s is not None
    assert found.held_per_s <= limit < found.failed_per_s <= found.held_per_s * 1.2
    assert found.why == f"too much at {found.failed_per_s:g}"


def test_rates_double_and_then_close_in() -> None:
    tried: list[float] = []
    climb(_client(900, tried), 250, 10_000, _always)
    assert [round(rate) for rate in tried] == [250, 500, 1000, 1000, 707, 841]


def test_a_hiccup_does_not_end_the_climb() -> None:
    failures = iter([None, "hiccup", None, None])
    assert climb(lambda rate: next(failures), 250, 1000, _always) == Limit(1000, None, "nothing higher was tried")


def test_where_nothing_is_held_there_is_no_limit() -> None:
    tried: list[float] = []
    found = climb(_client(1, tried), 160, 1000, _always)
    assert found.held_per_s is None
    assert found.failed_per_s == 10
    assert found.why == "too much at 10"
    assert len(tried) == 10


def test_the_top_is_tried_and_not_passed() -> None:
    tried: list[float] = []
    assert climb(_client(1e9, tried), 300, 1000, _always) == Limit(1000, None, "nothing higher was tried")
    assert tried == [300, 600, 1000]


@pytest.mark.parametrize(
    ("checks", "held", "failed", "why"),
    [
        (0, None, None, "there was no time for more"),
        (1, 250, None, "there was no time for more"),
        (2, 500, None, "there was no time for more"),
        (3, 500, None, "there was no time for a second try (too much at 1000)"),
        (4, 500, 1000, "too much at 1000"),
        (5, 707, 1000, "too much at 1000"),
        (6, 841, 1000, "too much at 1000"),
    ],
)
def test_it_ends_when_its_time_is_up(checks: int, held: float | None, failed: float | None, why: str) -> None:
    found = climb(_client(900), 250, 10_000, _times(checks))
    assert (found.held_per_s and round(found.held_per_s), found.failed_per_s, found.why) == (held, failed, why)


def test_a_failure_that_could_not_be_repeated_is_no_limit() -> None:
    """Else one disturbance of a short calibration says that the client holds no rate at all."""
    found = climb(_client(100), 250, 10_000, _times(1))
    assert (found.held_per_s, found.failed_per_s) == (None, None)
    assert found.why == "there was no time for a second try (too much at 250)"
