"""The values of a run that a limit on a share counts, of eight requests that are written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.criteria import parse_slo
from reports.gates.samples import failure_sample, groups_of, latency_sample, latency_sample_of_all, severity_sample
from reports.gates.shares import ShareOfRun
from reports.metrics.catalogue import E2E, ITL, TPOT, TTFT
from reports.metrics.goodput import Objective
from reports.metrics.in_flight import QueueGrowth
from reports.metrics.requests import Requests
from tests.reports.gates.gating import Make

_INF = math.inf


@pytest.fixture(scope="module")
def requests(make_requests: Callable[[Sequence[Record]], Requests], answered: Make, failed: Make) -> Requests:
    """All due at 0: three successes, two that failed, two that were cut off, and one that was never sent."""

    def lost(index: int, outcome: Outcome, asked: int, first_ms: int | None, session: str | None) -> Record:
        times_ns = () if first_ms is None else (first_ms * 1_000_000,)
        return failed(index, 0, outcome, 0, 1_050, requested_output_tokens=asked, token_times_ns=times_ns, session=session)

    return make_requests(
        [
            answered(0, 0, 5, [(50, 1), (60, 1), (90, 1)], session="a"),
            answered(1, 0, 0, [(70, 1)], session="b"),  # one token, which has no time per token
            answered(2, 0, 0, [], session="a"),
            lost(3, Outcome.REFUSED, 2, None, "b"),
            lost(4, Outcome.SERVER_ERROR, 1, 40, None),
            lost(5, Outcome.WITHDRAWN, 5, 50, "b"),
            lost(6, Outcome.WITHDRAWN, 5, None, "a"),
            failed(7, 0, Outcome.NOT_SENT, session="a"),
        ]
    )


def _shown(sample: ShareOfRun) -> tuple[list[float], list[float], list[int] | None]:
    return sample.least.tolist(), sample.most.tolist(), None if sample.groups is None else sample.groups.tolist()


def test_latencies_of_all_that_count_with_their_conversations(requests: Requests) -> None:
    a, b, _, *_ = requests.session_of.tolist()
    assert _shown(latency_sample(TTFT, requests)) == (
        [50.0, 70.0, _INF, _INF, 50.0, 1_050.0],
        [50.0, 70.0, _INF, _INF, 50.0, _INF],
        [a, b, b, -1, b, a],
    )
    assert _shown(latency_sample(E2E, requests)) == (
        [90.0, 70.0, _INF, _INF, 1_050.0, 1_050.0],
        [90.0, 70.0, _INF, _INF, _INF, _INF],
        [a, b, b, -1, b, a],
    )


def test_times_per_token_also_of_those_that_were_to_have_several(requests: Requests) -> None:
    """One had a token 1,000 ms before it was cut off, with which four more would have taken 250 ms each at least."""
    assert _shown(latency_sample(TPOT, requests)) == ([20.0, _INF, 250.0, 0.0], [20.0, _INF, _INF, _INF], None)


def test_times_per_token_of_requests_that_were_cut_off_are_at_least_those_of_all_requested_tokens(
    make_requests: Callable[[Sequence[Record]], Requests], failed: Make
) -> None:
    """All had a token after 50 ms and were cut off after 1,050 ms; 2 tokens were requested, 3, and one."""
    records = [
        failed(k, 0, Outcome.WITHDRAWN, 0, 1_050, requested_output_tokens=asked, token_times_ns=(50_000_000,))
        for k, asked in enumerate((2, 3, 1))
    ]
    assert _shown(latency_sample(TPOT, make_requests(records))) == ([1_000.0, 500.0], [_INF, _INF], None)


def test_an_answer_without_a_token_may_be_slower_than_every_limit(requests: Requests) -> None:
    a, b, _, *_ = requests.session_of.tolist()
    assert _shown(latency_sample_of_all(TTFT, requests)) == (
        [50.0, 70.0, _INF, _INF, _INF, 50.0, 1_050.0],
        [50.0, 70.0, _INF, _INF, _INF, 50.0, _INF],
        [a, b, a, b, -1, b, a],
    )
    assert _shown(latency_sample_of_all(E2E, requests)) == (
        [90.0, 70.0, _INF, _INF, _INF, 1_050.0, 1_050.0],
        [90.0, 70.0, _INF, _INF, _INF, _INF, _INF],
        [a, b, a, b, -1, b, a],
    )
    assert _shown(latency_sample_of_all(TPOT, requests)) == _shown(latency_sample(TPOT, requests))


def test_gaps_between_tokens_belong_to_no_conversation(requests: Requests) -> None:
    assert groups_of(ITL, requests) is None
    least, most, groups = _shown(latency_sample(ITL, requests))
    assert (sorted(least), sorted(most), groups) == ([10.0, 30.0], [10.0, 30.0], None)


def test_failures_are_beyond_every_latency_of_those_that_ended(requests: Requests) -> None:
    a, b, _, *_ = requests.session_of.tolist()
    ended = [a, b, a, b, -1]
    slow = [50.0, 70.0, 0.0, _INF, _INF]
    assert _shown(failure_sample(requests, None)) == (slow, slow, ended)
    alike = [0.0, 0.0, 0.0, _INF, _INF]
    assert _shown(failure_sample(requests, QueueGrowth(0.0, 9.0, 9, 2.0, 1.0))) == (alike, alike, ended)


@pytest.mark.parametrize(
    ("objectives", "least", "undecided"),
    [
        (("ttft<=100ms",), [0.5, 0.7, _INF, _INF, _INF, 0.5, 10.5], ()),
        (("ttft<=60ms",), [50 / 60, 70 / 60, _INF, _INF, _INF, 50 / 60, 17.5], ()),
        (("e2e<=2s",), [0.045, 0.035, _INF, _INF, _INF, 0.525, 0.525], (5, 6)),
        (("ttft<=100ms", "e2e<=100ms"), [0.9, 0.7, _INF, _INF, _INF, 10.5, 10.5], ()),
        (("ttft<=100ms", "e2e<=2s"), [0.5, 0.7, _INF, _INF, _INF, 0.525, 10.5], (5,)),
    ],
)
def test_how_far_each_request_is_from_its_objectives(
    requests: Requests, objectives: tuple[str, ...], least: list[float], undecided: tuple[int, ...]
) -> None:
    """A request that was cut off beyond a limit missed it; below one it may have met it."""
    each = tuple(criterion for criterion in map(parse_slo, objectives) if isinstance(criterion, Objective))
    sample = severity_sample(requests, each)
    assert sample.least == pytest.approx(np.array(least))
    most = [_INF if place in undecided else value for place, value in enumerate(least)]
    assert sample.most == pytest.approx(np.array(most))
    assert sample.groups is not None
    assert sample.groups.tolist() == requests.session_of.tolist()[:7]
