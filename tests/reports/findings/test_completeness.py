"""Findings about what a run lacks: each provoked, and each absent in a whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from bench_records.manifest import Manifest
from bench_records.record import Outcome, Record
from reports.findings.completeness import (
    BoundReached,
    EndedEarly,
    Interrupted,
    PromptsDropped,
    RecordingFailed,
    Recovered,
    SampleTooSmall,
)
from reports.findings.finding import RunFacts, Severity
from reports.metrics.precision import half_width
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of
from tests.reports.findings.runs import CLOSED, closed_loop
from tests.reports.worker_hosts import worker_host, worker_hosts

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


# ---- interrupted


def test_an_interrupted_run_has_the_number_of_unsent_requests(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    records = [*steady_run(700), *(failed(k, 10 * k, Outcome.NOT_SENT) for k in range(700, 900))]
    report = make_report(records, interrupted=True)
    finding = finding_of(report, "interrupted")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.WARNING, {"not_sent": 200, "scheduled": 900})
    assert [f.code for f in report.findings] == ["interrupted"]


def test_a_run_stopped_while_it_drained_is_interrupted(make_report: MakeReport, steady_run: SteadyRun) -> None:
    finding = finding_of(make_report(steady_run(5), interrupted=True), "interrupted")
    assert finding is not None
    assert finding.evidence["not_sent"] == 0


def test_unsent_requests_are_an_interruption_that_the_manifest_lacks(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    assert finding_of(make_report([*steady_run(5), failed(5, 50, Outcome.NOT_SENT)]), "interrupted") is not None


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
    load = CLOSED | {"duration_s": duration_s}
    report = make_report(closed_loop(answered, 8, 100, 100.0), load=load, interrupted=True)
    finding = finding_of(report, "interrupted")
    assert finding is not None
    assert finding.evidence["not_sent"] == not_sent
    assert finding.sentence == sentence


# ---- ended_early


@pytest.mark.parametrize(("gave_up", "severity"), [(True, "warning"), (False, "note")])
def test_a_run_that_a_rule_ended_is_whole_and_says_which_rule(
    make_report: MakeReport, steady_run: SteadyRun, gave_up: bool, severity: str
) -> None:
    end = {
        "rule": "--stop_if p99_ttft>9ms",
        "reason": "11 are",
        "gave_up": gave_up,
        "at_s": 7.0,
        "requests": 700,
        "planned": 1000,
    }
    report = make_report(steady_run(700), early_end=end)
    finding = finding_of(report, "ended_early")
    assert isinstance(finding, EndedEarly)
    assert finding.sentence == "The run was ended by --stop_if p99_ttft>9ms after 700 of 1,000 requests: 11 are."
    assert severity_of(report, "ended_early") == severity
    assert finding_of(report, "interrupted") is None
    assert finding.brief == EndedEarly.briefs[0 if gave_up else 1]


# ---- bound_reached


@pytest.mark.parametrize(
    ("until", "known"),
    [("mean_e2e±0.001%", "it is known to ± "), ("p99_e2e±50%", "it has no interval"), ("mean_e2e±90%", None)],
)
def test_a_bound_that_is_reached_before_a_number_is_precise(
    make_report: MakeReport, queued_run: SteadyRun, until: str, known: str | None
) -> None:
    records = queued_run(20.0, 3, count=300)
    finding = finding_of(make_report(records, criteria={"until": until}), "bound_reached")
    if known is None:
        assert finding is None
        return
    assert finding is not None
    assert finding.sentence.startswith(f"Bound reached: {until} was not reached by 300 requests, and {known}")
    assert finding_of(make_report(records, criteria={"until": until}, interrupted=True), "bound_reached") is None


def test_a_bound_is_reached_where_the_interval_is_any_wider_than_requested(
    make_report: MakeReport, queued_run: SteadyRun
) -> None:
    records = queued_run(20.0, 3, count=300)
    latency = make_report(records).metrics.e2e_ms.scheduled
    assert latency is not None
    width = half_width(latency.mean)
    assert width is not None
    for times, expected in ((0.98, True), (0.999, True), (1.001, False)):
        until = f"mean_e2e±{100.0 * times * width:.9f}%"
        finding = finding_of(make_report(records, criteria={"until": until}), "bound_reached")
        assert (finding is not None) is expected
        if finding is not None:
            assert (finding.evidence["half_width"], finding.evidence["requests"]) == (width, 300)


@pytest.mark.parametrize(
    ("reached", "known"), [(0.0623, "± 6.2 %"), (0.0504, "± 5.04 %"), (0.050001, "± 5.0001 %"), (None, "no interval")]
)
def test_a_precision_that_was_not_reached_is_shown_to_be_less(reached: float | None, known: str) -> None:
    """5.04 % was "known to ± 5.0 %", which is what had been requested."""
    assert BoundReached("p99_ttft±5%", reached, 700).sentence.endswith(f"{known}.")


# ---- turns_not_sent


def test_turns_behind_a_failure_are_counted_apart_from_those_of_a_stopped_run(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    behind = [failed(701, 7_010, Outcome.NOT_SENT, parent=700), failed(702, 7_020, Outcome.NOT_SENT, parent=701)]
    records = [*steady_run(700), failed(700, 7_000, Outcome.TIMEOUT, 7_000, 7_001, parent=3), *behind]
    load = {"mode": "sessions"}
    report = make_report(records, load=load)
    finding = finding_of(report, "turns_not_sent")
    assert finding is not None
    assert finding.evidence == {"turns": 2, "scheduled": 703}
    assert finding.sentence == "2 of 703 requests were not sent, since a turn that they wait for failed."
    assert finding_of(report, "interrupted") is None
    stopped = [*records, failed(703, 7_030, Outcome.NOT_SENT, parent=5), failed(704, 7_040, Outcome.NOT_SENT)]
    interrupted = finding_of(make_report(stopped, load=load, interrupted=True), "interrupted")
    assert interrupted is not None
    assert interrupted.evidence["not_sent"] == 2
    assert finding_of(make_report(steady_run(700)), "turns_not_sent") is None


def test_a_turn_behind_an_answer_that_the_stop_cut_off_is_no_turn_behind_a_failure(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    cut = failed(700, 7_000, Outcome.CANCELLED, 7_000, 7_001, parent=3)
    records = [*steady_run(700), cut, failed(701, 7_010, Outcome.NOT_SENT, parent=700)]
    report = make_report(records, load={"mode": "sessions"}, interrupted=True)
    assert finding_of(report, "turns_not_sent") is None
    interrupted = finding_of(report, "interrupted")
    assert interrupted is not None
    assert interrupted.evidence["not_sent"] == 1


# ---- sample_too_small


@pytest.mark.parametrize(("count", "severity"), [(1, "note"), (661, "note"), (662, None)])
def test_the_sample_size_guard(make_report: MakeReport, steady_run: SteadyRun, count: int, severity: str | None) -> None:
    report = make_report(steady_run(count))
    assert severity_of(report, "sample_too_small") == severity
    assert report.valid
    if severity is not None:
        finding = finding_of(report, "sample_too_small")
        assert finding is not None
        assert finding.evidence == {"n": count, "needed_for_p99": 662, "whole_dataset": False}


@pytest.mark.parametrize("whole", [True, False])
def test_a_dataset_that_was_sent_whole_has_to_be_repeated(make_report: MakeReport, steady_run: SteadyRun, whole: bool) -> None:
    finding = finding_of(make_report(steady_run(20), workload={"whole_dataset": whole}), "sample_too_small")
    assert finding is not None
    assert ("--repeat_dataset" in finding.brief, "--repeat_dataset" in finding.advice) == (whole, whole)


def test_conversations_that_were_sent_whole_cannot_be_repeated(make_report: MakeReport, steady_run: SteadyRun) -> None:
    turns = [structs.replace(record, session="a") for record in steady_run(20)]
    finding = finding_of(make_report(turns, workload={"whole_dataset": True}), "sample_too_small")
    assert finding is not None
    assert "--repeat_dataset" not in finding.brief + finding.advice
    assert "more conversations" in finding.brief
    assert finding.evidence["whole_dataset"] is True


def test_prompts_of_an_unknown_dataset_are_not_called_all_of_it(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(20))
    finding = SampleTooSmall.check(RunFacts(report.requests, report.metrics, Manifest()))
    assert finding is not None
    assert not finding.whole_dataset


def test_failures_are_no_samples(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(661), *(failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 9) for k in range(661, 700))]
    finding = finding_of(make_report(records), "sample_too_small")
    assert finding is not None
    assert finding.evidence["n"] == 661


def test_requests_that_were_cut_off_are_samples_beside_those_that_ended(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    records = [*steady_run(90), *(failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 90) for k in range(90, 100))]
    finding = finding_of(make_report(records), "sample_too_small")
    assert finding is not None
    assert finding.evidence["n"] == 100


def test_answers_without_tokens_are_no_samples_of_a_latency(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make
) -> None:
    records = [*steady_run(600), *(answered(k, 10 * k, 10 * k, []) for k in range(600, 700))]
    finding = finding_of(make_report(records), "sample_too_small")
    assert finding is not None
    assert finding.evidence["n"] == 600


# ---- recovered, recording_failed


@pytest.mark.parametrize("torn_bytes", [0, 17])
def test_a_recovered_run(make_report: MakeReport, steady_run: SteadyRun, torn_bytes: int) -> None:
    evidence = {"scheduled": 40, "written_down": 35, "lost": 4, "not_sent": 1, "journals": 2, "torn_bytes": torn_bytes}
    finding = finding_of(make_report(steady_run(40), recovered=evidence), "recovered")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.WARNING, evidence)
    assert "of 40 requests, 35 were recorded, 4 are lost, 1 were not sent" in finding.sentence
    assert ("torn" in finding.sentence) == bool(torn_bytes)


def test_a_journal_that_could_not_be_written(make_report: MakeReport, steady_run: SteadyRun) -> None:
    finding = finding_of(make_report(steady_run(4), problem="[Errno 28] No space left on device"), "recording_failed")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert "No space left on device" in finding.sentence


def test_a_full_disk_of_a_worker_is_not_that_of_the_runs_folder(make_report: MakeReport, steady_run: SteadyRun) -> None:
    problem = "worker 1 on host-1: [Errno 28] No space left on device"
    report = make_report(steady_run(4), problem=problem, **worker_hosts(worker_host(0), worker_host(1)))
    finding = finding_of(report, "recording_failed")
    assert finding is not None
    assert "worker 1 on host-1" in finding.sentence
    assert "--work_dir" in finding.advice
    assert "with --locust_processes the temporary directory" in finding.advice  # where that option's workers have it
    assert "--run_dir" not in finding.advice


def test_a_run_that_came_to_its_end_is_neither_recovered_nor_badly_recorded(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    report = make_report(steady_run(4), problem=None)
    assert finding_of(report, "recovered") is None
    assert finding_of(report, "recording_failed") is None


# ---- prompts_dropped


def test_dropped_prompts(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(4), workload={"description": "x", "dropped_too_long": 17})
    finding = finding_of(report, "prompts_dropped")
    assert finding is not None
    assert (finding.severity, finding.evidence) == (Severity.NOTE, {"dropped": 17})
    assert PromptsDropped.check(RunFacts(report.requests, report.metrics, Manifest())) is None


# ---- words, and what an interrupted closed loop had prepared


def test_what_a_run_lacks_in_words() -> None:
    assert Interrupted(1_200, 5_000).sentence == "The run was stopped; 1,200 of 5,000 requests were not sent."
    assert Recovered(1_400, 1_350, 40, 10, 2, 0).sentence == (
        "The run was cut short: of 1,400 requests, 1,350 were recorded, 40 are lost, 10 were not sent."
    )
    assert Recovered(40, 35, 4, 1, 2, 17).sentence.endswith("1 were not sent, and records were torn or damaged.")
    assert RecordingFailed("disk full", at_worker=False).sentence == (
        "Sending stopped because the client could not write its journal: disk full."
    )
    assert PromptsDropped(1_200).sentence == "1,200 prompts were dropped as too long."
    assert SampleTooSmall(661, 1_662, False).sentence == "661 latencies cannot support p99, which needs 1,662."


@pytest.mark.parametrize(
    ("load", "evidence"),
    [
        (CLOSED | {"duration_s": None}, {"not_sent": 4_200, "scheduled": 5_000}),
        (CLOSED | {"duration_s": None, "prepared": None}, {"not_sent": None, "scheduled": None}),
        (CLOSED, {"not_sent": None, "scheduled": None}),
    ],
)
def test_a_closed_loop_had_as_many_requests_as_it_had_prepared(
    make_report: MakeReport, answered: Make, load: dict[str, Any], evidence: dict[str, int | None]
) -> None:
    finding = finding_of(make_report(closed_loop(answered, 8, 100, 100.0), load=load, interrupted=True), "interrupted")
    assert finding is not None
    assert finding.evidence == evidence
