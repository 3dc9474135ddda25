"""What a gate is judged by: the requests of a run, or of several starts together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.criteria import parse_fail_if, parse_slo
from reports.findings.checks import Validity
from reports.gates.gate import Evidence, JudgedRun, Status
from reports.gates.judge import judge, judge_together
from reports.gates.words import significant
from reports.metrics.catalogue import E2E, REQUEST_THROUGHPUT
from reports.metrics.configuration import ConfiguredLoad
from reports.run.summary_json import summary
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import Cause, Estimate, Interval
from tests.reports.gates.gating import Make, MakeRun, Noise, Queue, gate_of, required

MakeReport = Callable[..., RunReport]


# ---- one run


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("attainment>=50%", "unknown; give a per-request objective, for example --slo 'ttft<=200ms'"),
        ("goodput>=1", "unknown; give a per-request objective, for example --slo 'ttft<=200ms'"),
        ("p99_ttfo<=1s", "unknown; this run has no TTFO"),
        ("mean_ttfo<=1s", "unknown; this run has no TTFO"),
    ],
)
def test_a_number_that_a_run_does_not_have_decides_nothing(run_of: MakeRun, noise: Noise, text: str, why: str) -> None:
    run = run_of(noise(200))
    for runs in ([run], [run, run]):
        gate = gate_of(text, *runs)
        assert (gate.status, gate.evidence, gate.why) == (Status.UNDECIDED, Evidence(None), why)


def test_starts_with_different_objectives_have_no_attainment_in_common(run_of: MakeRun, noise: Noise) -> None:
    """A start that is judged by a looser objective would lift that of all."""
    strict, loose = (run_of(noise(700), objective) for objective in ("ttft<=1ms", "ttft<=1s"))
    for text in ("attainment>=40%", "goodput>=1"):
        gate = gate_of(text, strict, loose)
        assert (gate.status, gate.evidence) == (Status.UNDECIDED, Evidence(None))
        assert gate.why == "unknown; the runs have different objectives: give those that are to hold with --slo"
        assert gate_of(text, loose, loose).status is Status.PASSED
    ordered = [run_of(noise(700), *objectives) for objectives in (("ttft<=1s", "e2e<=2s"), ("e2e<=2s", "ttft<=1s"))]
    assert gate_of("attainment>=40%", *ordered).status is Status.PASSED


def test_a_run_without_a_success_or_an_end_decides_nothing_but_its_failures(judged: MakeRun, failed: Make) -> None:
    refused = judged([failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 9) for k in range(3)], "ttft<=1s")
    unsent = judged([failed(k, 10 * k, Outcome.NOT_SENT) for k in range(3)], "ttft<=1s")
    assert gate_of("request_throughput>=1", refused).why == "unknown; no request succeeded"
    assert gate_of("failed_share<=1%", refused).status is Status.FAILED
    assert gate_of("p99_ttft<=1s", refused).status is Status.FAILED
    for text in ("failed_share<=1%", "p99_ttft<=1s", "mean_ttft<=1s", "attainment>=99%", "goodput>=1"):
        assert gate_of(text, unsent).status is Status.UNDECIDED, text
        assert gate_of(text, unsent).evidence.value is None


def test_a_request_that_was_never_sent_is_no_failure_of_the_target(judged: MakeRun, steady_run: Queue, failed: Make) -> None:
    run = judged([*steady_run(199), failed(199, 1_990, Outcome.NOT_SENT)])
    gate = gate_of("failed_share<=2%", run)
    assert gate.status is Status.PASSED
    assert "of 199 failed" in gate.why


def test_a_failed_share_counts_answers_without_a_token(judged: MakeRun, answered: Make, failed: Make) -> None:
    """Among 200 requests 10 failed, and 90 of the successes had no token: 5 %, not 10 of the 110 that have a latency."""
    records = [
        failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 1)
        if k % 20 == 0
        else answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)] if k % 2 else [])
        for k in range(200)
    ]
    assert gate_of("failed_share<=1%", judged(records)).evidence.value == 0.05


def test_latency_of_successes_without_a_token_is_not_that_of_a_run_without_a_success(judged: MakeRun, answered: Make) -> None:
    run = judged([answered(k, 10 * k, 10 * k, []) for k in range(200)])
    for text in ("mean_ttft<=1s", "p99_ttft<=1s"):
        gate = gate_of(text, run)
        assert (gate.status, gate.why) == (Status.UNDECIDED, "no request has a value; 200 answers without a token are left out")


@pytest.mark.parametrize(
    ("text", "empty", "status", "words"),
    [
        ("p99_ttft<=1s", 1, Status.PASSED, "; 1 answer without a token is left out"),
        ("p99_ttft<=1s", 20, Status.PASSED, "; 20 answers without a token are left out"),
        ("p99_ttft<=1s", 21, Status.UNDECIDED, "; 21 answers without a token are left out, more than may be beyond the limit"),
        ("p99_e2e<=1s", 21, Status.UNDECIDED, "; 21 answers without a token are left out, more than may be beyond the limit"),
        ("p50_ttft<=1s", 900, Status.PASSED, "; 900 answers without a token are left out"),
        ("mean_ttft<=1s", 21, Status.PASSED, "; 21 answers without a token are left out"),
        ("p99_ttft<=1ms", 900, Status.FAILED, "; 900 answers without a token are left out"),
        ("p99_ttft>=10ms", 900, Status.PASSED, "; 900 answers without a token are left out"),
    ],
)
def test_answers_without_a_token_do_not_keep_a_limit(
    judged: MakeRun, answered: Make, noise: Noise, text: str, empty: int, status: Status, words: str
) -> None:
    """A target that answers half of its requests by nothing at once held any load, by the others' TTFT."""
    chosen = set(np.random.default_rng(7).permutation(2_000)[:empty].tolist())
    records = [
        answered(k, 10 * k, 10 * k, [] if k in chosen else [(10 * k + ms, 1)], done=10 * k + ms + 1)
        for k, ms in enumerate(noise(2_000))
    ]
    gate = gate_of(text, judged(records))
    assert (gate.status, gate.why.endswith(words)) == (status, True), gate.why


@pytest.mark.parametrize("name", ["tpot", "itl", "icl", "e2e", "ttft"])
def test_every_latency_has_the_share_that_was_over_its_own_limit(run_of: MakeRun, noise: Noise, name: str) -> None:
    """The second token comes 10 ms after the first, which takes about 50 ms."""
    run = run_of(noise(1_000))
    above, below = {"ttft": (500, 5), "e2e": (500, 5)}.get(name, (11, 9))
    assert gate_of(f"p99_{name}<={above}ms", run).status is Status.PASSED
    gate = gate_of(f"p99_{name}<={below}ms", run)
    assert (gate.status, gate.evidence.beyond is not None) == (Status.FAILED, True)
    assert f"were over {below} ms" in gate.why


@pytest.mark.parametrize("limit", ["99.6", "1,234.5", "0.125", "60,000"])
def test_the_evidence_has_the_limit_as_it_was_given(run_of: MakeRun, noise: Noise, limit: str) -> None:
    """With three digits 99.6 ms was 100 ms, which the requests between are not over."""
    run, value = run_of(noise(1_000)), limit.replace(",", "")
    assert f"were over {limit} ms;" in gate_of(f"p99_ttft<={value}ms", run).why
    assert f"were at least {limit} ms;" in gate_of(f"p99_ttft>={value}ms", run).why


@pytest.mark.parametrize("outcome", [Outcome.WITHDRAWN, Outcome.SERVER_ERROR])
def test_a_limit_on_tpot_counts_requests_that_failed_or_were_cut_off(
    judged: MakeRun, answered: Make, failed: Make, outcome: Outcome
) -> None:
    """A tenth gave one token of five, and none in the second until they ended; the others' tokens came each 10 ms."""
    records = [
        failed(
            k, 10 * k, outcome, 10 * k, 10 * k + 1_050, requested_output_tokens=5, token_times_ns=((10 * k + 50) * 1_000_000,)
        )
        if k % 10 == 0
        else answered(k, 10 * k, 10 * k, [(10 * k + 50 + 10 * token, 1) for token in range(5)])
        for k in range(1_000)
    ]
    gate = gate_of("p99_tpot<=50ms", judged(records))
    assert gate.status is Status.FAILED
    assert "10.0 % of 1,000 were over 50 ms" in gate.why
    assert gate.why.startswith("at least 250 ms" if outcome is Outcome.WITHDRAWN else "failed")
    assert gate_of("mean_tpot<=50ms", judged(records)).evidence.value == pytest.approx(10.0)  # of successes
    cut_soon = judged([structs.replace(record, done_ns=(record.token_times_ns or (0,))[-1] + 1) for record in records])
    assert gate_of("p99_tpot<=50ms", cut_soon).status is not Status.PASSED


@pytest.mark.parametrize(("text", "left_out"), [
    ("mean_tpot<=50ms", True), ("mean_itl<=50ms", True), ("p99_icl<=50ms", True), ("p99_tpot<=50ms", False),
    ("mean_e2e<=1s", False),
])  # fmt: skip
def test_requests_that_were_cut_off_are_said_to_be_left_out(
    judged: MakeRun, answered: Make, failed: Make, text: str, left_out: bool
) -> None:
    """A tenth was cut off: their times between tokens are not among those of successes."""
    records = [
        failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 1_050, requested_output_tokens=5)
        if k % 10 == 0
        else answered(k, 10 * k, 10 * k, [(10 * k + 50 + 10 * token, 1) for token in range(5)])
        for k in range(1_000)
    ]
    assert gate_of(text, judged(records)).why.endswith("; 100 requests that were cut off are left out") is left_out
    assert "left out" not in gate_of(text, judged(records[1:10])).why
    assert gate_of(text, judged(records[:10])).why.endswith("; 1 request that was cut off is left out") is left_out


@pytest.mark.parametrize(("requested", "words"), [(1, ""), (2, "; 1 request that was cut off is left out")])
def test_a_request_of_one_token_has_no_time_between_tokens_that_a_cut_could_leave_out(
    judged: MakeRun, answered: Make, failed: Make, requested: int, words: str
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 50 + 10 * token, 1) for token in range(5)]) for k in range(200)]
    records[100] = failed(100, 1_000, Outcome.WITHDRAWN, 1_000, 2_050, requested_output_tokens=requested)
    for text in ("mean_tpot<=50ms", "p99_icl<=50ms", "mean_itl<=50ms"):
        why = gate_of(text, judged(records)).why
        assert ("left out" in why, why.endswith(words)) == (bool(words), True), why


def test_latencies_count_from_the_schedule(judged: MakeRun, answered: Make) -> None:
    """All are sent 400 ms late, and answered 50 ms later."""
    run = judged([answered(k, 10 * k, 10 * k + 400, [(10 * k + 450, 1)]) for k in range(1_000)], "ttft<=300ms")
    for text in ("p99_ttft<=300ms", "mean_ttft<=300ms", "attainment>=99%"):
        assert gate_of(text, run).status is Status.FAILED, text


# ---- several starts


def test_requests_of_repeats_count_together(run_of: MakeRun, noise: Noise) -> None:
    """Each of 300 requests, which is too few for a p99; together they are 1,500."""
    runs = [run_of(noise(300, seed=seed)) for seed in range(5)]
    assert {gate_of("p99_ttft<=500ms", run).status for run in runs} == {Status.UNDECIDED}
    gate = gate_of("p99_ttft<=500ms", *runs)
    assert gate.status is Status.PASSED
    assert "0.0 % of 1,500 were over" in gate.why


@pytest.mark.parametrize("slow", [0, 2, 60])
def test_equal_repeats_decide_what_one_decides(run_of: MakeRun, noise: Noise, slow: int) -> None:
    runs = [run_of(noise(2_000, slow, seed=seed), "ttft<=500ms") for seed in range(5)]
    for text in ("p99_ttft<=500ms", "attainment>=99%", "failed_share<=1%", "p50_ttft<=500ms"):
        alone, together = {gate_of(text, run).status for run in runs}, gate_of(text, *runs).status
        assert together is not Status.UNDECIDED, text
        assert alone <= {together, Status.UNDECIDED}, text


def test_a_start_that_differs_is_a_cluster_of_its_own(run_of: MakeRun, noise: Noise) -> None:
    """4 % of the requests of one start in five are slow: 0.8 % of all, which five equal starts would hold against 2.5 %."""
    one_slow = [run_of(noise(1_000, 40 if seed == 2 else 0, seed=seed)) for seed in range(5)]
    all_equal = [run_of(noise(1_000, 8, seed=seed)) for seed in range(5)]
    different, equal = (gate_of("p99_ttft<=500ms", *runs).evidence.beyond for runs in (one_slow, all_equal))
    assert different is not None
    assert equal is not None
    assert different.share == equal.share == 0.008
    assert different.high > 1.25 * equal.high


def test_the_value_of_repeats_is_that_of_all_their_requests(run_of: MakeRun, noise: Noise) -> None:
    runs = [run_of(noise(300, slow, seed=slow), "ttft<=500ms") for slow in (0, 6, 12)]
    every = np.sort(np.concatenate([noise(300, slow, seed=slow) for slow in (0, 6, 12)]))
    assert gate_of("p50_ttft<=1s", *runs).evidence.value == pytest.approx(every[449], abs=1e-3)
    assert gate_of("mean_ttft<=1s", *runs).evidence.value == pytest.approx(every.mean(), abs=1e-3)
    assert gate_of("attainment>=99%", *runs).evidence.value == pytest.approx(882 / 900)


def test_one_repeat_whose_queue_grew_is_enough_to_pass_nothing(judged: MakeRun, queued_run: Queue) -> None:
    calm, growing = judged(queued_run(20.0, 1)), judged(queued_run(75.0, 1))
    gate = gate_of("p99_ttft<=60s", calm, growing)
    assert gate.status is Status.UNDECIDED
    assert gate.why.endswith("the queue grew, so a longer run is worse")
    assert gate_of("p99_ttft<=50ms", calm, growing).status is Status.FAILED


def test_a_repeat_without_the_number_leaves_none(run_of: MakeRun, noise: Noise) -> None:
    run = run_of(noise(200))
    without = replace(run, metrics=replace(run.metrics, latencies={E2E: run.metrics.e2e_ms}))
    assert gate_of("p50_ttft<=1s", run, without).why == "unknown; this run has no TTFT"


def test_the_mean_of_starts_too_short_for_an_interval_has_that_of_their_means(run_of: MakeRun) -> None:
    """50 and 60 ms: 55 ms, Student's t with 1 degree of freedom 12.706, error 5 ms."""
    starts = [run_of([ms] * 40) for ms in (50.0, 60.0)]
    evidence = gate_of("mean_ttft<=200ms", *starts).evidence
    assert (evidence.value, evidence.low) == (pytest.approx(55.0), 0.0)
    assert evidence.high == pytest.approx(118.531, abs=1e-3)
    assert [gate_of(f"mean_ttft<={limit}ms", *starts).status for limit in (119, 118)] == [Status.PASSED, Status.UNDECIDED]
    alone = gate_of("mean_ttft<=200ms", starts[0])
    assert (alone.evidence.low, alone.evidence.high, alone.status) == (None, None, Status.UNDECIDED)


def test_a_start_without_a_token_leaves_the_means_of_the_others_no_interval(
    run_of: MakeRun, judged: MakeRun, answered: Make
) -> None:
    starts = [run_of([ms] * 40) for ms in (50.0, 60.0)]
    without = judged([answered(k, 10 * k, 10 * k, []) for k in range(40)])
    gate = gate_of("mean_ttft<=200ms", *starts, without)
    assert (gate.evidence.value, gate.evidence.low, gate.evidence.high) == (pytest.approx(55.0), None, None)
    assert gate.status is Status.UNDECIDED


# ---- goodput


def test_goodput_below_what_the_arrivals_need_fails_by_attainment(judged: MakeRun, queued_run: Queue) -> None:
    """75 requests/s at a target that answers 49, most of them late."""
    gate = gate_of("goodput>=37.5", judged(queued_run(75.0, 1), "ttft<=50ms"))
    assert gate.status is Status.FAILED
    assert "the queue grew by" in gate.why


def test_goodput_that_fails_by_attainment_is_shown_per_second(judged: MakeRun, answered: Make, failed: Make) -> None:
    """It was shown as a share, "0.0 %", where no answer had a token, and in a run without a success."""
    without_tokens = judged([answered(k, 10 * k, 10 * k, []) for k in range(100)], "ttft<=50ms")
    gate = gate_of("goodput>=20", without_tokens)
    assert gate.status is Status.FAILED
    assert gate.why.startswith("0 requests/s; 100.0 % of 100 missed an objective, at up to 10")
    refused = judged([failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 1) for k in range(50)], "ttft<=50ms")
    (invalid,) = judge([required("goodput>=20")], refused, Validity.INVALID)
    assert invalid.why == "unknown; the run is not valid"


def test_goodput_of_steady_spells_fails_where_twenty_times_too_many_missed(run_of: MakeRun, noise: Noise) -> None:
    """40 % of the requests of a closed loop missed an objective in one spell: no interval, but 2 % were allowed."""
    values = noise(2_000)
    values[800:1_600] = [1_000.0] * 800
    run = run_of(values, "ttft<=500ms", load=ConfiguredLoad(rate_per_s=100.0))
    rate = run.metrics.goodput
    assert rate is not None
    assert rate.rate is not None
    gate = gate_of("goodput>=98.05", run)
    assert gate.status is Status.FAILED, gate.why
    assert rate.rate.interval is not None or "missed an objective, at 100 requests/s" in gate.why


def test_a_drain_in_which_nothing_arrives_is_no_evidence_against_the_goodput_of_longer_runs(
    judged: MakeRun, answered: Make
) -> None:
    """100 requests/s for 20 s, of which each takes 3 s: none misses the objective, and the drain makes 87 requests/s of it."""
    first, *others = (
        judged([answered(k, 10 * k, 10 * k, [(10 * k + ms, 1)]) for k in range(2_000)], "ttft<=60s")
        for ms in (3_000, 3_010, 2_990)
    )
    for runs in ([first], [first, *others]):
        gate = gate_of("goodput>=95", *runs)
        assert gate.evidence.value == pytest.approx(87, abs=0.1)
        assert gate.evidence.high is not None
        assert gate.evidence.high >= 100
        assert gate.status is Status.UNDECIDED


def test_goodput_of_users_who_think_fails_of_five_starts_as_of_one(judged: MakeRun, answered: Make) -> None:
    """10 users whose answers take 90 to 110 ms and who think for 150 ms on average: 40 requests/s, under a floor of 60."""
    closed = ConfiguredLoad(closed=True, concurrency=10)
    runs = [judged(_thinking(answered, seed), "ttft<=1s", load=closed) for seed in range(5)]
    for chosen in (runs[:1], runs):
        gate = gate_of("goodput>=60", *chosen)
        assert gate.evidence.value == pytest.approx(40, rel=0.05)
        assert gate.evidence.high == pytest.approx(40, rel=0.1)
        assert gate.status is Status.FAILED, gate.why


def test_the_upper_limit_of_goodput_allows_for_the_time_after_the_first_user_stopped(judged: MakeRun, answered: Make) -> None:
    """20 users who ask every 200 ms, 4 of whom stop after 18 s: 100 requests/s until then, 80 in the last 2 s."""
    run = judged(_conversations(answered), "ttft<=1s", load=ConfiguredLoad(sessions=True))
    measured = run.metrics.goodput
    assert measured is not None
    assert measured.rate is not None
    assert measured.rate.interval is not None
    assert measured.rate.value == pytest.approx(98, abs=0.3)
    high = gate_of("goodput>=99", run).evidence.high
    assert high == pytest.approx(measured.rate.interval[1] * 100.0 / measured.rate.value, rel=0.002)


def _thinking(answered: Make, seed: int) -> list[Record]:
    """2,000 requests in a closed loop of 10 users, who send for the first time at times of their own."""
    rng = np.random.default_rng(seed)
    free_ms = rng.uniform(0.0, 250.0, 10)
    records = []
    for k in range(2_000):
        user, took_ms = int(free_ms.argmin()), rng.uniform(90.0, 110.0)
        due_ms = float(free_ms[user])
        records.append(answered(k, due_ms, due_ms, [(due_ms + took_ms, 1)]))
        free_ms[user] += took_ms + rng.exponential(150.0)
    return records


def _conversations(answered: Make) -> list[Record]:
    """The turns of 20 conversations, a turn each 200 ms whose answer takes 30 to 50 ms: 4 have 90 turns, the others 100."""
    rng = np.random.default_rng(3)
    due = [(10 * user + 200 * turn, user, turn) for user in range(20) for turn in range(100 if user % 5 else 90)]
    records: list[Record] = []
    last: dict[int, int] = {}
    for k, (due_ms, user, _) in enumerate(sorted(due)):
        records.append(answered(k, due_ms, due_ms, [(due_ms + rng.uniform(30.0, 50.0), 1)], parent=last.get(user)))
        last[user] = k
    return records


def _with_goodput(run: JudgedRun, value: float, interval: Interval | None, throughput: Estimate | None = None) -> JudgedRun:
    """``run`` with this goodput, which drifts where it has no interval, and with this throughput."""
    metrics = run.metrics
    whole = metrics.windows.whole
    assert metrics.goodput is not None
    assert whole is not None
    goodput = replace(metrics.goodput, rate=Estimate(value, interval, None if interval else Cause.DRIFTS))
    throughputs = whole.throughputs if throughput is None else {**whole.throughputs, REQUEST_THROUGHPUT: throughput}
    windows = replace(metrics.windows, whole=replace(whole, throughputs=throughputs))
    return replace(run, metrics=replace(metrics, goodput=goodput, windows=windows))


def _sent_each(answered: Make, due_ms: Sequence[float], took_ms: float) -> list[Record]:
    """Requests that end ``took_ms`` after they were due, with their only token."""
    return [answered(k, due, due, [(due + took_ms, 1)], done=due + took_ms) for k, due in enumerate(sorted(due_ms))]


@pytest.mark.parametrize(
    ("due_ms", "took_ms", "load", "without_ramps", "whole"),
    [
        # The offered rate; of the answers 50 end in the second half of the sending, of 1 s.
        ([10 * k for k in range(51)] + [520 + 20 * k for k in range(25)], 500, ConfiguredLoad(), 75.0, 76 / 1.5),
        # Users who think: 18 end after the median of 250 ms and until the last send at 2,050 ms, the 19th at 250 ms.
        ([1_000 + 100 * k for k in range(20)] + [3_050], 250, ConfiguredLoad(closed=True), 18 / 1.8, 21 / 2.3),
        # Users in turns: the first stops at 500 ms, which is before half of the sending, at 980 ms.
        (
            [100 * k for k in range(5)] + [first + 100 * k for first in (30, 60) for k in range(20)],
            100,
            ConfiguredLoad(closed=True),
            22 / 0.88,
            45 / 2.06,
        ),
        ([10 * k for k in range(101)], 1_000, ConfiguredLoad(closed=True), 1.0, 1.0),  # none ends before the last send
    ],
)
def test_the_upper_limit_of_goodput_rises_by_the_rate_without_ramp_and_drain_over_that_of_the_whole(
    judged: MakeRun,
    answered: Make,
    due_ms: list[float],
    took_ms: float,
    load: ConfiguredLoad,
    without_ramps: float,
    whole: float,
) -> None:
    run = judged(_sent_each(answered, due_ms, took_ms), "ttft<=1s", load=load)
    evidence = gate_of("goodput>=1", _with_goodput(run, 10.0, (9.0, 11.0))).evidence
    assert (evidence.value, evidence.low) == (10.0, 9.0)
    assert evidence.high == pytest.approx(11.0 * without_ramps / whole, rel=1e-12)
    steady = judged(_sent_each(answered, [10 * k for k in range(101)], 0.001), "ttft<=1s", load=ConfiguredLoad(closed=True))
    for runs in ([run, steady], [steady, run]):  # the largest of the starts
        known = [_with_goodput(each, 10.0, (9.0, 11.0)) for each in runs]
        assert gate_of("goodput>=1", *known).evidence.high == pytest.approx(evidence.high, rel=0.02)


def test_goodput_that_fails_by_attainment_keeps_its_own_limits(run_of: MakeRun, noise: Noise) -> None:
    """100 requests/s arrive, of which 280 of 700 missed the objective and 2 % may."""
    run = run_of(noise(700, 280, 600.0), "ttft<=500ms", load=ConfiguredLoad(rate_per_s=100.0))
    gate = gate_of("goodput>=98", _with_goodput(run, 60.0, (40.0, 100.0)))
    assert gate.status is Status.FAILED
    assert (gate.evidence.value, gate.evidence.low, gate.evidence.beyond) == (60.0, 40.0, None)
    begin, high, end = gate.why.partition(f"95 %: 40 – {significant(gate.evidence.high or 0.0)} requests/s; ")
    assert (begin, bool(high)) == ("60 requests/s, ", True), gate.why
    assert re.fullmatch(r"40\.0 % of 700 missed an objective, at 100 requests/s; lower bound [\d.]+ %, 2\.0 % allowed", end), (
        gate.why
    )


def test_few_requests_fail_no_goodput_of_all_that_arrives(run_of: MakeRun, noise: Noise) -> None:
    """One of 300 missed the objective, where none may; they may all lie within one slow time."""
    run = run_of(noise(300, 1, 600.0), "ttft<=500ms", load=ConfiguredLoad(rate_per_s=100.0))
    assert gate_of("goodput>=100", run).status is Status.UNDECIDED


def test_requests_that_arrive_at_no_known_rate_are_at_most_what_the_throughput_may_be(run_of: MakeRun, noise: Noise) -> None:
    """100 requests/s were offered, and 80 completed, at most 84: then 105 arrive. Without an interval, 150 may."""
    run = run_of(noise(700), "ttft<=500ms")
    known, unknown = Estimate(80.0, (76.0, 84.0)), Estimate(80.0, None, Cause.DRIFTS)
    drifts = "50 requests/s; it drifts, or the run is too short"
    for throughputs, limit, more in (
        ([known], 105, ""),
        ([known], 106, "; no more than 105 requests/s are likely to arrive"),
        ([unknown], 150, ""),
        ([unknown], 151, "; no more than 150 requests/s are likely to arrive"),
        ([known, unknown], 127, ""),
        ([known, unknown], 128, "; no more than 128 requests/s are likely to arrive"),  # 127.5
    ):
        gate = gate_of(f"goodput>={limit}", *(_with_goodput(run, 50.0, None, each) for each in throughputs))
        if len(throughputs) == 1:
            assert gate.why == drifts + more
        assert gate.status is (Status.FAILED if more else Status.UNDECIDED)
        assert gate.why.endswith(more or "short")


def test_more_goodput_than_requests_arrived_fails(run_of: MakeRun, noise: Noise) -> None:
    gate = gate_of("goodput>=150", run_of(noise(2_000), "ttft<=500ms"))
    assert gate.status is Status.FAILED


def test_goodput_that_many_requests_show_passes(run_of: MakeRun, noise: Noise) -> None:
    assert gate_of("goodput>=90", run_of(noise(2_000), "ttft<=500ms")).status is Status.PASSED


# ---- in words


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("p99_ttft<=500ms", Status.PASSED, "79.9 ms; 0.0 % of 2,000 were over 500 ms; upper bound # %, 1.0 % allowed; "
            "events rarer than one in 6.7 s could have been missed"),
        ("p99_ttft>=500ms", Status.FAILED, "79.9 ms; 0.0 % of 2,000 were at least 500 ms; 95 %: 0.0 – # %, 1.0 % needed"),
        ("p50_ttft<=1ms", Status.FAILED, "49.8 ms; 100.0 % of 2,000 were over 1 ms; lower bound # %, 50.0 % allowed"),
        ("p50_ttft>=1ms", Status.PASSED, "49.8 ms; 100.0 % of 2,000 were at least 1 ms; 95 %: # – 100.0 %, 50.0 % needed"),
        ("p50_ttft>=50ms", Status.UNDECIDED, "49.8 ms; 49.1 % of 2,000 were at least 50 ms; 95 %: # – # %, 50.0 % needed; "
            "# or more requests would decide it"),
        ("p50_ttft<=50ms", Status.UNDECIDED, "49.8 ms; 49.1 % of 2,000 were over 50 ms; 95 %: # – # %, 50.0 % allowed; "
            "# or more requests would decide it"),
        ("attainment>=70%", Status.PASSED, "100.0 %; 0.0 % of 2,000 missed an objective; upper bound # %, 30.0 % allowed"),
        ("attainment<=50%", Status.FAILED, "100.0 %; 0.0 % of 2,000 missed an objective; 95 %: 0.0 – # %, 50.0 % needed"),
        ("failed_share>=1%", Status.FAILED, "0.0 %; 0.0 % of 2,000 failed; 95 %: 0.0 – # %, 1.0 % needed"),
        ("mean_ttft<=51ms", Status.UNDECIDED, "50.9 ms, 95 %: # – # ms; "
            "it is too close to the limit for any number of requests"),
        ("mean_ttft>=1s", Status.FAILED, "50.9 ms, 95 %: # – # ms"),
        ("goodput>=90", Status.PASSED, "100 requests/s, 95 %: # – 100 requests/s"),
        ("goodput>=150", Status.FAILED, "100 requests/s, 95 %: # – 100 requests/s"),
        ("goodput<=200", Status.PASSED, "100 requests/s, 95 %: # – 100 requests/s"),
        ("output_token_throughput>=190", Status.PASSED, "199 tokens/s, 95 %: # – # tokens/s"),
    ],
)  # fmt: skip
def test_the_evidence_of_each_kind_of_gate_in_words(run_of: MakeRun, noise: Noise, text: str, status: Status, why: str) -> None:
    """2,000 requests in 20 s; # is a limit."""
    gate = gate_of(text, run_of(noise(2_000), "ttft<=500ms"))
    assert gate.status is status
    assert re.fullmatch(re.escape(why).replace("\\#", r"[\d,]+(?:\.\d+)?"), gate.why), gate.why


# ---- validity, and JSON


def test_of_a_run_that_is_not_valid_nothing_passes_or_fails(run_of: MakeRun, noise: Noise) -> None:
    wanted = [required(text) for text in ("p99_ttft<=60s", "p99_ttft<=1ms", "request_throughput>=1e6", "p99_ttfo<=1s")]
    gates = judge(wanted, run_of(noise(2_000)), Validity.INVALID)
    assert {gate.status for gate in gates} == {Status.UNDECIDED}
    assert [gate.why for gate in gates] == [
        "79.9 ms; the run is not valid",
        "79.9 ms; the run is not valid",
        "100 requests/s; the run is not valid",
        "unknown; the run is not valid",
    ]


def test_a_lower_bound_of_a_run_that_is_not_valid_stays_one(judged: MakeRun, failed: Make) -> None:
    """All were cancelled 5 ms after they were due."""
    cancelled = judged([failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 5, error=None) for k in range(300)])
    for gate in judge([required("mean_e2e<=100ms"), required("p99_e2e<=100ms")], cancelled, Validity.INVALID):
        assert gate.why == "at least 5 ms; the run is not valid"


def test_where_failed_requests_alone_make_a_run_invalid_gates_fail_and_do_not_pass(run_of: MakeRun, noise: Noise) -> None:
    wanted = [required(text) for text in ("p99_ttft<=60s", "p99_ttft<=1ms")]
    gates = judge(wanted, run_of(noise(2_000)), Validity.REQUESTS_FAILED)
    assert [gate.status for gate in gates] == [Status.UNDECIDED, Status.FAILED]


def test_a_run_has_a_gate_for_each_requirement_in_their_order(run_of: MakeRun, noise: Noise) -> None:
    wanted = [required(text) for text in ("p99_ttft<=60s", "mean_e2e<=1ms", "p50_ttft<=1s")]
    run = run_of(noise(200))
    gates = judge(wanted, run, Validity.VALID)
    assert [gate.requirement for gate in gates] == wanted
    assert list(gates) == [judge_together(requirement, [run], Validity.VALID) for requirement in wanted]


def test_json_has_the_share_beyond_a_limit_and_the_limits_of_a_number(make_report: MakeReport, steady_run: Queue) -> None:
    folder = make_report(steady_run(700)).folder
    criteria = [parse_slo("p99_ttft<=60s"), parse_fail_if("request_throughput<1e6"), parse_slo("failed_share<=5%")]
    of_tail, of_rate, of_failures = summary(read_run(folder, criteria))["gates"]
    assert (of_tail["requirement"], of_tail["status"]) == ("p99_ttft<=60000ms", "passed")
    assert (of_tail["value"], of_tail["low"], of_tail["high"]) == (100.0, None, None)
    beyond = of_tail["beyond"]
    assert (beyond["share"], beyond["low"], beyond["allowed"]) == (0.0, 0.0, 0.01)
    assert 0.0 < beyond["high"] < 0.01
    assert (of_rate["status"], of_rate["beyond"]) == ("failed", None)
    assert of_rate["low"] <= of_rate["value"] <= of_rate["high"]
    assert (of_failures["low"], of_failures["high"]) == (of_failures["beyond"]["low"], of_failures["beyond"]["high"])


def test_a_run_without_requirements_has_no_gates(make_report: MakeReport, steady_run: Queue) -> None:
    assert make_report(steady_run(50)).gates == ()
