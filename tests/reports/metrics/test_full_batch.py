"""How full a target's batch was, and the tails whose limits rest on queues that a run hardly saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from reports.findings.in_flight import RareQueues
from reports.metrics.full_batch import FullBatch, full_batch, of_several_starts
from reports.metrics.in_flight import number_over_time
from reports.metrics.requests import Requests
from reports.run.console import render_answer
from reports.run.markdown import render_markdown
from reports.run_report import RunReport
from reports.statistics.estimate import Cause
from reports.statistics.percentiles import Distribution
from tests.reports.findings.lookup import finding_of
from tests.reports.findings.runs import full_for_moments
from tests.reports.watched import metric

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
MakeReport = Callable[..., RunReport]
Batch = Callable[..., list[Record]]

SLOTS = 52  # which a run of 2,000 requests fills for moments


@pytest.fixture
def batch(answered: Make) -> Batch:
    return partial(full_for_moments, answered)


def _max_published(limit: int) -> dict[str, object]:
    samples = metric("nv_trt_llm_request_metrics", {1: limit, 2: limit}, request_type="max", model="core")
    return {"server": samples, "target": {"model": "core", "streaming": True}}


def _tails(report: RunReport) -> list[Distribution]:
    """TTFT and E2E latency, from both anchors and in both windows."""
    metrics = report.metrics
    assert metrics.ttft_ms is not None
    windows = [window for window in (metrics.windows.whole, metrics.windows.steady) if window is not None]
    found = [metrics.ttft_ms.scheduled, metrics.ttft_ms.sent, metrics.e2e_ms.scheduled, metrics.e2e_ms.sent]
    found += [latency for window in windows for latency in (window.ttft_ms, window.e2e_ms)]
    return [distribution for distribution in found if distribution is not None]


def test_a_batch_that_was_full_for_a_moment_has_no_upper_limit_of_a_tail(make_report: MakeReport, batch: Batch) -> None:
    """Among 2,000 requests a handful waited for one of the places, in fewer than ten spells: other runs have long queues."""
    report = make_report(batch(SLOTS))
    found = report.metrics.full_batch
    assert found is not None
    assert (found.largest, found.limit) == (SLOTS, None)
    assert 0 < found.spells < 10
    ttft, *_ = tails = _tails(report)
    assert len(tails) >= 6
    for distribution in tails:
        assert distribution.percentile(0.99).interval is None
        assert distribution.percentile(0.50).interval is not None
        assert distribution.mean.interval is not None
    p99 = ttft.percentile(0.99)
    assert p99.reason == Cause.FEW_QUEUES
    assert p99.at_least is not None
    assert p99.value is not None
    assert p99.at_least < p99.value
    finding = finding_of(report, "rare_queues")
    assert finding is not None
    assert finding.severity.value == "warning"
    assert f"at most {SLOTS} answers came at the same time" in finding.sentence
    assert "queues in few spells" in render_answer(report)


def test_a_limit_that_the_load_nearly_reaches_refuses_a_tail_that_saw_no_queue(make_report: MakeReport, batch: Batch) -> None:
    """The same run with and without a published limit, which its 2,000 requests never reached."""
    records, limit = batch(10_000), 61
    known, unknown = make_report(records, **_max_published(limit)), make_report(records)
    near = known.metrics.full_batch
    assert near is not None
    assert (near.limit, near.near_limit, near.waited) == (limit, True, 0)
    assert _tails(known)[0].percentile(0.99).reason == Cause.FEW_QUEUES
    assert _tails(unknown)[0].percentile(0.99).interval is not None
    finding = finding_of(known, "rare_queues")
    assert finding is not None
    assert finding.severity.value == "warning"
    assert f"its limit is {limit}" in finding.sentence


def test_a_limit_that_is_far_from_the_load_supports_a_tail(make_report: MakeReport, batch: Batch) -> None:
    report = make_report(batch(128), **_max_published(128))
    assert _tails(report)[0].percentile(0.99).interval is not None
    assert finding_of(report, "rare_queues") is None


def test_an_unknown_limit_is_said_where_no_request_waited(make_report: MakeReport, batch: Batch) -> None:
    report = make_report(batch(10_000))
    assert _tails(report)[0].percentile(0.99).interval is not None
    finding = finding_of(report, "rare_queues")
    assert finding is not None
    assert finding.severity.value == "note"
    assert finding.sentence.startswith("No request waited for a place in the target's batch in this run")
    assert "No queue seen" in render_answer(report)
    assert "No request waited" in render_markdown(report)


def test_an_interval_that_rests_on_many_queues_stays(make_requests: MakeRequests, batch: Batch) -> None:
    """20,000 requests, of which some hundred waited in tens of spells."""
    found = full_batch(make_requests(batch(53, count=20_000)))
    assert found is not None
    assert found.spells >= 10
    assert found.no_upper_limit_reason(0.99) is None


def test_a_published_limit_counts_the_requests_beyond_it(make_requests: MakeRequests, batch: Batch) -> None:
    """With a batch of 50, 40 of them taken on average, a request in twenty finds none free or more."""
    requests = make_requests(batch(50))
    found, by_answers = full_batch(requests, 50), full_batch(requests)
    assert found is not None
    assert by_answers is not None
    assert (found.near_limit, found.limit) == (True, 50)
    assert found.waited > by_answers.waited > 0


def test_runs_of_a_target_that_is_never_full_are_not_refused(make_requests: MakeRequests, batch: Batch) -> None:
    found = [full_batch(make_requests(batch(10_000, seed=seed))) for seed in range(20)]
    assert sum(batch_limit is None or batch_limit.no_upper_limit_reason(0.99) is not None for batch_limit in found) <= 1


def test_there_is_no_batch_to_see_in_a_closed_loop_a_short_run_and_a_queue_of_one(
    make_requests: MakeRequests, answered: Make, batch: Batch
) -> None:
    in_turn = [answered(k, 100 * k, 100 * k, [(100 * k + 20, 1)], done=100 * k + 100) for k in range(200)]
    apart = [answered(k, 100 * k, 100 * k, [(100 * k + 20, 1)], done=100 * k + 50) for k in range(200)]
    short = batch(SLOTS)[:99]
    assert [full_batch(make_requests(records)) for records in (in_turn, apart, short)] == [None, None, None]
    assert full_batch(make_requests(apart), 1) == FullBatch(200, 1, 0, 0, 1, near_limit=True)


@pytest.mark.parametrize(("second_ms", "waited"), [(0, 100), (49, 100), (50, 0)])
def test_a_request_is_in_the_system_from_its_send_until_its_end(
    make_requests: MakeRequests, answered: Make, second_ms: int, waited: int
) -> None:
    """Pairs 200 ms apart, each in the system for 50 ms, at a published limit of one. Both count where they are sent at once.
    Between the pairs there is one request alone.
    """
    if second_ms == 0:
        waited *= 2
    due_ms = [200 * pair + after for pair in range(100) for after in (0, second_ms, 120)]
    requests = make_requests([answered(k, at, at, [(at + 20, 1)], done=at + 50) for k, at in enumerate(due_ms)])
    found = full_batch(requests, 1)
    assert found is not None
    assert (found.waited, found.spells) == (waited, 100 if waited else 0)


def _in_groups(answered: Make, size: int, groups: int = 20) -> list[Record]:
    """Each second ``size`` requests whose answers come together for 190 ms, one that has no place until they have ended, one
    sent shortly before their end, which hardly waits, and one that waits where no other is.
    """
    together = [(at, at + 10, 200 + at) for at in range(size)]
    others = [(100, 230, 330), (195, 208, 290), (500, 700, 800)]
    return [
        answered(k, 1_000 * group + sent, 1_000 * group + sent, [(1_000 * group + first, 1)], done=1_000 * group + done)
        for k, (group, (sent, first, done)) in enumerate(
            (group, times) for group in range(groups) for times in [*together, *others]
        )
    ]


@pytest.mark.parametrize(
    ("size", "limit", "found"),
    [
        (8, None, FullBatch(220, 8, 20, 20)),
        (7, None, None),
        (8, 100, FullBatch(220, 8, 20, 20, 100)),  # waited at the most answers, far below the limit
        (7, 100, FullBatch(200, 7, 0, 0, 100)),
        (7, 7, FullBatch(200, 7, 40, 20, 7, near_limit=True)),  # beyond the limit, however short they wait
    ],
)
def test_eight_answers_at_the_same_time_are_the_smallest_batch_that_is_seen(
    make_requests: MakeRequests, answered: Make, failed: Make, size: int, limit: int | None, found: FullBatch | None
) -> None:
    """What failed, was not sent, or has no token counts as no answer."""
    records = _in_groups(answered, size)
    others = [
        answered(900, 20_500, 20_500, [], done=20_550),
        answered(901, 20_500, 20_500, [(20_510, 1)], done=20_540, outcome=Outcome.STREAM_CUT),
        failed(902, 20_500, Outcome.TIMEOUT, 20_500, 20_600),
        failed(903, 20_500, Outcome.NOT_SENT),
    ]
    assert full_batch(make_requests(records), limit) == full_batch(make_requests([*records, *others]), limit) == found


@pytest.mark.parametrize(("limit", "near"), [(20, True), (21, False)])
def test_a_limit_is_near_within_3_2_standard_deviations_of_the_mean_number(
    make_requests: MakeRequests, answered: Make, limit: int, near: bool
) -> None:
    """Ten requests at once each 100 ms, for 50 ms. From 50 ms to the last sends at 1,900 ms they are there for 900 of 1,850 ms:
    4.865 on average, ± 4.998, and 4.865 + 3.2 · 4.998 = 20.86.
    """
    due_ms = [100 * group for group in range(20) for _ in range(10)]
    requests = make_requests([answered(k, at, at, [(at + 20, 1)], done=at + 50) for k, at in enumerate(due_ms)])
    assert full_batch(requests, limit) == FullBatch(200, 10, 0, 0, limit, near)


@pytest.mark.parametrize(("limit", "waited", "near"), [(99, 100, True), (142, 0, True), (143, 0, False)])
def test_all_sent_at_once_each_number_in_the_system_counts_alike(
    make_requests: MakeRequests, answered: Make, limit: int, waited: int, near: bool
) -> None:
    """1, 2 … 100 requests, then 99 … 0: 50 on average, ± 28.87, and 50 + 3.2 · 28.87 = 142.4."""
    requests = make_requests([answered(k, 0, 0, [(10, 1)], done=20 + k) for k in range(100)])
    assert full_batch(requests, limit) == FullBatch(100, 100, waited, min(1, waited), limit, near)


def test_a_wait_at_a_peak_that_hardly_lasts_is_none_for_a_place(make_requests: MakeRequests, answered: Make) -> None:
    """Eight answers come together once, for 1 ms of 19 s, in which less than 1.5 of 202 requests are due on average."""
    peak = [answered(300, 150, 150, [(198, 1)], done=199), answered(301, 198.5, 198.5, [(400, 1)], done=500)]
    assert full_batch(make_requests([*_in_groups(answered, 7), *peak])) == FullBatch(202, 8, 0, 0)


def test_a_hundred_answers_show_a_batch(make_requests: MakeRequests, answered: Make) -> None:
    records = [answered(k, 100 * k, 100 * k, [(100 * k + 20, 1)], done=100 * k + 50) for k in range(100)]
    assert full_batch(make_requests(records), 9) == FullBatch(100, 1, 0, 0, 9)
    assert full_batch(make_requests(records[:99]), 9) is None


@pytest.mark.parametrize(("answers", "q", "refused"), [(9_999, 0.99, True), (10_001, 0.99, False), (10_001, 0.999, True)])
def test_one_spell_matters_to_a_tail_that_a_long_one_would_fill(answers: int, q: float, refused: bool) -> None:
    """A spell of a hundred requests is 1 % of 10,000."""
    found = FullBatch(answers, 64, waited=3, spells=1)
    assert (found.no_upper_limit_reason(q) is not None) is refused


@pytest.mark.parametrize(("spells", "refused"), [(9, True), (10, False)])
def test_ten_spells_are_enough(spells: int, refused: bool) -> None:
    found = FullBatch(2_000, 64, waited=60, spells=spells, limit=64, near_limit=True)
    assert (found.no_upper_limit_reason(0.99) is not None) is refused


def test_of_several_starts_only_the_fullest_batches_were_full() -> None:
    """A start that held more answers at once shows that the batch of another was not full."""
    lower, highest = FullBatch(2_000, 50, waited=9, spells=3), FullBatch(2_000, 64, waited=5, spells=2)
    assert of_several_starts([lower, highest, highest]) == FullBatch(6_000, 64, waited=10, spells=4)
    published = [replace(batch, limit=50, near_limit=batch is lower) for batch in (lower, highest)]
    for order in (published, published[::-1]):
        assert of_several_starts(order) == FullBatch(4_000, 64, waited=14, spells=5, limit=50, near_limit=True)
    assert of_several_starts([lower]) == lower


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=20))
def test_the_number_over_time_is_its_definition(stays: list[tuple[int, int]]) -> None:
    entered = np.array([float(start) for start, _ in stays])
    left = np.array([float(start + stay) for start, stay in stays])
    times, number = number_over_time(entered, left)
    for k in np.flatnonzero(np.diff(times, append=np.inf) > 0):
        assert number[k] == np.count_nonzero((entered <= times[k]) & (left > times[k]))


def test_queues_in_words() -> None:
    assert RareQueues(64, 64, True, 5, 2).sentence == (
        "5 requests waited for a place in the target's batch, in 2 spells: at most 64 answers came at the same time, and its "
        "limit is 64."
    )


def test_a_wait_below_the_limit_is_not_one_for_a_place() -> None:
    assert RareQueues(204, 256, True, 1, 1).sentence == (
        "1 request waited for the first token, in one spell: at most 204 answers came at the same time, fewer than the "
        "target's limit of 256."
    )


def test_a_class_and_a_stage_have_no_more_than_the_run(make_report: MakeReport, batch: Batch) -> None:
    records = [msgspec.structs.replace(record, traffic_class="chat") for record in batch(SLOTS)]
    stage = {"begin_s": 0.0, "end_s": records[-1].scheduled_ns / 1e9 + 1.0, "rate_per_s": 100.0}
    report = make_report(records, load={"mode": "open", "stages": [stage]})
    (chat,), (whole,) = report.classes, report.stages
    for distribution in (chat.ttft_ms, chat.e2e_ms, whole.ttft_ms, whole.e2e_ms):
        assert distribution is not None
        assert distribution.percentile(0.99).reason == Cause.FEW_QUEUES
