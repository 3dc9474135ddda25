"""Planned cancellations: their spelling, and the draw of the requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals.processes import Exponential
from workloads.elements.errors import WorkloadError
from workloads.elements.request import CancelPoint, Request
from workloads.schedule.cancellations import Cancellation, parse_cancellation, with_cancellations
from workloads.schedule.schedule import Schedule, make_schedule

_POINTS = st.builds(CancelPoint, after_ns=st.integers(1, 10**15)) | st.builds(
    CancelPoint, st.none(), st.integers(1, 10_000_000)
)
_CANCELLATIONS = st.builds(Cancellation, st.floats(1e-6, 99.9) | st.integers(1, 99).map(float), _POINTS)


def _schedule(count: int) -> Schedule:
    return make_schedule([Request(5, prompt=f"p{number}") for number in range(count)], Exponential(10.0), 3)


@given(_CANCELLATIONS)
def test_cancellations_read_what_they_print(cancellation: Cancellation) -> None:
    assert parse_cancellation(str(cancellation)) == cancellation
    assert str(parse_cancellation(str(cancellation))) == str(cancellation)


@given(st.text(max_size=30))
def test_any_other_text_is_an_error_that_names_the_option(text: str) -> None:
    problem = ""
    try:
        parse_cancellation(text)
    except WorkloadError as error:
        problem = str(error)
    assert problem == "" or problem.startswith("cancel ")


def test_units_of_time_and_tokens_are_read() -> None:
    assert parse_cancellation("5%:after=500ms") == Cancellation(5.0, CancelPoint(after_ns=500_000_000))
    assert parse_cancellation("5 % : after = 1 token") == Cancellation(5.0, CancelPoint(after_tokens=1))


def test_the_longest_time_and_the_most_tokens_are_read() -> None:
    assert parse_cancellation("5%:after=1000000s") == Cancellation(5.0, CancelPoint(after_ns=10**15))
    assert parse_cancellation("5%:after=10000000tokens") == Cancellation(5.0, CancelPoint(after_tokens=10_000_000))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5%", "it needs its 'after'"),
        *((f"{share}:after=2s", f"{share!r} is not a share above 0% and below 100%")
          for share in ("5", "55", "0%", "100%", "-5%", "nan%", "5s%")),
        *((f"5%:after={after}", f"{after!r} is neither a time with its unit nor a number of tokens")
          for after in ("2", "2.5", "2.5tokens", "2=3s", "-1s")),
        *((f"5%:after={after}", "the time must be above 0 s, and at most 1,000,000 s")
          for after in ("0s", "0.4e-9s", "1000000.1s", "1e300h")),
        *((f"5%:after={count}tokens", "the tokens must be from 1 to 10,000,000") for count in (0, 10_000_001)),
        ("5%:after=2s,after=3s", "'after' is given twice"),
        ("5%:before=2s", "there is no 'before'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        parse_cancellation(text)
    assert str(refused.value) == f"cancel {text}: {problem}; write 5%:after=2s or 5%:after=20tokens"


@given(st.integers(0, 2**32), st.floats(1.0, 99.0))
def test_about_the_share_is_cancelled_and_nothing_else_changes(seed: int, percent: float) -> None:
    plain = _schedule(2_000)
    planned = with_cancellations(plain, Cancellation(percent, CancelPoint(after_tokens=3)), seed)
    chosen = sum(request.cancel is not None for request in planned.requests)
    share = percent / 100
    assert abs(chosen - 2_000 * share) <= 6 * np.sqrt(2_000 * share * (1 - share)) + 1
    assert replace(planned, requests=tuple(replace(request, cancel=None) for request in planned.requests)) == plain


def test_a_larger_share_adds_to_the_requests_of_a_smaller_one_and_a_longer_run_to_those_of_a_shorter() -> None:
    def chosen(percent: float, count: int) -> set[int]:
        planned = with_cancellations(_schedule(count), Cancellation(percent, CancelPoint(after_tokens=3)), 7)
        return {number for number, request in enumerate(planned.requests) if request.cancel is not None}

    assert chosen(5.0, 1_000) < chosen(10.0, 1_000)
    assert chosen(5.0, 1_000) == {number for number in chosen(5.0, 2_000) if number < 1_000}
