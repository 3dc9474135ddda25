"""What a percentile consists of: which requests are around it, their shares, and the percentile without a phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.metric import MeasuredRun
from reports.metrics.phase_shares import (
    FEWEST_AROUND,
    PercentileParts,
    PhaseShare,
    RequestParts,
    chosen_requests,
    latency_parts,
    slowest_requests,
)
from reports.metrics.request_phases import ClientClock, Phase
from reports.metrics.requests import Requests
from reports.statistics.estimate import UNKNOWN, Cause, Estimate, TooFew
from reports.statistics.percentiles import nearest_rank

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _queued(make: Make, queues_ms: Sequence[float], prefill_ms: float = 10.0, gap_ms: float = 1_000.0) -> list[Record]:
    """Requests one each ``gap_ms``, with these waits in the engine's queue, 5 ms of front end and 3 ms of slip."""
    return [
        make(
            k,
            gap_ms * k,
            gap_ms * k + 3,
            [(gap_ms * k + 3 + 5 + queue + prefill_ms, 1)],
            server_queue_ns=_ns(queue),
            server_prefill_ns=_ns(prefill_ms),
        )
        for k, queue in enumerate(queues_ms)
    ]


def _parts(requests: Requests, q: float = 0.99) -> PercentileParts:
    found = latency_parts(MeasuredRun(requests, True), TTFT, ClientClock(), (q,))
    assert found is not None
    return found.percentiles[0]


@pytest.mark.parametrize(
    ("n", "q", "fastest", "around"),
    [
        (10_000, 0.99, 9_850, 100),
        (10_000, 0.50, 4_950, 100),
        (2_000, 0.99, 1_970, 20),
        (1_000, 0.99, 980, 20),  # ten would be too few: the slowest
        (1_000, 0.50, 490, 20),
        (10_000, 0.999, 9_940, 60),  # to one side there are no more
        (2_000, 0.999, 1_980, 20),
        (300, 0.90, 280, 20),
        (300, 0.89, 257, 20),
        (2_100, 0.50, 1_039, 22),
        (25, 0.50, 2, 20),
        (25, 0.99, 5, 20),
        (12, 0.99, 0, 12),
    ],
)
def test_the_requests_around_a_percentile(
    make_requests: MakeRequests, answered: Make, n: int, q: float, fastest: int, around: int
) -> None:
    """The k-th fastest request waited k ms, so the mean wait shows which ones count."""
    parts = _parts(make_requests(_queued(answered, range(n))), q)
    assert (parts.around, parts.n, parts.timed) == (around, n, around)
    assert parts.by_phase[Phase.QUEUE].mean_ms.value == pytest.approx(fastest + (around - 1) / 2)


def test_shares_are_of_the_mean_latency_and_add_up(make_requests: MakeRequests, answered: Make) -> None:
    parts = _parts(make_requests(_queued(answered, [22.0] * 30 + [82.0] * 20)))
    assert parts.value_ms == parts.mean_ms == 100.0
    shares = {share.phase: share.share.value for share in parts.shares}
    assert shares == pytest.approx({Phase.SLIP: 0.03, Phase.QUEUE: 0.82, Phase.PREFILL: 0.10, Phase.UNATTRIBUTED: 0.05})
    assert sum(share.mean_ms.value or 0.0 for share in parts.shares) == pytest.approx(parts.mean_ms)
    assert parts.largest is not None
    assert parts.largest.phase is Phase.QUEUE


def test_the_percentile_without_a_phase_is_that_of_a_run_without_it(make_requests: MakeRequests, answered: Make) -> None:
    """The order of the requests changes with it."""
    rng = np.random.default_rng(3)
    queues = rng.exponential(40.0, 500).tolist()
    prefills = rng.exponential(15.0, 500).tolist()
    records = [
        answered(k, 0, 3, [(8 + queue + prefill, 1)], server_queue_ns=_ns(queue), server_prefill_ns=_ns(prefill))
        for k, (queue, prefill) in enumerate(zip(queues, prefills, strict=True))
    ]
    parts = _parts(make_requests(records))
    without = {share.phase: share.without_ms for share in parts.shares}
    assert without[Phase.QUEUE] == pytest.approx(nearest_rank(np.sort(8 + np.array(prefills)), 0.99), abs=1e-5)
    assert without[Phase.PREFILL] == pytest.approx(nearest_rank(np.sort(8 + np.array(queues)), 0.99), abs=1e-5)
    assert without[Phase.SLIP] == pytest.approx((parts.value_ms or 0.0) - 3.0, abs=1e-5)


def test_the_shares_of_many_requests_around_a_percentile_have_intervals(make_requests: MakeRequests, answered: Make) -> None:
    """100 requests of 10,000 are a series, not spells."""
    queues = np.random.default_rng(8).exponential(100.0, 10_000)
    parts = _parts(make_requests(_queued(answered, queues.tolist())))
    share = parts.by_phase[Phase.QUEUE].share
    around = np.sort(queues)[9_850:9_950]
    assert share.value == pytest.approx(around.mean() / (around.mean() + 18.0))
    assert share.interval is not None
    assert share.interval[0] < (share.value or 0.0) < share.interval[1]


def test_the_interval_of_a_percentile_without_a_phase_covers_the_truth(make_requests: MakeRequests, answered: Make) -> None:
    """Without the queue what is left is the prefill: exponential, so that its median is known."""
    rng, covered = np.random.default_rng(6), []
    for _ in range(100):
        queues, prefills = rng.exponential(40.0, 200), rng.exponential(15.0, 200)
        records = [
            answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + queue + prefill, 1)], server_queue_ns=_ns(queue))
            for k, (queue, prefill) in enumerate(zip(queues, prefills, strict=True))
        ]
        without = _parts(make_requests(records), 0.5).by_phase[Phase.QUEUE].without
        if without.interval is not None:  # one in 100 runs looks as if it drifted
            covered.append(without.interval[0] <= 15.0 * np.log(2.0) <= without.interval[1])
    assert len(covered) >= 90
    assert np.mean(covered) >= 0.88  # of 0.95 expected, with an error of 0.022


def test_a_percentile_without_a_phase_has_the_reason_of_the_percentile_for_no_interval(
    make_requests: MakeRequests, answered: Make
) -> None:
    parts = _parts(make_requests(_queued(answered, np.random.default_rng(2).normal(300.0, 60.0, 200).tolist())))
    assert parts.percentile.reason is not None
    assert parts.by_phase[Phase.QUEUE].without.reason == parts.percentile.reason
    assert parts.by_phase[Phase.QUEUE].without.interval is None


def test_an_interval_covers_the_truth_of_independent_spells(make_requests: MakeRequests, answered: Make) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        records = [
            answered(k, 1e4 * k, 1e4 * k, [(1e4 * k + 1_000 + wait, 1)], server_queue_ns=_ns(wait), server_prefill_ns=0)
            for k, wait in enumerate(rng.normal(100.0, 20.0, FEWEST_AROUND))
        ]
        interval = _parts(make_requests(records)).by_phase[Phase.QUEUE].share.interval
        assert interval is not None
        covered += interval[0] <= 100.0 / 1_100.0 <= interval[1]
    assert covered >= 88  # of 95 expected, with an error of 2.2


def test_the_interval_of_a_mean_is_not_narrower_than_that_of_the_percentile(
    make_requests: MakeRequests, answered: Make
) -> None:
    """The queue is all that differs: around the median it hardly varies, but the median of another run may be elsewhere."""
    parts = _parts(make_requests(_queued(answered, np.random.default_rng(2).normal(300.0, 60.0, 700).tolist())), 0.5)
    of_percentile, of_queue = parts.percentile.interval, parts.by_phase[Phase.QUEUE].mean_ms.interval
    assert of_percentile is not None
    assert of_queue is not None
    assert of_queue[1] - of_queue[0] > 0.9 * (of_percentile[1] - of_percentile[0])


def test_requests_of_one_queue_have_no_interval(make_requests: MakeRequests, answered: Make) -> None:
    """All of them are in flight at once: they hold no more information than one."""
    parts = _parts(make_requests(_queued(answered, range(50), gap_ms=0.1)))
    share = parts.by_phase[Phase.QUEUE]
    assert (share.mean_ms.interval, share.mean_ms.reason) == (None, Cause.FEW_QUEUES)
    assert (share.share.interval, share.share.reason) == (None, Cause.FEW_QUEUES)


def test_fewer_requests_than_spells_are_needed_are_too_few(make_requests: MakeRequests, answered: Make) -> None:
    """One request says nothing about queues."""
    for count in (1, 4, 5):
        share = _parts(make_requests(_queued(answered, range(count)))).by_phase[Phase.QUEUE].share
        assert share.reason == (TooFew(count, 5) if count < 5 else None)
        assert (share.interval is None) is (count < 5)


def test_a_share_that_drifts_over_the_requests_around_a_percentile_has_no_interval(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Each takes 1 µs longer than the one before, so that those around the median are the 100 in the middle of the run."""
    records = [
        answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + 1_000 + 1e-3 * k, 1)], server_queue_ns=_ns(150 + k % 7 + k / 20))
        for k in range(10_000)
    ]
    parts = _parts(make_requests(records), 0.5)
    queue = parts.by_phase[Phase.QUEUE]
    assert (parts.around, queue.share.interval, queue.share.reason) == (100, None, Cause.DRIFTS)
    assert queue.share.value == pytest.approx(0.401, abs=0.003)
    assert queue.mean_ms == Estimate(pytest.approx(403, abs=1), reason=Cause.DRIFTS)


def test_a_percentile_of_clustered_arrivals_has_no_interval_without_a_phase_either(
    make_requests: MakeRequests, answered: Make
) -> None:
    """700 requests in ten crowds: their latencies alone would have an interval."""
    waits = np.random.default_rng(2).normal(300.0, 60.0, 700)
    records = [
        answered(k, due, due, [(due + 20 + wait, 1)], server_queue_ns=_ns(wait), server_prefill_ns=_ns(10 + k % 3))
        for k, wait in enumerate(waits.tolist())
        for due in [100_000.0 * (k // 70) + k % 70]
    ]
    parts = _parts(make_requests(records), 0.5)
    assert parts.percentile.reason is Cause.CLUSTERED_ARRIVALS
    without = parts.by_phase[Phase.PREFILL].without
    assert (without.interval, without.reason) == (None, Cause.CLUSTERED_ARRIVALS)


def test_the_stream_is_a_part_of_the_latency_of_a_streamed_answer(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + 30, 1), (1e3 * k + 70, 1)]) for k in range(5)])
    for streaming, expected in ((True, {Phase.SLIP: 0.0, Phase.STREAM: 40.0, Phase.UNATTRIBUTED: 30.0}), (False, None)):
        found = latency_parts(MeasuredRun(requests, streaming), E2E, ClientClock(), (0.5,))
        assert found is not None
        of_phases = {share.phase: share.mean_ms.value for share in found.percentiles[0].shares}
        assert of_phases == (expected or {Phase.SLIP: 0.0, Phase.UNATTRIBUTED: 70.0})


def test_limits_of_a_share_are_shares(make_requests: MakeRequests, answered: Make) -> None:
    queues = [0.0] * 30 + [2_000.0] + [1.0] * 19
    for share in _parts(make_requests(_queued(answered, queues, gap_ms=10_000.0))).shares:
        assert share.share.interval is not None
        assert 0.0 <= share.share.interval[0] <= share.share.interval[1] <= 1.0


def test_failures_are_slower_than_every_success(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """One in 100 requests failed: p99 is the slowest success, and the failures around it have no parts."""
    records = _queued(answered, range(990))
    lost = [failed(990 + k, 1e6 + k, Outcome.SERVER_ERROR, 1e6 + k, 1e6 + k + 1) for k in range(10)]
    parts = _parts(make_requests([*records, *lost]))
    assert (parts.n, parts.around, parts.left_out) == (1_000, 10, 10)
    assert parts.value_ms == pytest.approx(989 + 18)
    more = [failed(1_000 + k, 2e6 + k, Outcome.SERVER_ERROR, 2e6 + k, 2e6 + k + 1) for k in range(5)]
    beyond = _parts(make_requests([*records, *lost, *more]))
    assert beyond.value_ms is None
    assert all(share.without_ms is None for share in beyond.shares)


def test_what_a_run_does_not_have_has_no_parts(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    unstreamed = MeasuredRun(make_requests([answered(0, 0, 0, [(5, 1)])]), False)
    assert latency_parts(unstreamed, TTFT, ClientClock(), (0.99,)) is None
    for records in ([failed(0, 0, Outcome.REFUSED, 0, 1)], []):
        assert latency_parts(MeasuredRun(make_requests(records), True), E2E, ClientClock(), (0.99,)) is None


def test_a_phase_that_is_longer_than_its_latency_leaves_nothing_of_it(make_requests: MakeRequests, answered: Make) -> None:
    """A server that gives us for ms, for example: no percentile is below 0."""
    records = [answered(k, 1_000 * k, 1_000 * k, [(1_000 * k + 100, 1)], server_queue_ns=_ns(300)) for k in range(40)]
    parts = _parts(make_requests(records))
    assert (parts.contradicted, parts.contradiction_ms) == (parts.around, pytest.approx(-200.0))
    assert parts.by_phase[Phase.QUEUE].without_ms == 0.0


def test_contradictions_are_counted_and_in_no_share(make_requests: MakeRequests, answered: Make) -> None:
    records = _queued(answered, [10.0] * 40)
    records[7] = answered(7, 7_000, 7_000, [(7_100, 1)], server_queue_ns=_ns(300), server_prefill_ns=0)
    parts = _parts(make_requests(records))
    assert (parts.contradicted, parts.contradiction_ms) == (1, pytest.approx(-200 / 20))
    together = sum(share.mean_ms.value or 0.0 for share in parts.shares) + parts.contradiction_ms
    assert together == pytest.approx(parts.mean_ms)


def test_every_number_of_a_percentile_s_parts(make_requests: MakeRequests, answered: Make) -> None:
    """All take 100 ms, of which the engine's queue has 40 or 60: its 20 values around the median have the variance n/(n-1)
    times 10 ms squared, and t(0.975) with 19 degrees of freedom is 2.093.
    """
    records = [
        answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + 100, 1)], server_queue_ns=_ns(40 + 20 * (k % 2)), server_prefill_ns=0)
        for k in range(40)
    ]
    percentile, half = Estimate(100.0, reason=TooFew(40, 100)), 2.0930240544 * 0.1 / 19**0.5
    queue = Estimate(0.5, (pytest.approx(0.5 - half), pytest.approx(0.5 + half)))
    half_of_it = Estimate(50.0, reason=TooFew(40, 100))
    without = Estimate(40.0, reason=TooFew(40, 100))
    none = Estimate(0.0, (0.0, 0.0))
    no_time = Estimate(0.0, reason=TooFew(40, 100))
    assert _parts(make_requests(records), 0.5) == PercentileParts(
        q=0.5,
        percentile=percentile,
        n=40,
        around=20,
        left_out=0,
        mean_ms=100.0,
        shares=(
            PhaseShare(Phase.SLIP, no_time, none, percentile),
            PhaseShare(Phase.QUEUE, half_of_it, queue, without),
            PhaseShare(Phase.PREFILL, no_time, none, percentile),
            PhaseShare(Phase.UNATTRIBUTED, half_of_it, queue, without),
        ),
        contradiction_ms=0.0,
        contradicted=0,
        timed=20,
        clock_error_ms=None,
    )


@pytest.mark.parametrize("is_steady", [True, False], ids=["equal latencies", "equal shares"])
def test_the_mean_of_a_phase_is_as_uncertain_as_its_share_and_as_the_percentile(
    make_requests: MakeRequests, answered: Make, is_steady: bool
) -> None:
    """With equal latencies the share alone is uncertain, with equal shares the percentile alone."""
    rng = np.random.default_rng(4)
    records = []
    for k in range(900):
        latency = 200.0 if is_steady else 1_000.0 * round(rng.uniform(0.1, 0.3), 3)
        queue = rng.uniform(10.0, 190.0) if is_steady else latency / 4
        records.append(answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + latency, 1)], server_queue_ns=_ns(queue)))
    parts = _parts(make_requests(records), 0.5)
    queue = parts.by_phase[Phase.QUEUE]
    assert parts.value_ms is not None
    assert parts.percentile.interval is not None
    assert queue.share.interval is not None
    assert queue.mean_ms.value is not None
    of_share = [200.0 * limit for limit in queue.share.interval]
    of_percentile = [queue.mean_ms.value * limit / parts.value_ms for limit in parts.percentile.interval]
    assert queue.mean_ms.interval == pytest.approx(of_share if is_steady else of_percentile)
    assert queue.mean_ms.reason is None
    assert parts.by_phase[Phase.SLIP].mean_ms == Estimate(0.0, (0.0, 0.0))
    together = {True: parts.percentile.interval, False: queue.share.interval}[is_steady]
    assert together[1] == pytest.approx(together[0])


def test_a_quantile_that_no_report_names_has_a_value_and_no_interval(make_requests: MakeRequests, answered: Make) -> None:
    parts = _parts(make_requests(_queued(answered, range(200))), 0.7)
    assert parts.percentile == Estimate(139 + 18.0)


def test_requests_that_were_cut_off_bound_a_percentile(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """The last four of 40 were cancelled before their first token, after 30 ms; the others took 18 to 53 ms."""
    cut = [failed(36 + k, 1e6 + k, Outcome.WITHDRAWN, 1e6 + k, 1e6 + k + 30) for k in range(4)]
    parts = _parts(make_requests([*_queued(answered, range(36)), *cut]))
    assert parts.percentile == Estimate(None, reason=Cause.CUT_OFF, lower_bound=53.0)
    assert (parts.n, parts.around, parts.left_out) == (40, 16, 4)
    assert all(share.without == parts.percentile for share in parts.shares)


def test_where_all_requests_around_a_percentile_failed_it_has_no_parts(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    lost = [failed(60 + k, 1e6 + k, Outcome.SERVER_ERROR, 1e6 + k, 1e6 + k + 1) for k in range(40)]
    parts = _parts(make_requests([*_queued(answered, range(60)), *lost]))
    assert (parts.around, parts.left_out, parts.mean_ms, parts.timed, parts.largest) == (0, 20, 0.0, 0, None)
    assert parts.percentile == Estimate(None)
    for share in parts.shares:
        assert (share.mean_ms, share.share, share.without) == (UNKNOWN, UNKNOWN, Estimate(None))


@pytest.mark.parametrize(("queue_ms", "largest"), [(60.0, Phase.QUEUE), (40.0, None), (None, None)])
def test_the_largest_part_is_none_of_unknown_source(
    make_requests: MakeRequests, answered: Make, queue_ms: float | None, largest: Phase | None
) -> None:
    latency, queue_ns = (100, _ns(queue_ms)) if queue_ms else (0, None)
    records = [answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + latency, 1)], server_queue_ns=queue_ns) for k in range(5)]
    found = _parts(make_requests(records)).largest
    assert (None if found is None else found.phase) == largest


@pytest.mark.parametrize(("spells", "reason"), [(1, Cause.FEW_QUEUES), (4, Cause.FEW_QUEUES), (5, None)])
def test_a_request_that_is_due_when_the_one_before_ends_waits_in_the_same_queue(
    make_requests: MakeRequests, answered: Make, spells: int, reason: Cause | None
) -> None:
    """Each takes 19 ms to its end: those of one user come without a gap, and the last ones 1 ms later."""
    due, records = 0.0, []
    for k in range(8):
        due += 19.0 + (k > 8 - spells)
        records.append(answered(k, due, due, [(due + 18, 1)], server_queue_ns=_ns(k + 1)))
    share = _parts(make_requests(records)).by_phase[Phase.QUEUE].share
    assert (share.reason, share.interval is None) == (reason, reason is not None)


def test_the_slowest_and_the_chosen_requests_by_their_phases(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """The server gives more time to the request 9 than it took."""
    records = [
        answered(7, 2_000, 2_003, [(2_100, 1)], server_queue_ns=_ns(40), server_prefill_ns=_ns(20), head_ns=_ns(2_050)),
        answered(9, 5_000, 5_000, [(5_110, 1)], server_queue_ns=_ns(300), server_prefill_ns=0),
        answered(8, 6_000, 6_000, [(6_090, 1)], server_queue_ns=_ns(90), server_prefill_ns=0),
        failed(11, 7_000, Outcome.SERVER_ERROR, 7_000, 7_001),
    ]
    requests = make_requests(records)
    latency = latency_parts(MeasuredRun(requests, True), TTFT, ClientClock(), ())
    assert latency is not None
    assert (latency.metric, latency.percentiles, latency.ranking.tolist()) == (TTFT, (), [2, 0, 1])
    of_7 = {Phase.SLIP: 3.0, Phase.QUEUE: 40.0, Phase.PREFILL: 20.0, Phase.UNATTRIBUTED: 37.0}
    of_9 = {Phase.SLIP: 0.0, Phase.QUEUE: 300.0, Phase.PREFILL: 0.0, Phase.UNATTRIBUTED: 0.0}
    expected = (RequestParts(9, 5.0, 110.0, of_9, -190.0, None), RequestParts(7, 2.0, 100.0, of_7, 0.0, 50.0))
    assert slowest_requests(requests, latency, 2) == expected
    assert chosen_requests(requests, latency, [9, 11, 7, 9, 10]) == expected
    assert [each.index for each in slowest_requests(requests, latency, 9)] == [9, 7, 8]


def test_of_equally_slow_requests_the_last_one_comes_first(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests(_queued(answered, [1.0, 2.0] * 200))
    latency = latency_parts(MeasuredRun(requests, True), TTFT, ClientClock(), ())
    assert latency is not None
    assert [each.index for each in slowest_requests(requests, latency, 201)] == [*range(399, 0, -2), 398]


def test_the_clock_s_error_is_in_ms(make_requests: MakeRequests, answered: Make) -> None:
    """By bounds: each request was 10 ms on its way to the server and back."""
    of_server = {"server_queue_ns": _ns(390), "server_prefill_ns": 0}
    records = [
        answered(k, due, due, [(due + 400, 1)], server_arrival_ns=_ns(due + 6), **of_server)
        for k, due in enumerate((np.arange(20.0) * 1e3).tolist())
    ]
    assert _parts(make_requests(records)).clock_error_ms == 5.0
