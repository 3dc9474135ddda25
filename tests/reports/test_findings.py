"""Findings: each one provoked, each one quiet where there is nothing to say, and the edges between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.records.record import FAILURES, Outcome, Record
from reports.findings import Finding, Severity, is_valid
from reports.prose import describe
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _finding(report: RunReport, code: str) -> Finding | None:
    found = [finding for finding in report.findings if finding.code == code]
    assert len(found) <= 1
    return found[0] if found else None


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


# ---- all of them


@pytest.fixture
def everything(make_report: MakeReport, answered: Make, failed: Make) -> list[Finding]:
    """Every finding there is, from as few runs as it takes."""
    late = [
        answered(k, 10 * k, 15 * k, [(15 * k + 9, 1)], requested_output_tokens=2, prompt_echoed=True, ignore_eos=True)
        for k in range(40)
    ]
    late[7] = failed(7, 70, Outcome.TIMEOUT, 110, 300)
    broken: dict[str, Any] = {"warm_up": {"failures": ["x"]}, "workload": {"dropped_too_long": 1}}
    runs = [
        make_report(late, **broken),
        make_report(late, interrupted=True, **broken),
        make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]),
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
    }
    for finding in everything:
        sentence = describe(finding)
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
    def finding(severity: Severity) -> Finding:
        return Finding("x", severity, {}, "Do it.")

    assert is_valid(())
    assert is_valid((finding(Severity.WARNING), finding(Severity.NOTE)))
    assert not is_valid((finding(Severity.NOTE), finding(Severity.INVALID)))
