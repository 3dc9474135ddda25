"""Gates on means, throughputs and goodput, which have intervals of their own."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench_records.record import Outcome
from reports.gates.gate import Evidence, JudgedRun, Status
from reports.gates.numbers import KnownNumber, is_clear, judge_number, of_mean, of_rates, over_groups
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.metrics.configuration import ConfiguredLoad
from reports.metrics.in_flight import QueueGrowth
from reports.statistics.estimate import UNKNOWN, Cause, Correlated, Estimate, Reason
from tests.reports.gates.gating import Make, MakeRun, Noise, Queue, gate_of, required


@pytest.fixture(scope="module")
def calm(run_of: MakeRun, noise: Noise) -> JudgedRun:
    """700 requests in 7 s."""
    return run_of(noise(700))


@pytest.fixture(scope="module")
def growing(judged: MakeRun, queued_run: Queue) -> JudgedRun:
    """75 requests/s at a target that answers 49."""
    return judged(queued_run(75.0, 1))


def _of_rate(run: JudgedRun, value: float, interval: tuple[float, float] | None, reason: Reason = Cause.DRIFTS) -> JudgedRun:
    whole = run.metrics.windows.whole
    assert whole is not None
    changed = replace(
        whole, throughputs={**whole.throughputs, REQUEST_THROUGHPUT: Estimate(value, interval, None if interval else reason)}
    )
    return replace(run, metrics=replace(run.metrics, windows=replace(run.metrics.windows, whole=changed)))


# ---- one run, by its interval


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("request_throughput>=95", Status.PASSED),
        ("request_throughput>=96", Status.UNDECIDED),
        ("request_throughput>=105", Status.UNDECIDED),
        ("request_throughput>=106", Status.FAILED),
        ("request_throughput<=105", Status.PASSED),
        ("request_throughput<=104", Status.UNDECIDED),
        ("request_throughput<=94", Status.FAILED),
    ],
)
def test_a_throughput_is_judged_by_its_interval(calm: JudgedRun, text: str, status: Status) -> None:
    gate = gate_of(text, _of_rate(calm, 100.0, (95.0, 105.0)))
    assert gate.status is status
    assert gate.evidence == Evidence(100.0, 95.0, 105.0)
    assert gate.why.startswith("100 requests/s, 95 %: 95 – 105 requests/s")


@pytest.mark.parametrize(
    ("mean", "limit", "status"),
    [
        (Estimate(110.0, (100.0, 120.0)), 120, Status.PASSED),
        (Estimate(110.0, (100.0, 120.0)), 119, Status.UNDECIDED),
        (Estimate(110.0, (100.0, 120.0)), 100, Status.UNDECIDED),
        (Estimate(110.0, (100.0, 120.0)), 99, Status.FAILED),
        (Estimate(110.0, None, Cause.DRIFTS), 120, Status.UNDECIDED),
        (Estimate(110.0, None, Cause.DRIFTS), 50, Status.UNDECIDED),
        (Estimate(110.0, None, Cause.DRIFTS), 13.75, Status.FAILED),  # 8 times the limit
    ],
)
def test_a_mean_is_judged_by_its_interval_or_fails_where_it_is_far_above(
    calm: JudgedRun, mean: Estimate, limit: float, status: Status
) -> None:
    requirement = required(f"mean_ttft<={limit}ms")
    assert judge_number(requirement, of_mean(mean, mean), [calm]).status is status


def test_a_rate_is_never_far_above(calm: JudgedRun) -> None:
    assert gate_of("request_throughput<=1", _of_rate(calm, 100.0, None)).status is Status.UNDECIDED


def test_the_mean_of_a_run_is_held_against_the_limit(run_of: MakeRun, noise: Noise) -> None:
    run = run_of(noise(2_000))
    passed, failed = gate_of("mean_ttft<=60ms", run), gate_of("mean_ttft<=45ms", run)
    assert (passed.status, failed.status) == (Status.PASSED, Status.FAILED)
    assert passed.evidence == failed.evidence
    assert re.fullmatch(r"5\d\.\d ms, 95 %: [45]\d(\.\d)? – 5\d\.\d ms", passed.why), passed.why


@pytest.mark.parametrize("value", [8.7, 21.4, 100.0, 318.8])
@pytest.mark.parametrize("sizes", [(700,), (1_500,), (700, 500, 333), (20, 20, 20)], ids=str)
def test_a_mean_of_equal_values_keeps_its_limit_in_either_direction(
    run_of: MakeRun, value: float, sizes: tuple[int, ...]
) -> None:
    """Their sum is rounded, and 21.400000000000006 ms kept no limit of 21.4 ms, nor was above it."""
    runs = [run_of([value] * size) for size in sizes]
    for sign in ("<=", ">="):
        gate = gate_of(f"mean_ttft{sign}{value}ms", *runs)
        assert gate.status is Status.PASSED, gate.why


@pytest.mark.parametrize(
    ("n", "limit", "status"), [(699, 41, Status.UNDECIDED), (699, 33, Status.FAILED), (700, 41, Status.FAILED)]
)
def test_fewer_than_700_requests_fail_a_mean_only_far_above_its_limit(
    run_of: MakeRun, noise: Noise, n: int, limit: int, status: Status
) -> None:
    """51 ms: they may all lie within one slow time."""
    gate = gate_of(f"mean_ttft<={limit}ms", run_of(noise(n)))
    assert gate.status is status, gate.why
    if status is Status.UNDECIDED:
        assert gate.why.endswith("; fewer than 700 requests could all fall within one slow period")


@pytest.mark.parametrize(
    ("n", "limit", "status"), [(300, 130, Status.UNDECIDED), (300, 300, Status.FAILED), (700, 130, Status.FAILED)]
)
def test_fewer_than_700_requests_fail_a_goodput_only_far_below_its_limit(
    run_of: MakeRun, noise: Noise, n: int, limit: int, status: Status
) -> None:
    """100 requests/s arrive, at a rate that no option set."""
    gate = gate_of(f"goodput>={limit}", run_of(noise(n), "ttft<=500ms"))
    assert gate.status is status, gate.why


@pytest.mark.parametrize(
    ("text", "value", "clear"),
    [
        ("mean_ttft<=100ms", 150.0, True),
        ("mean_ttft<=100ms", 149.9, False),
        ("goodput>=100", 50.0, True),
        ("goodput>=100", 50.1, False),
        ("goodput>=100", None, True),
    ],
)
def test_few_requests_are_evidence_of_what_is_far_beyond_the_limit(
    run_of: MakeRun, noise: Noise, calm: JudgedRun, text: str, value: float | None, clear: bool
) -> None:
    few = run_of(noise(300))
    assert is_clear(required(text), value, [few, few]) is clear
    assert is_clear(required(text), value, [calm])
    assert is_clear(required(text), value, [few, few, few])


def test_few_requests_that_missed_an_objective_fail_no_goodput_at_a_rate_that_was_set(run_of: MakeRun, noise: Noise) -> None:
    """50 good requests/s where 90 are wanted are more than half, and the 300 may all lie within one slow time."""
    gate = gate_of("goodput>=90", run_of(noise(300, 120, 600.0), "ttft<=500ms", load=ConfiguredLoad(rate_per_s=100.0)))
    assert gate.status is Status.UNDECIDED, gate.why


def test_a_limit_above_the_rate_that_was_set_fails_a_goodput_of_few_requests(run_of: MakeRun, noise: Noise) -> None:
    set_rate = run_of(noise(300), "ttft<=500ms", load=ConfiguredLoad(rate_per_s=100.0))
    gate = gate_of("goodput>=101", set_rate)
    assert gate.status is Status.FAILED
    assert gate.why.endswith("; at most 100 requests/s arrive")


# ---- the queue


def test_a_queue_that_grows_fails_a_mean_and_passes_none(growing: JudgedRun) -> None:
    failed, undecided = gate_of("mean_ttft<=50ms", growing), gate_of("mean_ttft<=60s", growing)
    assert (failed.status, undecided.status) == (Status.FAILED, Status.UNDECIDED)
    for gate in (failed, undecided):
        assert re.search(r"; the queue grew by 2[\d.]+ requests/s, so a longer run is worse$", gate.why), gate.why


def test_a_queue_that_grows_fails_a_goodput_and_passes_none(judged: MakeRun, queued_run: Queue) -> None:
    run = judged(queued_run(75.0, 1), "ttft<=50ms")
    assert [gate_of(f"goodput>={limit}", run).status for limit in (37.5, 0.001)] == [Status.FAILED, Status.UNDECIDED]


def test_a_queue_that_grows_fails_no_number_that_it_makes_hold_more(
    growing: JudgedRun, judged: MakeRun, queued_run: Queue
) -> None:
    """--fail_if mean_ttft<60s, and goodput>0.001: a longer run has a longer TTFT, and less goodput."""
    fast = judged(queued_run(75.0, 1), "ttft<=50ms")
    for gate in (gate_of("mean_ttft>=60s", growing), gate_of("goodput<=0.001", fast)):
        assert gate.status is Status.UNDECIDED, gate.why
        assert "worse" not in gate.why


def test_a_queue_that_grows_passes_no_goodput_that_has_an_interval(judged: MakeRun, queued_run: Queue) -> None:
    """About half of the 75 requests/s are good, and goodput is known to a twentieth: of calm runs it would pass."""
    run = judged(queued_run(75.0, 1), "ttft<=5s")
    assert run.metrics.goodput is not None
    rate = run.metrics.goodput.rate.value
    assert rate is not None
    known = replace(run.metrics.goodput, rate=Estimate(rate, (0.95 * rate, 1.05 * rate)))
    gate = gate_of(f"goodput>={rate / 2:.1f}", replace(run, metrics=replace(run.metrics, goodput=known)))
    assert gate.status is Status.UNDECIDED, gate.why
    assert re.search(r"; the queue grew by 2[\d.]+ requests/s, so a longer run is worse$", gate.why), gate.why


@pytest.mark.parametrize(("limit", "status"), [(10.0, Status.UNDECIDED), (10.1, Status.FAILED)])
def test_a_queue_that_grows_fails_a_goodput_below_its_limit_alone(growing: JudgedRun, limit: float, status: Status) -> None:
    assert judge_number(required(f"goodput>={limit}"), KnownNumber(10.0, grows=True), [growing]).status is status


@pytest.mark.parametrize(("limit", "status"), [(10.0, Status.UNDECIDED), (9.9, Status.FAILED)])
def test_a_queue_that_grows_fails_a_mean_above_its_limit_alone(growing: JudgedRun, limit: float, status: Status) -> None:
    assert judge_number(required(f"mean_ttft<={limit}ms"), KnownNumber(10.0, grows=True), [growing]).status is status


@pytest.mark.parametrize(("completed_per_s", "grew"), [(99.6, "0.4"), (70.0, "30"), (100.5, "0")])
def test_a_gate_says_by_how_much_the_queue_grew(completed_per_s: float, grew: str) -> None:
    run: Any = SimpleNamespace(growth=QueueGrowth(5.0, 45.0, 1_000, 100.0, completed_per_s))
    gate = judge_number(required("mean_ttft<=50ms"), KnownNumber(60.0, grows=True), [run])
    assert gate.why == f"60 ms; the queue grew by {grew} requests/s, so a longer run is worse"


def test_a_queue_that_grows_is_no_reason_in_a_throughput(growing: JudgedRun) -> None:
    rate = _of_rate(growing, 49.0, (48.0, 50.0))
    assert [gate_of(f"request_throughput>={limit}", rate).status for limit in (40, 60)] == [Status.PASSED, Status.FAILED]


def test_users_that_wait_for_answers_have_no_queue_that_grows(growing: JudgedRun) -> None:
    closed = replace(growing, load=ConfiguredLoad(closed=True))
    assert "queue" not in gate_of("mean_ttft<=60s", closed).why


# ---- requests that were cut off


def test_a_mean_of_which_a_lower_bound_is_known_can_fail_and_never_pass(judged: MakeRun, answered: Make, failed: Make) -> None:
    """60 of 2,000 requests hang, and are cancelled after 1 s: the mean is at least 107 ms."""
    records = [
        failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 1_000, error=None)
        if k % 33 == 5
        else answered(k, 10 * k, 10 * k, [(10 * k + 80, 1)])
        for k in range(2_000)
    ]
    run = judged(records)
    below, above = gate_of("mean_ttft<=90ms", run), gate_of("mean_ttft<=5s", run)
    assert (below.status, above.status) == (Status.FAILED, Status.UNDECIDED)
    assert above.why.startswith("at least 108 ms")
    assert above.why.endswith("; requests were cut off, so a lower bound alone is known")
    assert above.evidence.high is None


def test_a_bound_of_repeats_or_of_few_requests_passes_no_mean(judged: MakeRun, answered: Make, failed: Make) -> None:
    """Among 400 requests 3 hang for 20 s until they are cancelled: so few that the mean has no interval of its own."""

    def repeat(after_ms: int) -> JudgedRun:
        return judged(
            [
                failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + after_ms, error=None)
                if k in (100, 200, 300)
                else answered(k, 10 * k, 10 * k, [(10 * k + 80, 1)])
                for k in range(400)
            ]
        )

    one, repeats = (gate_of("mean_ttft<=1s", *map(repeat, cuts)) for cuts in ([20_000], range(20_000, 20_500, 100)))
    assert (one.status, repeats.status) == (Status.UNDECIDED, Status.UNDECIDED)
    assert one.why.startswith("at least 229 ms")
    assert repeats.why.startswith("at least 231 ms")
    assert repeats.evidence.high is None


# ---- conversations


def test_a_mean_of_one_conversation_has_no_limits_and_says_why(calm: JudgedRun) -> None:
    """All of its requests may be alike; of two conversations the limits are those of two numbers."""
    values, known = np.array([40.0, 60.0] * 100), KnownNumber(50.0, (49.0, 51.0))
    alone = over_groups(known, values, np.zeros(200, dtype=np.int64))
    assert alone == KnownNumber(50.0, None, Cause.FEW_CONVERSATIONS)
    gate = judge_number(required("mean_ttft<=60ms"), alone, [calm])
    assert (gate.status, gate.why) == (Status.UNDECIDED, "50 ms; requests come from too few conversations")
    two = over_groups(known, values, np.arange(200) % 2)
    assert two.interval is None or two.interval[0] < 40.0
    assert over_groups(known, values, np.full(200, -1)) == known


def test_a_mean_of_conversations_has_the_wider_limits() -> None:
    """40 of 50 requests each, alike in each and 2 ms apart: Student's t with 39 degrees of freedom is 2.0227, and the error
    grows with the square of the mean.
    """
    each = 11.0 + 2.0 * np.arange(40)
    values, groups = np.repeat(each, 50), np.repeat(np.arange(40), 50)
    half = 2.0227 * float(each.std(ddof=1)) / math.sqrt(40)
    limits = 50.0 / (1.0 + half / 50.0), 50.0 + half * (1.0 + half / 50.0) ** 2
    wider = over_groups(KnownNumber(50.0, (49.9, 50.1), grows=True), values, groups)
    assert (wider.value, wider.grows, wider.interval) == (50.0, True, pytest.approx(limits, rel=1e-4))
    assert over_groups(KnownNumber(50.0, (1.0, 99.0)), values, groups).interval == (1.0, 99.0)
    for unchanged in (KnownNumber(50.0, None, Cause.DRIFTS), KnownNumber(50.0, (49.9, 50.1))):
        assert over_groups(unchanged, values, groups if unchanged.interval is None else None) == unchanged
    failed = np.concatenate([values, [np.inf] * 9])
    assert over_groups(KnownNumber(50.0, (49.9, 50.1), grows=True), failed, np.concatenate([groups, [3] * 9])) == wider


# ---- in words


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Correlated(9, 10), "equivalent to 9 independent requests, 10 needed"),
        (Cause.DRIFTS, "it drifts, or the run is too short"),
        (Cause.CLUSTERED_ARRIVALS, "arrivals came in few clusters: send more, worth 200 independent ones"),
    ],
)
def test_why_a_number_is_undecided_is_in_words(calm: JudgedRun, reason: Reason, words: str) -> None:
    assert gate_of("request_throughput>=1", _of_rate(calm, 10.0, None, reason)).why == f"10 requests/s; {words}"


def test_an_undecided_gate_says_how_many_requests_would_decide_it(calm: JudgedRun) -> None:
    """An error of 10 with a distance of 5: four times 700 requests halve it, give or take."""
    gate = gate_of("request_throughput>=95", _of_rate(calm, 100.0, (90.0, 110.0)))
    assert gate.why.endswith("; 2,000 to 6,000 requests would decide it")
    other = gate_of("request_throughput>=105", _of_rate(calm, 100.0, (98.0, 110.0)))
    assert other.why.endswith("; 2,000 to 6,000 requests would decide it")


@pytest.mark.parametrize("value", [50.0, 60.0])
def test_a_mean_within_its_interval_of_the_limit_is_no_matter_of_slow_periods(calm: JudgedRun, value: float) -> None:
    """An error of 10 with a distance of 5, on either side of the limit."""
    gate = judge_number(required("mean_ttft<=55ms"), KnownNumber(value, (value - 10.0, value + 10.0), grows=True), [calm])
    assert gate.why == (f"{value:g} ms, 95 %: {value - 10.0:g} – {value + 10.0:g} ms; 2,000 to 6,000 requests would decide it")


def test_a_number_that_is_nearly_decided_needs_more_requests_than_it_has(calm: JudgedRun) -> None:
    """An error of 10.5 with a distance of 10: 770 requests, less by 40 % for the error's own."""
    gate = gate_of("request_throughput>=90", _of_rate(calm, 100.0, (89.5, 110.5)))
    assert gate.why.endswith("; 800 to 2,000 requests would decide it")


@pytest.mark.parametrize("limit", [99.5, 100, 100.5])
def test_a_number_too_close_to_the_limit_says_so(calm: JudgedRun, limit: float) -> None:
    gate = gate_of(f"request_throughput>={limit}", _of_rate(calm, 100.0, (90.0, 110.0)))
    assert gate.why.endswith("; it is too close to the limit for any number of requests")


def test_a_limit_of_nothing_is_too_close_to_nothing(calm: JudgedRun) -> None:
    gate = judge_number(required("goodput<=0"), KnownNumber(0.0, (0.0, 1.0)), [calm])
    assert gate.why == "0 requests/s, 95 %: 0 – 1 requests/s; it is too close to the limit for any number of requests"


def test_a_number_without_an_interval_or_a_reason_says_so(calm: JudgedRun) -> None:
    assert judge_number(required("mean_ttft<=1s"), KnownNumber(None), [calm]).why == "unknown; it has no interval"


def test_limits_that_are_equal_are_left_out(calm: JudgedRun) -> None:
    assert gate_of("request_throughput>=1", _of_rate(calm, 10.0, (10.0, 10.0))).why == "10 requests/s"


# ---- several starts


@pytest.mark.parametrize(("limit", "status"), [(8.5, Status.PASSED), (8.6, Status.UNDECIDED), (13.5, Status.FAILED)])
def test_repeats_are_judged_by_the_interval_of_their_mean(calm: JudgedRun, limit: float, status: Status) -> None:
    """The values are 10, 11 and 12: mean 11, Student's t with 2 degrees of freedom 4.303, error 0.577: 8.516 to 13.484."""
    repeats = [_of_rate(calm, value, (value - 0.1, value + 0.1)) for value in (10.0, 11.0, 12.0)]
    gate = gate_of(f"request_throughput>={limit}", *repeats)
    assert gate.status is status
    assert (gate.evidence.low, gate.evidence.high) == pytest.approx((8.516, 13.484), abs=1e-3)


def test_repeats_need_no_interval_of_their_own(calm: JudgedRun) -> None:
    repeats = [_of_rate(calm, 10.0, (9.0, 11.0)), _of_rate(calm, 10.1, None)]
    assert gate_of("request_throughput>=2", *repeats).status is Status.PASSED


def test_the_lower_limit_of_repeats_is_at_least_nothing(calm: JudgedRun) -> None:
    """The values are 1 and 10: 5.5 ± 12.706 · 4.5."""
    evidence = gate_of("request_throughput>=1", *(_of_rate(calm, value, None) for value in (1.0, 10.0))).evidence
    assert (evidence.value, evidence.low) == (5.5, 0.0)
    assert evidence.high == pytest.approx(62.678, abs=1e-3)


def test_equal_repeats_keep_the_widest_of_their_own_limits() -> None:
    rates = [Estimate(10.0, (9.0, 11.0)), Estimate(10.0, (8.0, 10.5))]
    assert of_rates(rates) == KnownNumber(10.0, (8.0, 11.0))
    without = of_rates([*rates, Estimate(10.0, None, Cause.DRIFTS)])
    assert without == KnownNumber(10.0, None, Cause.DRIFTS)


@pytest.mark.parametrize("grows", [True, False])
def test_a_rate_that_the_queue_makes_worse_is_that_of_one_run_and_of_repeats(grows: bool) -> None:
    one, other = Estimate(10.0, (9.0, 11.0)), Estimate(12.0, None, Cause.DRIFTS)
    for rates in ([one], [one, one], [one, other]):
        assert of_rates(rates, grows=grows).grows is grows


def test_a_repeat_without_a_rate_leaves_none() -> None:
    assert of_rates([Estimate(10.0, (9.0, 11.0)), UNKNOWN]) == KnownNumber(None, reason=Cause.NONE_SUCCEEDED)


def test_the_mean_of_repeats_is_of_all_their_requests(run_of: MakeRun, noise: Noise) -> None:
    runs = [run_of(noise(400, seed=seed)) for seed in range(5)]
    alone, together = (gate_of("mean_ttft<=60ms", *chosen).evidence for chosen in (runs[:1], runs))
    assert alone.low is not None
    assert alone.high is not None
    assert together.low is not None
    assert together.high is not None
    assert together.high - together.low < 0.7 * (alone.high - alone.low)
