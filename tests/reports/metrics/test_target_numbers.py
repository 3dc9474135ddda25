"""The numbers of each of several servers: its own requests alone, and latencies without the intervals that it cannot have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bench_records.manifest import Manifest, manifest_of
from bench_records.record import Outcome, Record
from reports.metrics.full_batch import FullBatch
from reports.metrics.requests import Requests
from reports.metrics.target_numbers import CountedByServer, target_numbers
from reports.statistics.estimate import Cause
from reports.statistics.percentiles import Distribution
from tests.reports.findings.runs import withdrawn
from tests.reports.watched import statistics

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _manifest(*targets: dict[str, Any], decoupled: bool = False) -> Manifest:
    return manifest_of({"targets": list(targets), "target": {"model": "core", "decoupled": decoupled}})


_TWO = _manifest({"address": "a:1"}, {"address": "b:1"})


def test_each_target_has_the_numbers_of_its_own_requests(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """The first has three answers of 30, 40 and 50 ms, one that was cancelled after 59 ms, with one of its two tokens, and two
    failures, of which one timed out after 400 ms.
    """
    ends = (30, 40, 50, 60)
    own = [answered(k, 100 * k, 100 * k + 5, [(100 * k + 20, 1), (100 * k + end, 2)], target=0) for k, end in enumerate(ends)]
    own[3] = withdrawn(own[3], tokens=1)
    own.append(failed(4, 400, Outcome.SERVER_ERROR, 400, 401, target=0))
    own.append(failed(5, 500, Outcome.TIMEOUT, 500, 900, target=0))
    other = answered(6, 600, 600, [(601, 7)], target=1)
    first, second = target_numbers(make_requests([*own, other]), _TWO, {}, streaming=True)
    assert (first.number, first.address, second.number, second.address) == (0, "a:1", 1, "b:1")
    assert (first.sent, first.done, first.withdrawn, first.failed) == (6, 3, 1, 2)
    assert first.failed_by_kind == {"server_error": 1, "timeout": 1}
    assert first.output_tokens == 10.0
    assert first.ttft_ms is not None
    assert first.e2e_ms is not None
    assert (first.ttft_ms.n, first.ttft_ms.p50, first.e2e_ms.n, first.e2e_ms.mean.lower_bound) == (4, 20.0, 3, 115.8)
    assert first.counted == CountedByServer(None, None, None)
    assert (second.sent, second.done, second.withdrawn, second.failed, second.failed_by_kind) == (1, 1, 0, 0, {})
    assert second.output_tokens == 7.0
    assert second.e2e_ms is not None
    assert second.e2e_ms.max == 1.0


def test_a_target_without_an_address_has_its_number(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, k, k, [(k + 5, 1)], target=k) for k in range(2)])
    found = target_numbers(requests, _manifest({}, {"address": "b:1"}), {}, streaming=True)
    assert [numbers.address for numbers in found] == ["target 0", "b:1"]
    assert target_numbers(requests, manifest_of({}), {}, streaming=True) == ()


def test_an_unstreamed_run_has_no_first_tokens_of_any_target(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, k, k, [(k + 5, 2)], target=k % 2) for k in range(4)])
    for numbers in target_numbers(requests, _TWO, {}, streaming=False):
        assert numbers.ttft_ms is None
        assert numbers.e2e_ms is not None
        assert numbers.e2e_ms.p50 == 5.0


def test_output_of_a_target_is_unknown_where_that_of_an_answer_is(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """A failure without tokens has no output. One that broke off after a token has."""
    records = [answered(0, 0, 0, [(5, 3)], target=0), failed(1, 10, Outcome.SERVER_ERROR, 10, 11, target=0)]
    first, _ = target_numbers(make_requests(records), _TWO, {}, streaming=True)
    assert first.output_tokens == 3.0
    cut = failed(2, 20, Outcome.STREAM_CUT, 20, 30, target=0, token_times_ns=(25_000_000,))
    first, _ = target_numbers(make_requests([*records, cut]), _TWO, {}, streaming=True)
    assert first.output_tokens is None


def test_a_target_that_counted_no_request_of_the_run_has_a_count_of_0(make_requests: MakeRequests, answered: Make) -> None:
    idle = {"server_statistics": {"before": statistics(core=(10, 2.0)), "after": statistics(core=(10, 2.0))}}
    anew = {"server_statistics": {"before": statistics(core=(10, 2.0)), "after": statistics(core=(9, 2.0))}}
    requests = make_requests([answered(0, 0, 0, [(5, 1)], target=0)])
    found = target_numbers(requests, _manifest(idle, anew), {}, streaming=True)
    assert [numbers.counted for numbers in found] == [CountedByServer(0, 0, None), CountedByServer(None, None, None)]


@pytest.mark.parametrize("decoupled", [False, True])
def test_requests_that_failed_are_known_of_a_model_that_is_not_decoupled(
    make_requests: MakeRequests, answered: Make, decoupled: bool
) -> None:
    after = statistics(core=(40, 2.0))
    after["core"]["fail"]["count"] = 3
    counted = {"address": "a:1", "server_statistics": {"before": statistics(core=(10, 2.0)), "after": after}}
    requests = make_requests([answered(0, 0, 0, [(5, 1)], target=0)])
    first, second = target_numbers(requests, _manifest(counted, {"address": "b:1"}, decoupled=decoupled), {}, streaming=True)
    assert first.counted == CountedByServer(33, None if decoupled else 3, None)
    assert second.counted == CountedByServer(None, None, None)


def _crowds(answered: Make, target: int) -> list[Record]:
    """700 requests in ten crowds."""
    waits = np.random.default_rng(2).normal(300.0, 60.0, 700)
    return [
        answered(2 * k + target, due, due, [(due + wait, 1), (due + wait + 10, 1)], target=target)
        for k, wait in enumerate(waits.tolist())
        for due in [100_000.0 * (k // 70) + k % 70]
    ]


def _evenly(answered: Make, target: int, count: int) -> list[Record]:
    waits = np.random.default_rng(3).normal(300.0, 60.0, count)
    return [
        answered(2 * k + target, due, due, [(due + wait, 1), (due + wait + 10, 1)], target=target)
        for k, wait in enumerate(waits.tolist())
        for due in [1_000.0 * k]
    ]


def test_latencies_of_the_target_with_clustered_arrivals_have_no_interval(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([*_crowds(answered, 0), *_evenly(answered, 1, 700)])
    crowded, even = target_numbers(requests, _TWO, {}, streaming=True)
    for numbers, reason in ((crowded, Cause.CLUSTERED_ARRIVALS), (even, None)):
        for latency in (numbers.ttft_ms, numbers.e2e_ms):
            assert latency is not None
            assert latency.percentile(0.5).reason == reason


def test_a_batch_that_is_full_too_rarely_leaves_the_tails_of_each_target_without_an_upper_limit(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests([*_evenly(answered, 0, 1_000), *_evenly(answered, 1, 1_000)])
    batch = FullBatch(answers=2_000, largest=8, waited=0, spells=0, limit=8, near_limit=True)

    def tails(batch: FullBatch | None) -> list[tuple[bool, Any]]:
        found: list[Distribution | None] = []
        for numbers in target_numbers(requests, _TWO, {}, streaming=True, batch=batch):
            found += [numbers.ttft_ms, numbers.e2e_ms]
        p99 = [latency.percentile(0.99) for latency in found if latency is not None]
        return [(estimate.interval is None, estimate.reason) for estimate in p99]

    assert tails(None) == [(False, None)] * 4
    assert tails(batch) == [(True, Cause.FEW_QUEUES)] * 4
