"""Findings: each one provoked, each one quiet where there is nothing to say, and the edges between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.records.record import FAILURES, Outcome, Record, TokenSource
from reports.findings.checks import is_valid
from reports.findings.finding import Finding, Severity
from reports.findings.outcomes import NothingDone, PromptEchoed, WarmUpFailed
from reports.run_report import RunReport
from tests.reports.found import finding_of as _finding
from workloads.arrivals import Arrivals, Constant, Exponential, Gamma

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _severity(report: RunReport, code: str) -> str | None:
    finding = _finding(report, code)
    return None if finding is None else finding.severity.value


def test_a_run_with_nothing_wrong_has_no_findings(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(700))
    assert report.findings == ()
    assert report.valid


# ---- nothing_done


def test_nothing_done(make_report: MakeReport, failed: Make) -> None:
    report = make_report([failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(3)])
    finding = _finding(report, "nothing_done")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.INVALID, {"scheduled": 3})
    assert not report.valid


def test_one_success_is_not_nothing(make_report: MakeReport, failed: Make, answered: Make) -> None:
    report = make_report([answered(0, 0, 0, [(5, 1)]), failed(1, 0, Outcome.CONNECT, 0, 1)])
    assert _finding(report, "nothing_done") is None


# ---- errors


@pytest.mark.parametrize(
    ("failures", "severity"), [(0, None), (1, "warning"), (2, "warning"), (3, "invalid"), (200, "invalid")]
)
def test_errors_above_one_in_a_hundred_make_a_run_invalid(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make, failures: int, severity: str | None
) -> None:
    records = steady_run(200)
    for k in range(failures):
        records[k] = failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 5)
    assert _severity(make_report(records), "errors") == severity


def test_errors_tell_kinds_share_and_the_first_message(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = steady_run(10)
    records[3] = failed(3, 30, Outcome.TIMEOUT, 30, 99, error="no end within 1 s")
    records[5] = failed(5, 50, Outcome.REFUSED, 50, 51, error="queue full")
    records[7] = failed(7, 70, Outcome.REFUSED, 70, 71, error="queue full")
    finding = _finding(make_report(records), "errors")
    assert finding is not None
    assert finding.evidence == {
        "failed": 3,
        "share": 0.3,
        "by_kind": {"refused": 2, "timeout": 1},
        "first_error": "no end within 1 s",
    }


@pytest.mark.parametrize("kind", [kind for kind in FAILURES if kind is not Outcome.NOT_SENT])
def test_every_kind_of_failure_is_an_error(make_report: MakeReport, steady_run: SteadyRun, failed: Make, kind: Outcome) -> None:
    records = steady_run(10)
    sent = None if kind is Outcome.LOST else 0
    records[0] = failed(0, 0, kind, sent, sent)
    finding = _finding(make_report(records), "errors")
    assert finding is not None
    assert finding.evidence["by_kind"] == {kind.value: 1}


def test_requests_that_were_not_sent_are_no_errors(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(5), failed(5, 50, Outcome.NOT_SENT)]
    assert _finding(make_report(records, interrupted=True), "errors") is None


# ---- schedule_slip


def _late(answered: Make, slip_ms: float, latency_ms: float, count: int = 50) -> list[Record]:
    return [
        answered(k, 100 * k, 100 * k + slip_ms, [(100 * k + slip_ms + latency_ms, 1)], ignore_eos=False) for k in range(count)
    ]


@pytest.mark.parametrize(
    ("slip_ms", "latency_ms", "severity"),
    [
        (0, 10, None),
        (1.9, 1, None),  # below the floor of 2 ms whatever the share
        (2, 100, None),  # 2 %
        (9, 100, None),
        (11, 100, "warning"),
        (50, 100, "warning"),
        (51, 100, "invalid"),
        (2, 3, "invalid"),
    ],
)
def test_slip_is_held_against_the_median_latency(
    make_report: MakeReport, answered: Make, slip_ms: float, latency_ms: float, severity: str | None
) -> None:
    assert _severity(make_report(_late(answered, slip_ms, latency_ms)), "schedule_slip") == severity


def test_slip_evidence(make_report: MakeReport, answered: Make) -> None:
    finding = _finding(make_report(_late(answered, 20, 80)), "schedule_slip")
    assert finding is not None
    assert finding.evidence == pytest.approx({"p99_slip_ms": 20, "p50_latency_from_sent_ms": 80})


def test_slip_is_held_against_the_first_token_where_there_is_one_and_the_whole_answer_otherwise(
    make_report: MakeReport, answered: Make
) -> None:
    records = [answered(k, 100 * k, 100 * k + 20, [(100 * k + 50, 1), (100 * k + 1_020, 1)]) for k in range(20)]
    assert _severity(make_report(records, streaming=True), "schedule_slip") == "invalid"  # 20 of 30 ms
    assert _severity(make_report(records, streaming=False), "schedule_slip") is None  # 20 of 1,000 ms


def test_late_sends_that_failed_count_as_slip(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = _late(answered, 0, 10)
    records[10:20] = [failed(k, 100 * k, Outcome.TIMEOUT, 100 * k + 30, 100 * k + 90) for k in range(10, 20)]
    assert _severity(make_report(records), "schedule_slip") == "invalid"


def test_where_most_requests_failed_the_client_is_not_blamed_beside_a_latency_of_zero(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = _late(answered, 3, 1_000, count=40)
    records += [failed(k, 100 * k, Outcome.TIMEOUT, 100 * k + 3, 100 * k + 2_000) for k in range(40, 100)]
    finding = _finding(make_report(records), "schedule_slip")
    assert finding is None or finding.evidence["p50_latency_from_sent_ms"] is None


# ---- achieved_below_offered


@pytest.mark.parametrize(("stretch", "severity"), [(1.0, None), (1.04, None), (1.08, "warning"), (1.2, "invalid")])
def test_a_rate_that_was_not_reached(make_report: MakeReport, answered: Make, stretch: float, severity: str | None) -> None:
    records = [answered(k, 10 * k, 10 * k * stretch, [(10 * k * stretch + 5_000, 1)]) for k in range(101)]
    report = make_report(records)
    assert _severity(report, "achieved_below_offered") == severity
    if severity is not None:
        finding = _finding(report, "achieved_below_offered")
        assert finding is not None
        assert finding.evidence == pytest.approx({"offered_rate": 100.0, "achieved_rate": 100 / stretch})


def test_everything_at_once_offers_no_rate_to_fall_short_of(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, 0, 50 * k, [(10_000, 1)]) for k in range(20)])
    assert _finding(report, "achieved_below_offered") is None


def test_an_interrupted_run_is_not_blamed_for_its_rate(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [answered(k, 10 * k, 20 * k, [(20 * k + 5_000, 1)]) for k in range(50)]
    assert _finding(make_report(records), "achieved_below_offered") is not None
    stopped = [*records, failed(50, 500, Outcome.NOT_SENT)]
    assert _finding(make_report(stopped, interrupted=True), "achieved_below_offered") is None


# ---- interrupted


def test_an_interrupted_run_says_how_much_was_not_sent(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(700), *(failed(k, 10 * k, Outcome.NOT_SENT) for k in range(700, 900))]
    report = make_report(records, interrupted=True)
    finding = _finding(report, "interrupted")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.WARNING, {"not_sent": 200, "scheduled": 900})
    assert [f.code for f in report.findings] == ["interrupted"]


def test_a_run_stopped_while_it_drained_is_interrupted(make_report: MakeReport, steady_run: SteadyRun) -> None:
    finding = _finding(make_report(steady_run(5), interrupted=True), "interrupted")
    assert finding is not None
    assert finding.evidence["not_sent"] == 0


def test_unsent_requests_betray_an_interruption_that_the_manifest_does_not_tell(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    assert _finding(make_report([*steady_run(5), failed(5, 50, Outcome.NOT_SENT)]), "interrupted") is not None


# ---- sample_too_small


@pytest.mark.parametrize(("count", "severity"), [(1, "note"), (661, "note"), (662, None)])
def test_the_sample_size_guard(make_report: MakeReport, steady_run: SteadyRun, count: int, severity: str | None) -> None:
    report = make_report(steady_run(count))
    assert _severity(report, "sample_too_small") == severity
    assert report.valid
    if severity is not None:
        finding = _finding(report, "sample_too_small")
        assert finding is not None
        assert finding.evidence == {"n": count, "needed_for_p99": 662}


def test_failures_are_no_samples(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(661), *(failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 9) for k in range(661, 700))]
    finding = _finding(make_report(records), "sample_too_small")
    assert finding is not None
    assert finding.evidence["n"] == 661


def test_answers_without_tokens_are_no_samples_of_a_latency(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make
) -> None:
    records = [*steady_run(600), *(answered(k, 10 * k, 10 * k, []) for k in range(600, 700))]
    finding = _finding(make_report(records), "sample_too_small")
    assert finding is not None
    assert finding.evidence["n"] == 600


# ---- output_shorter_than_asked


def test_answers_that_ended_by_themselves_are_a_note(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 1)], requested_output_tokens=5)
    records[6] = answered(6, 60, 60, [], requested_output_tokens=4)
    finding = _finding(make_report(records), "output_shorter_than_asked")
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert finding.evidence == pytest.approx({"requests": 2, "share": 0.2, "asked_tokens": 33, "got_tokens": 25})
    assert "ended by themselves" in finding.advice


def test_answers_shorter_against_the_ask_are_a_warning(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10, ignore_eos=True)
    records[4] = answered(4, 40, 40, [(140, 1)], requested_output_tokens=5, ignore_eos=True)
    finding = _finding(make_report(records), "output_shorter_than_asked")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert "--ignore_eos" in finding.advice


@pytest.mark.parametrize("output_tokens", [None, 3, 4])
def test_answers_as_long_as_asked_longer_or_of_unknown_length_are_not_short(
    make_report: MakeReport, answered: Make, output_tokens: int | None
) -> None:
    record = answered(0, 0, 0, [(10, 3)], output_tokens=output_tokens, requested_output_tokens=3)
    assert _finding(make_report([record]), "output_shorter_than_asked") is None


def test_failures_are_no_short_answers(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = steady_run(10)
    records[4] = failed(4, 40, Outcome.STREAM_CUT, 40, 50, output_tokens=1)
    assert _finding(make_report(records), "output_shorter_than_asked") is None


# ---- queue_growing, not_steady


def _queue(answered: Make, service_ms: float, count: int = 700) -> list[Record]:
    """One server, one arrival each 10 ms: with more than 10 ms of service the queue grows from beginning to end."""
    records, free = [], 0.0
    for k in range(count):
        free = max(free, 10.0 * k) + service_ms
        records.append(answered(k, 10 * k, 10 * k, [(free, 1)], done=free))
    return records


@pytest.mark.parametrize(("service_ms", "severity"), [(9.0, None), (10.0, None), (13.0, "warning")])
def test_an_overloaded_target(make_report: MakeReport, answered: Make, service_ms: float, severity: str | None) -> None:
    report = make_report(_queue(answered, service_ms))
    assert _severity(report, "queue_growing") == severity
    assert _severity(report, "not_steady") == severity
    if severity is not None:
        finding = _finding(report, "queue_growing")
        assert finding is not None
        assert finding.evidence["arrivals"] == pytest.approx(350, abs=2)
        assert finding.evidence["share_left_behind"] == pytest.approx(1 - 10 / 13, abs=0.05)


def test_everything_at_once_is_no_growing_queue(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, 0, 0, [(100 + 10 * k, 1)]) for k in range(700)])
    assert _finding(report, "queue_growing") is None
    assert _finding(report, "not_steady") is None


def test_a_run_that_changes_in_its_second_half_is_not_steady(make_report: MakeReport, answered: Make) -> None:
    latency_ms = [100 if k < 500 else 900 for k in range(700)]
    report = make_report([answered(k, 10 * k, 10 * k, [(10 * k + latency_ms[k], 1)]) for k in range(700)])
    assert _severity(report, "not_steady") == "warning"
    assert report.metrics.windows.steady is None


def test_a_few_requests_are_no_proof_of_unsteadiness(make_report: MakeReport, answered: Make) -> None:
    assert _finding(make_report(_queue(answered, 13.0, count=99)), "not_steady") is None


# ---- arrivals_not_as_asked


def _sent_by(answered: Make, arrivals: Arrivals, count: int = 700) -> list[Record]:
    offsets_ms = arrivals.offsets_ns(count, seed=1) / 1e6
    return [answered(k, at, at, [(at + 100, 1)]) for k, at in enumerate(offsets_ms.tolist())]


@pytest.mark.parametrize(
    ("arrivals", "severity"),
    [(Exponential(100.0), None), (Exponential(80.0), "warning"), (Constant(100.0), "warning"), (Gamma(100.0, 0.6), "warning")],
)
def test_sends_that_are_not_the_law_that_was_asked_for(
    make_report: MakeReport, answered: Make, arrivals: Arrivals, severity: str | None
) -> None:
    options = {"request_rate": 100.0, "time_delay_dist": "exponential_dist"}
    report = make_report(_sent_by(answered, arrivals), options=options)
    assert _severity(report, "arrivals_not_as_asked") == severity


def test_a_difference_that_no_target_would_notice_is_a_note(make_report: MakeReport, answered: Make) -> None:
    options = {"request_rate": 100.0, "time_delay_dist": "exponential_dist"}
    records = _sent_by(answered, Gamma(100.0, 0.965), count=60_000)
    assert _severity(make_report(records, options=options), "arrivals_not_as_asked") == "note"


def test_even_gaps_that_are_not_even(make_report: MakeReport, answered: Make) -> None:
    options = {"request_rate": 100.0, "time_delay_dist": "constant"}
    even = make_report(_sent_by(answered, Constant(100.0)), options=options)
    assert _finding(even, "arrivals_not_as_asked") is None
    finding = _finding(make_report(_sent_by(answered, Exponential(100.0)), options=options), "arrivals_not_as_asked")
    assert finding is not None
    assert finding.evidence["p_value"] is None
    assert finding.evidence["statistic"] > 0.5


# ---- token_counts_disagree, littles_law


def test_the_server_counts_other_tokens_than_came(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 1), (150, 1)], output_tokens=5)
    finding = _finding(make_report(records), "token_counts_disagree")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence == pytest.approx({"requests": 1, "share": 0.1, "in_responses": 29, "reported": 32})


def test_counts_that_agree_are_unknown_or_of_failures_do_not_disagree(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make, failed: Make
) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 3)], token_counts=None, output_tokens=4)
    records[5] = answered(5, 50, 50, [(150, 3)], output_tokens=None)
    records[6] = failed(6, 60, Outcome.STREAM_CUT, 60, 90, output_tokens=9, token_times_ns=(70_000_000,), token_counts=(1,))
    assert _finding(make_report(records), "token_counts_disagree") is None


@pytest.mark.parametrize(
    ("in_text", "severity"), [(30, None), (34, None), (24, None), (50, "warning"), (10, "warning"), (None, None)]
)
def test_texts_that_make_other_counts_than_the_servers(
    make_report: MakeReport, answered: Make, in_text: int | None, severity: str | None
) -> None:
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 100, 30)], output_tokens=30, text_tokens=None if k % 2 else in_text)
        for k in range(40)
    ]
    report = make_report(records)
    assert _severity(report, "text_tokens_disagree") == severity
    if in_text == 50:
        finding = _finding(report, "text_tokens_disagree")
        assert finding is not None
        assert finding.evidence == {"requests": 20, "in_text": 1_000, "reported": 600}
        assert "600 tokens for 20 answers whose text has 1,000" in finding.sentence


def test_a_few_words_are_too_few_to_tell_of_the_servers_counts(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert _finding(make_report(steady_run(40, text_tokens=3, output_tokens=1)), "text_tokens_disagree") is None


@pytest.mark.parametrize(("doubled", "severity"), [(0, None), (1, "warning"), (10, "invalid")])
def test_more_tokens_than_were_asked_for_came(
    make_report: MakeReport, answered: Make, doubled: int, severity: str | None
) -> None:
    once = [(100, 1), (110, 1)]
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + ms, n) for ms, n in once * (1 + (k < doubled))], requested_output_tokens=2)
        for k in range(700)
    ]
    report = make_report(records)
    assert _severity(report, "output_longer_than_asked") == severity
    if severity is not None:
        finding = _finding(report, "output_longer_than_asked")
        assert finding is not None
        assert (finding.evidence["requests"], finding.evidence["tokens_beyond"]) == (doubled, 2 * doubled)


def test_text_counted_again_may_have_a_token_more_than_was_asked_for(make_report: MakeReport, answered: Make) -> None:
    source = {"output_tokens": 4, "output_tokens_source": TokenSource.TEXT, "token_counts": None}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], requested_output_tokens=3, **source) for k in range(20)]
    assert _finding(make_report(records), "output_longer_than_asked") is None


@pytest.mark.parametrize(("held_open_ms", "severity"), [(1, None), (400, "warning")])
def test_streams_that_stay_open_after_their_last_token_break_littles_law(
    make_report: MakeReport, answered: Make, held_open_ms: float, severity: str | None
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], done=10 * k + 100 + held_open_ms) for k in range(1_500)]
    report = make_report(records)
    assert report.metrics.windows.steady is not None
    assert _severity(report, "littles_law") == severity
    if severity is not None:
        finding = _finding(report, "littles_law")
        assert finding is not None
        assert finding.evidence == pytest.approx({"mean_in_flight": 50, "rate_per_s": 100, "mean_latency_s": 0.1}, rel=0.02)


# ---- recovered, recording_failed


@pytest.mark.parametrize("torn_bytes", [0, 17])
def test_a_recovered_run(make_report: MakeReport, steady_run: SteadyRun, torn_bytes: int) -> None:
    evidence = {"scheduled": 40, "written_down": 35, "lost": 4, "not_sent": 1, "journals": 2, "torn_bytes": torn_bytes}
    finding = _finding(make_report(steady_run(40), recovered=evidence), "recovered")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.WARNING, evidence)
    assert "of 40 requests, 35 were recorded, 4 are lost, 1 were not sent" in finding.sentence
    assert ("torn" in finding.sentence) == bool(torn_bytes)


def test_a_journal_that_could_not_be_written(make_report: MakeReport, steady_run: SteadyRun) -> None:
    finding = _finding(make_report(steady_run(4), problem="[Errno 28] No space left on device"), "recording_failed")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert "No space left on device" in finding.sentence


def test_a_run_that_came_to_its_end_is_neither_recovered_nor_badly_recorded(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    report = make_report(steady_run(4), problem=None)
    assert _finding(report, "recovered") is None
    assert _finding(report, "recording_failed") is None


# ---- prompt_echoed, warm_up_failed, prompts_dropped


@pytest.mark.parametrize(("echoed", "severity"), [(True, "note"), (False, None), (None, None)])
def test_an_echoed_prompt(make_report: MakeReport, steady_run: SteadyRun, echoed: bool | None, severity: str | None) -> None:
    report = make_report(steady_run(4, prompt_echoed=echoed))
    assert _severity(report, "prompt_echoed") == severity
    if severity is not None:
        finding = _finding(report, "prompt_echoed")
        assert finding is not None
        assert finding.evidence == {"requests": 4}


def test_a_failed_warm_up(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(4), warm_up={"requests": 10, "failures": ["queue full", "timeout"]})
    finding = _finding(report, "warm_up_failed")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.WARNING, {"failed": 2, "first_error": "queue full"})


def test_dropped_prompts(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(4), workload={"description": "x", "dropped_too_long": 17})
    finding = _finding(report, "prompts_dropped")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.NOTE, {"dropped": 17})


def test_a_manifest_that_says_nothing_provokes_nothing(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert make_report(steady_run(700), workload={}, warm_up={}, interrupted=None).findings == ()


# ---- waited_at_ceiling

_CEILING = {"mode": "open", "max_concurrency": 4, "concurrency": None, "duration_s": None, "ramp_up_s": 0.0}


def _held_at_ceiling(answered: Make, waits_ms: float, share: float = 0.05, slip_ms: float = 0.0) -> list[Record]:
    """700 requests, one each 10 ms, answered 20 ms after the send; the last ``share`` of them waited at the ceiling."""
    records = []
    for k in range(700):
        due = 10 * k
        released = due + (waits_ms if k >= 700 * (1 - share) else 0.0)
        sent = released + slip_ms
        records.append(answered(k, due, sent, [(sent + 20, 1)], released_ns=round(released * 1e6)))
    return records


def test_waits_at_the_ceiling_are_told_and_are_no_fault_of_the_client(make_report: MakeReport, answered: Make) -> None:
    report = make_report(_held_at_ceiling(answered, waits_ms=2_000), load=_CEILING)
    finding = _finding(report, "waited_at_ceiling")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    e = finding.evidence
    assert (e["max_concurrency"], e["waited"], e["latency"]) == (4, 35, "TTFT")
    assert e["share"] == pytest.approx(0.05)
    assert (e["p99_wait_ms"], e["p99_from_schedule_ms"], e["p99_from_send_ms"]) == pytest.approx((2_000, 2_020, 20))
    assert {"schedule_slip", "achieved_below_offered"}.isdisjoint(found.code for found in report.findings)
    assert report.valid
    assert "waited in the client because 4 were in flight, p99 2,000.0 ms" in finding.sentence
    slip, wait = report.metrics.slip_ms, report.metrics.ceiling_wait_ms
    assert slip is not None
    assert wait is not None
    assert slip.max == wait.max == pytest.approx(2_000)  # by its definition the slip is all that lies between schedule and send


def test_what_the_client_was_late_beside_the_ceiling_is_its_fault(make_report: MakeReport, answered: Make) -> None:
    report = make_report(_held_at_ceiling(answered, waits_ms=2_000, slip_ms=15), load=_CEILING)
    finding = _finding(report, "schedule_slip")
    assert finding is not None
    assert finding.severity is Severity.INVALID
    assert finding.evidence["p99_slip_ms"] == pytest.approx(15)


@pytest.mark.parametrize(
    ("waits_ms", "share", "told"), [(1.9, 0.05, False), (2.1, 0.05, True), (500, 0.005, False), (0, 0, False)]
)
def test_waits_too_short_or_too_rare_for_p99_are_not_told(
    make_report: MakeReport, answered: Make, waits_ms: float, share: float, told: bool
) -> None:
    report = make_report(_held_at_ceiling(answered, waits_ms, share), load=_CEILING)
    assert (_finding(report, "waited_at_ceiling") is not None) == told


def test_a_burst_below_a_ceiling_was_to_wait(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 0, 20 * k, [(20 * k + 20, 1)], released_ns=20_000_000 * k) for k in range(700)]
    report = make_report(records, load=_CEILING)
    assert _severity(report, "waited_at_ceiling") == "note"
    assert report.valid


def test_a_ceiling_that_keeps_the_rate_down_is_not_the_clients_fault(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 20 * k, [(20 * k + 20, 1)], released_ns=20_000_000 * k) for k in range(700)]
    report = make_report(records, load=_CEILING)
    codes = {finding.code for finding in report.findings}
    assert {"waited_at_ceiling", "queue_growing"} <= codes  # the target takes half of what comes
    assert {"achieved_below_offered", "schedule_slip", "arrivals_not_as_asked"}.isdisjoint(codes)


# ---- closed loops

_CLOSED = {"mode": "closed", "max_concurrency": None, "concurrency": 8, "duration_s": 20.0, "ramp_up_s": 0.0, "prepared": 5000}


def _closed_loop(answered: Make, users: int, answers: int, latency_ms: float) -> list[Record]:
    """Users who come together and send when the last answer ended; each latency its own, so that they part."""
    records, free = [], [(0.0, user) for user in range(users)]
    for k in range(users * answers):
        due, user = min(free)
        sent = due + 0.05
        end = sent + latency_ms * (0.5 + (k * 7919 % 101) / 100)
        records.append(answered(k, due, sent, [(end - 5, 1), (end, 1)], done=end))
        free[user] = (end, user)
    return records


def test_a_closed_loop_with_nothing_wrong_has_no_findings(make_report: MakeReport, answered: Make) -> None:
    options = {"request_rate": -1.0, "time_delay_dist": "exponential_dist", "concurrency": 8}
    report = make_report(_closed_loop(answered, 8, 100, 100.0), load=_CLOSED, options=options)
    assert report.findings == ()
    assert (report.metrics.offered_rate, report.metrics.scheduled_dispersion) == (None, None)
    assert report.metrics.achieved_rate == pytest.approx(80, rel=0.05)


def test_users_who_come_late_in_the_run_are_no_growing_queue(make_report: MakeReport, answered: Make) -> None:
    records = [record for k in range(80) for record in [answered(k, 100 * k, 100 * k, [(9_000 + k, 1)])]]
    closed = make_report(records, load=_CLOSED | {"concurrency": 80, "ramp_up_s": 8.0})
    assert _finding(closed, "queue_growing") is None
    assert _finding(make_report(records), "queue_growing") is not None


@pytest.mark.parametrize(
    ("duration_s", "not_sent", "sentence"),
    [
        (None, 4200, "The run was stopped; 4,200 of 5,000 requests were not sent."),
        (20.0, None, "The run was stopped before its end."),
    ],
)
def test_an_interrupted_closed_loop(
    make_report: MakeReport, answered: Make, duration_s: float | None, not_sent: int | None, sentence: str
) -> None:
    load = _CLOSED | {"duration_s": duration_s}
    report = make_report(_closed_loop(answered, 8, 100, 100.0), load=load, interrupted=True)
    finding = _finding(report, "interrupted")
    assert finding is not None
    assert finding.evidence["not_sent"] == not_sent
    assert finding.sentence == sentence


# ---- requests_ran_out


def test_too_few_requests_for_the_duration(make_report: MakeReport, answered: Make) -> None:
    records = _closed_loop(answered, 8, 100, 100.0)
    report = make_report(records, load=_CLOSED | {"prepared": 800, "ran_out": True})
    finding = _finding(report, "requests_ran_out")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence["prepared"] == 800
    assert finding.evidence["last_sent_s"] == pytest.approx(10, rel=0.05)
    assert finding.sentence.startswith("All 800 prepared requests were sent after ")


# ---- all of them


_RECOVERED = ("scheduled", "written_down", "lost", "not_sent", "journals", "torn_bytes")


@pytest.fixture
def everything(make_report: MakeReport, answered: Make, failed: Make) -> list[Finding]:
    """Every finding there is, from as few runs as it takes."""
    late = [
        answered(k, 10 * k, 15 * k, [(15 * k + 9, 1)], requested_output_tokens=2, prompt_echoed=True, ignore_eos=True)
        for k in range(40)
    ]
    late[7] = failed(7, 70, Outcome.TIMEOUT, 110, 300)
    growing = [answered(k, 10 * k, 10 * k, [(20 * k + 5, 1)], output_tokens=2, text_tokens=4) for k in range(700)]
    held_open = [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], done=10 * k + 500) for k in range(700)]
    asked = {"options": {"request_rate": 100.0, "time_delay_dist": "exponential_dist"}}
    broken: dict[str, Any] = {"warm_up": {"failures": ["x"]}, "workload": {"dropped_too_long": 1}}
    runs = [
        make_report(late, **broken),
        make_report(late, interrupted=True, **broken),
        make_report(late, problem="full", recovered=dict.fromkeys(_RECOVERED, 1)),
        make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]),
        make_report(growing, **asked),
        make_report(_held_at_ceiling(answered, waits_ms=2_000), load=_CEILING),
        make_report(_closed_loop(answered, 8, 100, 100.0), load=_CLOSED | {"ran_out": True}),
        make_report(held_open, options={"request_rate": 50.0, "time_delay_dist": "constant"}),
    ]
    return [finding for run in runs for finding in run.findings]


def test_every_finding_can_be_provoked_and_is_put_in_words(everything: list[Finding]) -> None:
    codes = {finding.code for finding in everything}
    assert codes == {
        "nothing_done",
        "errors",
        "schedule_slip",
        "achieved_below_offered",
        "interrupted",
        "warm_up_failed",
        "output_shorter_than_asked",
        "prompt_echoed",
        "prompts_dropped",
        "sample_too_small",
        "queue_growing",
        "not_steady",
        "arrivals_not_as_asked",
        "token_counts_disagree",
        "text_tokens_disagree",
        "littles_law",
        "waited_at_ceiling",
        "requests_ran_out",
        "output_longer_than_asked",
        "recovered",
        "recording_failed",
    }
    for finding in everything:
        sentence = finding.sentence
        assert not sentence.startswith(finding.code)  # that is the fallback for codes that prose does not know
        assert "{" not in sentence
        assert finding.advice.endswith(".")


def test_the_gravest_finding_comes_first(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], prompt_echoed=True) for k in range(20)]
    records[3] = failed(3, 30, Outcome.TIMEOUT, 30, 60)
    report = make_report(records, interrupted=True, warm_up={"failures": ["x"]})
    severities = [finding.severity.value for finding in report.findings]
    assert severities == ["invalid", "warning", "warning", "note", "note"]


def test_one_invalid_finding_makes_a_run_invalid_and_nothing_else_does() -> None:
    invalid, warning, note = NothingDone(scheduled=3), WarmUpFailed(failed=1, first_error="x"), PromptEchoed(requests=1)
    assert [finding.severity for finding in (invalid, warning, note)] == list(Severity)
    assert is_valid(())
    assert is_valid((warning, note))
    assert not is_valid((note, invalid))
