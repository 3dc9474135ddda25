"""The numbers of a run: by hand for a few records, by a naive loop over records for any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.record import FAILURES, TIMEOUTS, Outcome, Record
from reports.criteria import parse_slo
from reports.metrics.catalogue import CAUSAL_DELAY, CEILING_WAIT, ITL_COVERAGE, LATENCIES, TTFO, TTFT
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.latency import inter_chunk_latencies_ms, inter_token_latencies_ms
from reports.metrics.metric import Anchored
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Metrics, compute_metrics
from reports.statistics.autocorrelation import mean_of
from reports.statistics.percentiles import Distribution, percentile_key

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _close(actual: Distribution | None, **expected: float | None) -> None:
    assert actual is not None
    values = {"mean": actual.mean.value, "max": actual.max, "n": actual.n}
    values |= {"failed": actual.failed, "censored": actual.censored}
    values |= {percentile_key(q): percentile.value for q, percentile in actual.percentiles.items()}
    assert {name: values[name] for name in expected} == pytest.approx(expected)


@pytest.fixture
def mixed(answered: Make, failed: Make) -> list[Record]:
    """Six requests 10 ms apart: on time, coalesced, timed out, one token, refused, not sent."""
    return [
        answered(0, 0, 1, [(11, 1), (21, 1), (31, 1)], input_tokens=5),
        answered(1, 10, 10, [(40, 1), (52, 3), (56, 2)], input_tokens=7),
        failed(2, 20, Outcome.TIMEOUT, 22, 600, token_times_ns=(30_000_000, 500_000_000), token_counts=(1, 1), output_tokens=2),
        answered(3, 30, 34, [(44, 1)], input_tokens=9),
        failed(4, 40, Outcome.REFUSED, 40, 41),
        failed(5, 50, Outcome.NOT_SENT),
    ]


def test_golden_counts(make_requests: MakeRequests, mixed: list[Record]) -> None:
    metrics = compute_metrics(make_requests(mixed), streaming=True)
    assert (metrics.scheduled, metrics.done, metrics.failed, metrics.not_sent) == (6, 3, 2, 1)
    assert metrics.failed_by_kind == {"refused": 1, "timeout": 1}


def test_golden_numbers_of_answers_that_only_some_runs_have(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """A first turn with reasoning, a later turn that was due at 60 instead of 45 ms and sent 3 ms late, a failure, and a
    request that was cancelled as planned.
    """
    records = [
        answered(0, 0, 1, [(20, 1), (50, 1)], has_reasoning=True, first_output_ns=50_000_000, worker=0),
        answered(1, 60, 63, [(80, 1)], has_reasoning=False, parent=0, planned_ns=45_000_000, worker=1),
        failed(2, 70, Outcome.SERVER_ERROR, 70, 90, worker=0),
        answered(3, 80, 80, [(85, 1)], outcome=Outcome.WITHDRAWN, worker=1),
    ]
    requests = make_requests(records)
    metrics = compute_metrics(requests, streaming=True)
    assert (metrics.done, metrics.withdrawn, metrics.failed, metrics.not_sent) == (2, 1, 1, 0)
    assert metrics.ttfo_ms is not None
    _close(metrics.ttfo_ms.scheduled, mean=(50 + 20 + 5) / 3, n=3, failed=1)
    _close(metrics.ttfo_ms.sent, mean=(49 + 17 + 5) / 3, n=3, failed=1)
    _close(metrics.e2e_ms.scheduled, mean=None, p50=None, p90=None, n=2, failed=1, censored=1)
    assert metrics.e2e_ms.scheduled is not None
    assert metrics.e2e_ms.scheduled.bounds == {"mean": (50 + 20 + 6) / 3, "p50": 20}  # 6 or more, 20, 50, failed
    _close(metrics.causal_delay_ms, mean=15, max=15, n=1)
    assert metrics.failed_share is not None
    assert (metrics.failed_share.failed, metrics.failed_share.ended) == (1, 3)
    assert {worker: slip.max_ms for worker, slip in metrics.slip_by_worker.items()} == {0: 1.0, 1: 3.0}
    assert sum(part.slip.sends for part in metrics.slip_over_time) == 4
    assert compute_metrics(requests, streaming=False).ttfo_ms is None
    assert compute_metrics(make_requests(records[1:]), streaming=True).ttfo_ms is None


def test_golden_latencies_from_both_anchors(make_requests: MakeRequests, mixed: list[Record]) -> None:
    metrics = compute_metrics(make_requests(mixed), streaming=True)
    assert metrics.ttft_ms is not None
    # 11, 30, 14 and, before it timed out, 10 from the schedule; 10, 30, 10 and 8 from the send; a refusal is slower than these
    beside: dict[str, float | None] = {"p90": None, "p95": None, "p99": None, "max": None, "failed": 1}
    _close(metrics.ttft_ms.scheduled, mean=65 / 4, p50=14, n=4, censored=0, **beside)
    _close(metrics.ttft_ms.sent, mean=58 / 4, p50=10, n=4, censored=0, **beside)
    # 31, 46, 14 and 30, 46, 10: the end is the last token, 1 ms before the request is done; one timed out after 580 and 578
    _close(metrics.e2e_ms.scheduled, mean=None, p50=46, n=3, censored=1, **beside)
    _close(metrics.e2e_ms.sent, mean=None, p50=46, n=3, censored=1, **beside)
    assert metrics.e2e_ms.scheduled is not None
    assert metrics.e2e_ms.sent is not None
    assert metrics.e2e_ms.scheduled.bounds == {"mean": (31 + 46 + 14 + 580) / 4}  # percentiles reach the refusal
    assert metrics.e2e_ms.sent.bounds == {"mean": (30 + 46 + 10 + 578) / 4}


def test_golden_token_latencies(make_requests: MakeRequests, mixed: list[Record]) -> None:
    metrics = compute_metrics(make_requests(mixed), streaming=True)
    # (31 − 11) / 2 and (56 − 40) / 5; one token has none
    _close(metrics.tpot_ms, mean=6.6, p50=3.2, p90=10, max=10, n=2)
    # gaps 10, 10 and 12, 4; the timed-out request's gap of 470 ms is not among them
    _close(metrics.icl_ms, mean=9, p50=10, p90=12, max=12, n=4)
    # 10, 10, then 12 ms for 3 tokens, 4 ms for 2: 10, 10, 4, 4, 4, 2, 2
    _close(metrics.itl_ms, mean=36 / 7, p50=4, p90=10, max=10, n=7)


def test_golden_slip_and_rates(make_requests: MakeRequests, mixed: list[Record]) -> None:
    metrics = compute_metrics(make_requests(mixed), streaming=True)
    # 1, 0, 2, 4, 0 ms: failures were sent late or not, too
    _close(metrics.slip_ms, mean=1.4, p50=1, p90=4, max=4, n=5)
    assert metrics.offered_rate == pytest.approx(4 / 0.040)  # the last one, due at 50 ms, was not sent
    assert metrics.achieved_rate == pytest.approx(4 / 0.039)  # sends at 1, 10, 22, 34, 40 ms
    assert metrics.window_s == pytest.approx(0.057)  # from 0 to the end of request 1
    assert metrics.request_throughput == pytest.approx(3 / 0.057)
    assert metrics.output_token_throughput == pytest.approx(10 / 0.057)  # 3 + 6 + 1
    assert metrics.mean_input_tokens == pytest.approx(7)
    assert metrics.mean_output_tokens == pytest.approx(10 / 3)


def test_golden_upstream_table(make_requests: MakeRequests, mixed: list[Record]) -> None:
    table = compute_metrics(make_requests(mixed), streaming=True).upstream
    # upstream's latency is from the send to the end of the request: 31, 47, 11; its window begins with the first send, at 1 ms
    assert table.mean_latency_ms == pytest.approx(89 / 3)
    assert table.p99_latency_ms == pytest.approx(47)
    assert table.p90_latency_ms == pytest.approx(47)
    assert table.total_latency_ms == pytest.approx(56)
    assert table.requests_per_s == pytest.approx(3 / 0.056)
    assert table.output_tokens_per_s == pytest.approx(10 / 0.056)
    assert table.mean_input_tokens == pytest.approx(7)
    assert table.mean_output_tokens == pytest.approx(10 / 3)
    assert table.total_requests == 3


def test_an_unstreamed_run_has_no_token_latencies_and_all_else(make_requests: MakeRequests, mixed: list[Record]) -> None:
    streamed = compute_metrics(make_requests(mixed), streaming=True)
    unstreamed = compute_metrics(make_requests(mixed), streaming=False)
    assert streamed.windows.whole is not None
    windows = replace(streamed.windows, whole=replace(streamed.windows.whole, ttft_ms=None))
    latencies = {metric: value for metric, value in streamed.latencies.items() if not metric.streamed_only}
    assert unstreamed == replace(streamed, latencies=latencies, windows=windows)


def test_an_unknown_output_count_leaves_rates_of_tokens_unknown(make_requests: MakeRequests, answered: Make) -> None:
    records = [
        answered(0, 0, 0, [(10, 1), (20, 1)]),
        answered(1, 0, 0, [(30, 1), (45, 1)], token_counts=None, output_tokens=None, input_tokens=None),
    ]
    metrics = compute_metrics(make_requests(records), streaming=True)
    assert metrics.output_token_throughput is None
    assert metrics.upstream.output_tokens_per_s is None
    assert metrics.mean_output_tokens == 2  # of the request that is known
    assert metrics.mean_input_tokens is None
    _close(metrics.tpot_ms, mean=10, n=1)
    assert metrics.itl_ms is None  # half of the gaps have no count
    _close(metrics.icl_ms, mean=12.5, n=2)  # gaps between responses need no counts
    assert metrics.ttft_ms is not None
    _close(metrics.ttft_ms.scheduled, mean=20, n=2)


def test_an_unknown_count_of_a_failure_does_not_matter(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [answered(0, 0, 0, [(10, 1), (20, 1)], done=20), failed(1, 0, Outcome.STREAM_CUT, 0, 5)]
    assert compute_metrics(make_requests(records), streaming=True).output_token_throughput == pytest.approx(2 / 0.020)


def test_everything_at_once_has_no_rate_offered(make_requests: MakeRequests, answered: Make) -> None:
    records = [answered(k, 0, k, [(10 + k, 1)]) for k in range(5)]
    metrics = compute_metrics(make_requests(records), streaming=True)
    assert metrics.offered_rate is None
    assert metrics.achieved_rate == pytest.approx(4 / 0.004)
    assert metrics.ttft_ms is not None
    _close(metrics.ttft_ms.scheduled, mean=12, max=14)
    _close(metrics.ttft_ms.sent, mean=10, max=10)


def test_one_request_has_no_rates_but_a_throughput(make_requests: MakeRequests, answered: Make) -> None:
    metrics = compute_metrics(make_requests([answered(0, 0, 0, [(10, 4)], done=20)]), streaming=True)
    assert (metrics.offered_rate, metrics.achieved_rate) == (None, None)
    assert metrics.request_throughput == pytest.approx(50)
    assert metrics.output_token_throughput == pytest.approx(200)


def test_an_answer_without_tokens_counts_as_done_and_has_no_latency(make_requests: MakeRequests, answered: Make) -> None:
    metrics = compute_metrics(make_requests([answered(0, 0, 0, [])]), streaming=True)
    assert metrics.done == 1
    assert metrics.e2e_ms == Anchored(None, None)
    assert metrics.ttft_ms == Anchored(None, None)
    assert metrics.output_token_throughput == 0


@pytest.mark.parametrize("kind", FAILURES)
def test_a_run_of_failures_alone_has_counts_and_nothing_else(make_requests: MakeRequests, failed: Make, kind: Outcome) -> None:
    sent = None if kind in (Outcome.NOT_SENT, Outcome.LOST) else 1.0
    metrics = compute_metrics(make_requests([failed(0, 0, kind, sent, None if sent is None else 9.0)]), streaming=True)
    assert metrics.failed_by_kind == {kind.value: 1}
    assert (metrics.done, metrics.failed) == (0, 1)
    if kind in (*TIMEOUTS, Outcome.CANCELLED):
        for latency in (metrics.ttft_ms, metrics.e2e_ms):
            assert latency is not None
            _close(latency.sent, mean=None, p50=None, max=None, n=0, failed=0, censored=1)
            assert latency.sent is not None
            assert latency.sent.bounds == dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"), 8.0)
    else:
        assert metrics.ttft_ms == metrics.e2e_ms == Anchored(None, None)
    assert (metrics.tpot_ms, metrics.itl_ms, metrics.icl_ms) == (None, None, None)
    assert (metrics.window_s, metrics.request_throughput, metrics.output_token_throughput) == (None, None, None)
    assert metrics.upstream.total_requests == 0
    assert metrics.upstream.requests_per_s is None


def test_answers_in_no_time_have_no_rate(make_requests: MakeRequests, answered: Make) -> None:
    metrics = compute_metrics(make_requests([answered(0, 0, 0, [(0, 1)], done=0)]), streaming=True)
    assert metrics.request_throughput is None
    assert metrics.upstream.requests_per_s is None


# ---- any records, against a loop over them


@st.composite
def _records(draw: Any) -> list[Record]:
    records = []
    for index in range(draw(st.integers(1, 12))):
        outcome = draw(st.sampled_from([Outcome.DONE, Outcome.DONE, Outcome.DONE, *FAILURES]))
        scheduled = draw(st.integers(0, 10**8))
        if outcome in (Outcome.NOT_SENT, Outcome.LOST):
            records.append(Record(index, outcome, scheduled, 4, error="gone"))
            continue
        sent = scheduled + draw(st.integers(0, 10**7))
        times = []
        for gap in draw(st.lists(st.integers(1, 10**8), max_size=5)):
            times.append((times[-1] if times else sent) + gap)
        counts = draw(st.none() | st.tuples(*[st.integers(1, 4)] * len(times)))
        output = draw(st.just(None if counts is None else sum(counts)) | st.integers(0, 20))
        records.append(
            Record(
                index=index,
                outcome=outcome,
                scheduled_ns=scheduled,
                requested_output_tokens=4,
                sent_ns=sent,
                done_ns=(times[-1] if times else sent) + draw(st.integers(1, 10**6)),
                token_times_ns=tuple(times),
                token_counts=counts,
                input_tokens=draw(st.none() | st.integers(0, 100)),
                output_tokens=output,
                error=None if outcome is Outcome.DONE else "no",
            )
        )
    return records


def _check(actual: Distribution | None, values: Sequence[float], failed: int = 0, bounds: Sequence[float] = ()) -> None:
    """``bounds`` belong to requests that were cut off: what is the same with these as the values and as failures is known."""
    if not values and not bounds:
        assert actual is None
        return
    fastest, slowest = [*sorted([*values, *bounds])], [*sorted(values)]

    def at(percent: int) -> float | None:
        rank = math.ceil(Fraction(percent * (len(fastest) + failed), 100))
        return slowest[rank - 1] if rank <= len(slowest) and slowest[rank - 1] == fastest[rank - 1] else None

    _close(
        actual,
        mean=None if bounds else sum(values) / len(values),
        p50=at(50),
        p90=at(90),
        p95=at(95),
        p99=at(99),
        max=None if failed or bounds else slowest[-1],
        n=len(values),
        failed=failed,
        censored=len(bounds),
    )
    assert actual is not None
    if bounds:
        assert actual.bounds["mean"] == pytest.approx(sum(fastest) / len(fastest))
        assert actual.max_lower_bound == (None if failed else pytest.approx(fastest[-1]))


def _rate(times: Sequence[int]) -> float | None:
    return (len(times) - 1) / ((max(times) - min(times)) / 1e9) if len(times) > 1 and max(times) > min(times) else None


@settings(max_examples=60)
@given(_records())
def test_metrics_are_what_a_loop_over_the_records_gives(make_requests: MakeRequests, records: list[Record]) -> None:
    metrics = compute_metrics(make_requests(records), streaming=True)
    done = [r for r in records if r.outcome is Outcome.DONE]
    with_tokens = [r for r in done if r.token_times_ns]
    assert (metrics.scheduled, metrics.done, metrics.failed) == (len(records), len(done), len(records) - len(done))
    assert metrics.ttft_ms is not None
    ours = (Outcome.DONE, Outcome.CANCELLED, *TIMEOUTS, Outcome.NOT_SENT, Outcome.LOST)
    failed = sum(r.outcome not in ours for r in records)
    cut_off = [r for r in records if r.outcome in (Outcome.CANCELLED, *TIMEOUTS)]
    for anchored, position, cut in (
        (metrics.ttft_ms, 0, [r for r in cut_off if not r.token_times_ns]),
        (metrics.e2e_ms, -1, cut_off),
    ):
        reached = [r for r in (*with_tokens, *cut_off) if r.token_times_ns and r not in cut]
        for d, anchor in ((anchored.scheduled, "scheduled_ns"), (anchored.sent, "sent_ns")):
            values = [(r.token_times_ns[position] - getattr(r, anchor)) / 1e6 for r in reached]
            _check(d, values, failed, [((r.done_ns or 0) - getattr(r, anchor)) / 1e6 for r in cut])
    _check(metrics.slip_ms, [(r.sent_ns - r.scheduled_ns) / 1e6 for r in records if r.sent_ns is not None])
    _check(
        metrics.tpot_ms,
        [
            (r.token_times_ns[-1] - r.token_times_ns[0]) / 1e6 / (r.output_tokens - 1)
            for r in with_tokens
            if r.output_tokens is not None and r.output_tokens >= 2 and len(r.token_times_ns) >= 2
        ],
    )
    gaps = [
        (later - earlier, None if r.token_counts is None else r.token_counts[k + 1])
        for r in done
        for k, (earlier, later) in enumerate(zip(r.token_times_ns, r.token_times_ns[1:], strict=False))
    ]
    _check(metrics.icl_ms, [gap / 1e6 for gap, _ in gaps])
    counted = [(gap, count) for gap, count in gaps if count]
    is_covered = bool(gaps) and len(counted) >= ITL_COVERAGE * len(gaps)
    _check(metrics.itl_ms, [gap / 1e6 / count for gap, count in counted for _ in range(count)] if is_covered else [])
    _check_rates(metrics, records, done)


def _check_rates(metrics: Metrics, records: Sequence[Record], done: Sequence[Record]) -> None:
    assert metrics.offered_rate == pytest.approx(_rate([r.scheduled_ns for r in records]))
    assert metrics.achieved_rate == pytest.approx(_rate([r.sent_ns for r in records if r.sent_ns is not None]))
    if not done:
        assert (metrics.window_s, metrics.request_throughput, metrics.output_token_throughput) == (None, None, None)
        return
    window_s = (max(r.done_ns or 0 for r in done) - min(r.scheduled_ns for r in records)) / 1e9
    assert metrics.window_s == pytest.approx(window_s)
    assert metrics.request_throughput == pytest.approx(len(done) / window_s)
    outputs = [r.output_tokens for r in done]
    known = [count for count in outputs if count is not None]
    expected = sum(known) / window_s if len(known) == len(outputs) else None
    assert metrics.output_token_throughput == pytest.approx(expected)
    assert metrics.mean_output_tokens == pytest.approx(sum(known) / len(known) if known else None)


# ---- failures never improve a tail

_PERCENTILES = ("p50", "p90", "p95", "p99", "max")


def _e2e(metrics: Metrics) -> dict[str, Any]:
    d = metrics.e2e_ms.scheduled
    assert d is not None
    return {name: getattr(d, name) for name in _PERCENTILES}


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(FAILURES)), max_size=10),
)
def test_failures_beside_the_successes_lower_no_percentile(
    make_requests: MakeRequests, answered: Make, failed: Make, latencies: list[int], failures: list[tuple[int, Outcome]]
) -> None:
    # a refusal comes back in no time: counted as a latency it would make the run look fast
    successes = [answered(k, 0, 0, [(latency, 1)]) for k, latency in enumerate(latencies)]
    added = [failed(len(successes) + k, 0, kind, 0, at) for k, (at, kind) in enumerate(failures)]
    alone = _e2e(compute_metrics(make_requests(successes), streaming=True))
    beside = _e2e(compute_metrics(make_requests(successes + added), streaming=True))
    assert all(beside[name] is None or beside[name] >= alone[name] for name in _PERCENTILES)


@pytest.mark.parametrize("percentile", ["p99", "max"])
def test_slow_requests_that_fail_instead_do_not_improve_the_tail(
    make_requests: MakeRequests, answered: Make, failed: Make, percentile: str
) -> None:
    successes = [answered(k, 0, 0, [(k + 1, 1)]) for k in range(200)]  # 1 to 200 ms
    cut = [*successes[:198], *(failed(k, 0, Outcome.TIMEOUT, 0, k + 1) for k in (198, 199))]  # 1 %: the run stays valid
    slow = compute_metrics(make_requests(successes), streaming=True).e2e_ms.scheduled
    lost = compute_metrics(make_requests(cut), streaming=True).e2e_ms.scheduled
    assert slow is not None
    assert lost is not None
    tail = getattr(lost, percentile)
    assert tail is None or tail >= getattr(slow, percentile)  # 198 and 200 ms; None would mean that there is no such number


def test_gaps_stand_in_the_order_in_which_they_ended(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """Two requests in flight together: step by step of the target, not one request after the other."""
    records = [
        answered(0, 0, 0, [(100, 1), (110, 2), (130, 1), (1_000, 1)]),
        answered(1, 10, 10, [(101, 1), (111.5, 1), (133, 3)]),
        failed(2, 20, Outcome.STREAM_CUT, 20, 140, token_times_ns=(105_000_000, 120_000_000), token_counts=(1, 1)),
    ]
    requests = make_requests(records)
    assert inter_chunk_latencies_ms(requests).tolist() == [10, 10.5, 20, 21.5, 870]
    assert inter_token_latencies_ms(requests).tolist() == [5, 5, 10.5, 20, *[pytest.approx(21.5 / 3)] * 3, 870]


def test_requests_that_share_the_target_s_steps_hold_no_more_information_than_the_steps(
    make_requests: MakeRequests, answered: Make
) -> None:
    """20 requests in flight see each of 400 independent steps: 8,000 gaps."""
    ends_ms = np.cumsum(np.random.default_rng(0).lognormal(2.0, 0.5, 421))
    records = [answered(k, k, k, [(float(at), 1) for at in ends_ms[20 * (k // 20) : 20 * (k // 20) + 21]]) for k in range(400)]
    mean = mean_of(inter_chunk_latencies_ms(make_requests(records)))
    assert mean.n == 8_000
    assert 200 < mean.independent < 800


# ---- what the load and the objectives decide


def test_waits_at_a_ceiling_are_a_metric_of_runs_that_have_one(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 0, 10 * k, [(100, 1)], released_ns=10_000_000 * k) for k in range(3)])
    limited = compute_metrics(requests, streaming=True, load=ConfiguredLoad(max_concurrency=1))
    _close(limited.ceiling_wait_ms, mean=10, p50=10, max=20, n=3)
    assert compute_metrics(requests, streaming=True).ceiling_wait_ms is None


def test_the_dispersion_of_arrivals_is_that_of_the_full_rate(make_requests: MakeRequests, answered: Make) -> None:
    """Even arrivals at a rate that rises from 0 to 100/s within 4 s: at t they are 100 t² / 8. They are sent four at a time."""
    due_ms = [10.0 * k + 2_000 if k > 200 else (8e4 * k) ** 0.5 for k in range(600)]
    sent_ms = [due_ms[min(k - k % 4 + 3, 599)] for k in range(600)]
    requests = make_requests(
        [answered(k, at, sent, [(sent + 5, 1)]) for k, (at, sent) in enumerate(zip(due_ms, sent_ms, strict=True))]
    )
    rising, steady, closed = (
        compute_metrics(requests, streaming=True, load=load)
        for load in (ConfiguredLoad(ramp_up_s=4.0), ConfiguredLoad(), ConfiguredLoad(closed=True, ramp_up_s=4.0))
    )
    assert rising.scheduled_dispersion == pytest.approx(0.0, abs=0.05)
    assert rising.sent_dispersion == pytest.approx(0.3, abs=0.15)
    assert steady.scheduled_dispersion is not None
    assert steady.scheduled_dispersion > 1.0
    assert (closed.scheduled_dispersion, closed.offered_rate) == (None, None)
    assert closed.sent_dispersion == steady.sent_dispersion
    assert steady.sent_dispersion is not None
    assert steady.sent_dispersion > 1.0


def test_objectives_make_a_goodput(make_requests: MakeRequests, mixed: list[Record]) -> None:
    requests = make_requests(mixed)
    found = compute_metrics(requests, streaming=True, objectives=[parse_slo("ttft_ms<=20")]).goodput
    assert found is not None
    assert found.good == 2  # 11 and 14 ms, and 30 ms
    assert compute_metrics(requests, streaming=True).goodput is None


def test_the_whole_window_has_the_latencies_of_the_run(make_requests: MakeRequests, mixed: list[Record]) -> None:
    metrics = compute_metrics(make_requests(mixed), streaming=True)
    assert metrics.windows.whole is not None
    assert metrics.ttft_ms is not None
    assert metrics.windows.whole.ttft_ms == metrics.ttft_ms.scheduled
    assert metrics.windows.whole.e2e_ms == metrics.e2e_ms.scheduled


# ---- ITL


def test_two_tokens_in_each_response_share_its_gap(make_requests: MakeRequests, answered: Make) -> None:
    metrics = compute_metrics(make_requests([answered(0, 0, 0, [(10, 2), (20, 2), (40, 2)])]), streaming=True)
    _close(metrics.icl_ms, mean=15, n=2)
    _close(metrics.itl_ms, mean=7.5, n=4)


@pytest.mark.parametrize(("uncounted", "has_itl"), [(1, True), (2, False)])
def test_inter_token_latency_covers_99_in_100_gaps(
    make_requests: MakeRequests, answered: Make, uncounted: int, has_itl: bool
) -> None:
    tokens = [(10.0 * k, 0 if 10 <= k < 10 + uncounted else 1) for k in range(1, 102)]
    metrics = compute_metrics(make_requests([answered(0, 0, 0, tokens)]), streaming=True)
    assert (metrics.itl_ms is not None) == has_itl


def test_the_steady_part_is_that_of_the_load(make_requests: MakeRequests, answered: Make) -> None:
    """Eight users with a request each 100 ms, four of whom have nothing to send after 6 s."""
    due_ms = sorted(100 * k + user for user in range(8) for k in range(80 if user < 4 else 60))
    requests = make_requests([answered(k, at, at, [(at + 99, 1)], done=at + 100) for k, at in enumerate(due_ms)])
    steady = compute_metrics(requests, streaming=True, load=ConfiguredLoad(closed=True)).windows.steady
    assert steady is not None
    assert steady.end_s == 6.004


def test_a_run_has_the_latencies_of_some_runs_where_they_exist_and_the_others_always(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """A run in which everything failed has rows for what it would have."""
    always = [metric for metric in LATENCIES if not metric.of_some_runs]
    assert (TTFT in always, TTFO in always, CEILING_WAIT in always, CAUSAL_DELAY in always) == (True, False, False, False)
    refused = compute_metrics(make_requests([failed(0, 0, Outcome.REFUSED, 0, 1)]), streaming=True)
    assert list(refused.latencies) == always
    assert refused.tpot_ms is None
    limited = compute_metrics(
        make_requests([answered(0, 0, 0, [(5, 1)])]), streaming=False, load=ConfiguredLoad(max_concurrency=1)
    )
    assert list(limited.latencies) == [m for m in LATENCIES if m in (*always, CEILING_WAIT) and not m.streamed_only]
