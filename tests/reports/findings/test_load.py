"""Findings about the load: each provoked, and each absent where the load is as requested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.findings.finding import Finding, RunFacts, Severity
from reports.findings.load import ArrivalsNotAsAsked, ColdStartFound, QueueGrowing, RateWanders, WaitedAtCeiling
from reports.metrics.arrival_law import wandering_rate
from reports.metrics.catalogue import SCHEDULE_SLIP
from reports.metrics.configuration import configured_law
from reports.metrics.in_flight import queue_growth
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of
from tests.reports.findings.runs import (
    CEILING,
    CLOSED,
    EXPONENTIAL,
    closed_loop,
    cold_start,
    held_at_ceiling,
    queue_of_one_server,
    sends_of,
)
from tests.reports.manifests import asked_load
from workloads.arrivals.processes import Arrivals, Constant, Exponential, Gamma

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


# ---- queue_growing, not_steady


@pytest.mark.parametrize(("service_ms", "severity"), [(9.0, None), (10.0, None), (13.0, "warning")])
def test_an_overloaded_target(make_report: MakeReport, answered: Make, service_ms: float, severity: str | None) -> None:
    report = make_report(queue_of_one_server(answered, service_ms))
    assert severity_of(report, "queue_growing") == severity
    assert severity_of(report, "not_steady") == severity
    if severity is not None:
        finding = finding_of(report, "queue_growing")
        assert finding is not None
        assert 0 < finding.evidence["in_system_before"] < finding.evidence["in_system_after"]
        assert finding.evidence["arrivals"] == pytest.approx(512, abs=2)  # between the middles of the first and last parts
        assert finding.evidence["share_left_behind"] == pytest.approx(1 - 10 / 13, abs=0.05)
        assert finding.evidence["offered_per_s"] == pytest.approx(100, rel=0.02)
        assert finding.evidence["completed_per_s"] == pytest.approx(1_000 / 13, rel=0.02)


def test_a_queue_grows_against_the_rate_that_was_asked_for(make_report: MakeReport, answered: Make) -> None:
    report = make_report(queue_of_one_server(answered, 13.0), load=asked_load(97.0))
    finding = finding_of(report, "queue_growing")
    assert finding is not None
    assert finding.evidence["offered_per_s"] == pytest.approx(97.0)


def test_everything_at_once_is_no_growing_queue(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, 0, 0, [(100 + 10 * k, 1)]) for k in range(700)])
    assert finding_of(report, "queue_growing") is None
    assert finding_of(report, "not_steady") is None


def test_a_run_that_changes_in_its_second_half_is_not_steady(make_report: MakeReport, answered: Make) -> None:
    latency_ms = [100 if k < 500 else 900 for k in range(700)]
    report = make_report([answered(k, 10 * k, 10 * k, [(10 * k + latency_ms[k], 1)]) for k in range(700)])
    assert severity_of(report, "not_steady") == "warning"
    assert report.metrics.windows.steady is None


def test_a_few_requests_are_no_proof_of_unsteadiness(make_report: MakeReport, answered: Make) -> None:
    assert finding_of(make_report(queue_of_one_server(answered, 13.0, count=99)), "not_steady") is None


# ---- arrivals_not_as_asked


@pytest.mark.parametrize(
    ("arrivals", "severity"),
    [(Exponential(100.0), None), (Exponential(80.0), "warning"), (Constant(100.0), "warning"), (Gamma(100.0, 0.6), "warning")],
)
def test_sends_that_are_not_the_law_that_was_asked_for(
    make_report: MakeReport, answered: Make, arrivals: Arrivals, severity: str | None
) -> None:
    report = make_report(sends_of(answered, arrivals), load=EXPONENTIAL)
    assert severity_of(report, "arrivals_not_as_asked") == severity


def test_a_difference_that_no_target_would_notice_is_a_note(make_report: MakeReport, answered: Make) -> None:
    records = sends_of(answered, Gamma(100.0, 0.965), count=60_000)
    assert severity_of(make_report(records, load=EXPONENTIAL), "arrivals_not_as_asked") == "note"


def test_the_grain_of_the_client_s_timer_is_a_note_where_the_burstiness_is_as_scheduled(
    make_report: MakeReport, answered: Make
) -> None:
    """At 3,000/s sends on a grain of 100 µs are far from exponential gaps, and nothing that a target would notice."""
    due_ms = Exponential(3_000.0).offsets_ns(6_000, seed=1) / 1e6
    sent_ms = np.ceil(due_ms * 10.0) / 10.0
    records = [answered(k, due, sent, [(sent + 50, 1)]) for k, (due, sent) in enumerate(zip(due_ms, sent_ms, strict=True))]
    finding = finding_of(make_report(records, load=asked_load(3_000.0)), "arrivals_not_as_asked")
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert finding.evidence["statistic"] > 0.1
    assert "chance" not in finding.advice


def test_certain_differences_are_not_put_down_to_chance(make_report: MakeReport, answered: Make) -> None:
    finding = finding_of(make_report(sends_of(answered, Exponential(80.0)), load=EXPONENTIAL), "arrivals_not_as_asked")
    assert finding is not None
    assert finding.evidence["p_value"] < 1e-4
    assert "chance" not in finding.advice.lower()


# ---- rate_wanders


@pytest.mark.parametrize(("swing", "severity"), [(0.0, None), (0.2, "warning")])
def test_a_rate_that_swings_every_five_seconds(
    make_report: MakeReport, answered: Make, swing: float, severity: str | None
) -> None:
    even_s = Exponential(100.0).offsets_ns(6_000, seed=3) / 1e9
    times_s = np.linspace(0.0, 80.0, 80_001)
    expected = np.cumsum(1.0 + swing * np.where(times_s % 5.0 < 2.5, 1.0, -1.0)) * 1e-3  # even time as a function of time
    sent_ms = np.interp(even_s, expected, times_s) * 1e3
    records = [answered(k, at, at, [(at + 50, 1)]) for k, at in enumerate(sent_ms.tolist())]
    assert severity_of(make_report(records, load=EXPONENTIAL), "rate_wanders") == severity


def test_even_gaps_that_are_not_even(make_report: MakeReport, answered: Make) -> None:
    load = asked_load(100.0, "constant")
    even = make_report(sends_of(answered, Constant(100.0)), load=load)
    assert finding_of(even, "arrivals_not_as_asked") is None
    finding = finding_of(make_report(sends_of(answered, Exponential(100.0)), load=load), "arrivals_not_as_asked")
    assert finding is not None
    assert finding.evidence["p_value"] is None
    assert finding.evidence["statistic"] > 0.5


# ---- waited_at_ceiling


def test_waits_at_the_ceiling_are_found_and_are_no_fault_of_the_client(make_report: MakeReport, answered: Make) -> None:
    report = make_report(held_at_ceiling(answered, waits_ms=2_000), load=CEILING)
    finding = finding_of(report, "waited_at_ceiling")
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
    report = make_report(held_at_ceiling(answered, waits_ms=2_000, slip_ms=15), load=CEILING)
    finding = finding_of(report, "schedule_slip")
    assert finding is not None
    assert finding.severity is Severity.INVALID
    assert finding.evidence["p99_slip_ms"] == pytest.approx(15)


@pytest.mark.parametrize(
    ("waits_ms", "share", "expected"), [(1.9, 0.05, False), (2.1, 0.05, True), (500, 0.005, False), (0, 0, False)]
)
def test_waits_too_short_or_too_rare_for_p99_are_not_found(
    make_report: MakeReport, answered: Make, waits_ms: float, share: float, expected: bool
) -> None:
    report = make_report(held_at_ceiling(answered, waits_ms, share), load=CEILING)
    assert (finding_of(report, "waited_at_ceiling") is not None) == expected


def test_a_burst_below_a_ceiling_was_to_wait(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 0, 20 * k, [(20 * k + 20, 1)], released_ns=20_000_000 * k) for k in range(700)]
    report = make_report(records, load=CEILING)
    assert severity_of(report, "waited_at_ceiling") == "note"
    assert report.valid


def test_a_ceiling_that_keeps_the_rate_down_is_not_the_clients_fault(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 20 * k, [(20 * k + 20, 1)], released_ns=20_000_000 * k) for k in range(700)]
    report = make_report(records, load=CEILING)
    codes = {finding.code for finding in report.findings}
    assert {"waited_at_ceiling", "queue_growing"} <= codes  # the target takes half of what comes
    assert {"achieved_below_offered", "schedule_slip", "arrivals_not_as_asked"}.isdisjoint(codes)


# ---- closed loops


def test_a_closed_loop_with_nothing_wrong_has_no_findings(make_report: MakeReport, answered: Make) -> None:
    report = make_report(closed_loop(answered, 8, 100, 100.0), load=CLOSED)
    assert report.findings == ()
    assert (report.metrics.offered_rate, report.metrics.scheduled_dispersion) == (None, None)
    assert report.metrics.achieved_rate == pytest.approx(80, rel=0.05)


def test_users_that_start_late_are_no_growing_queue(make_report: MakeReport, answered: Make) -> None:
    records = [record for k in range(80) for record in [answered(k, 100 * k, 100 * k, [(200 * k + 90, 1)])]]
    closed = make_report(records, load=CLOSED | {"concurrency": 80, "ramp_up_s": 8.0})
    assert finding_of(closed, "queue_growing") is None
    assert finding_of(make_report(records), "queue_growing") is not None


# ---- requests_ran_out


def test_too_few_requests_for_the_duration(make_report: MakeReport, answered: Make) -> None:
    records = closed_loop(answered, 8, 100, 100.0)
    report = make_report(records, load=CLOSED | {"prepared": 800, "ran_out": True})
    finding = finding_of(report, "requests_ran_out")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence["prepared"] == 800
    assert finding.evidence["last_sent_s"] == pytest.approx(10, rel=0.05)
    assert finding.sentence.startswith("All 800 prepared requests were sent after ")


# ---- cold_start


@pytest.mark.parametrize("slow_share", [0.05, 0.1, 0.3])
def test_a_slow_beginning_is_a_cold_start_and_not_in_the_steady_window(
    make_report: MakeReport, answered: Make, slow_share: float
) -> None:
    report = make_report(cold_start(answered, slow_share))
    finding = finding_of(report, "cold_start")
    assert finding is not None
    assert finding.evidence["ratio"] > 2.0
    assert finding.evidence["later_ms"] == pytest.approx(51.0, rel=0.03)
    steady = report.metrics.windows.steady
    assert steady is not None
    assert steady.ttft_ms is not None
    assert steady.ttft_ms.mean.value == pytest.approx(51.0, rel=0.05)


def test_latencies_without_a_slow_beginning_have_no_finding(make_report: MakeReport, answered: Make) -> None:
    assert finding_of(make_report(cold_start(answered, slow_share=0.0)), "cold_start") is None


def test_users_that_start_together_are_no_cold_start(make_report: MakeReport, answered: Make) -> None:
    """The first 40 of 1,000 requests are slow, which are the first of each of 40 users."""
    records = cold_start(answered, slow_share=0.04)
    assert finding_of(make_report(records), "cold_start") is not None
    assert finding_of(make_report(records, load=CLOSED | {"concurrency": 40}), "cold_start") is None


# ---- severities, advice and words at the thresholds


def _arrivals(statistic: float, p_value: float | None, as_scheduled: bool = False) -> ArrivalsNotAsAsked:
    return ArrivalsNotAsAsked("exponential", 100.0, 1_699, statistic, p_value, 1.0, as_scheduled)


@pytest.mark.parametrize(
    ("finding", "severity", "advice"),
    [
        (_arrivals(0.02, 0.009), Severity.WARNING, 0),
        (_arrivals(0.0199, 0.009), Severity.NOTE, 1),
        (_arrivals(0.5, 0.009, as_scheduled=True), Severity.NOTE, 1),
        (_arrivals(0.5, 1.1e-4), Severity.WARNING, 0),
        (_arrivals(0.5, 1e-4), Severity.WARNING, 2),
        (_arrivals(0.011, None), Severity.WARNING, 2),  # of constant gaps it is a share
        (_arrivals(0.011, None, as_scheduled=True), Severity.NOTE, 1),
    ],
)
def test_arrivals_matter_by_their_distance_and_are_chance_by_their_p_value(
    finding: ArrivalsNotAsAsked, severity: Severity, advice: int
) -> None:
    assert (finding.severity, finding.advice) == (severity, finding.advices[advice])


def test_arrivals_in_words() -> None:
    assert _arrivals(0.1234, 0.0012).sentence == (
        "1,699 gaps between sends are not exponential gaps at 100 requests/s: Kolmogorov-Smirnov distance 0.123, p = 0.001."
    )
    assert _arrivals(0.1234, None).sentence == (
        "12.3% of 1,699 gaps between sends deviate from the requested exponential gaps at 100 requests/s."
    )


def _grained(answered: Make, delay_ms: float, stretch: float = 1.0) -> list[Record]:
    """6,000 exponential arrivals at 3,000/s, ``stretch`` as long, each sent after a delay, at the next tenth of a ms."""
    due_ms = Exponential(3_000.0).offsets_ns(6_000, seed=1) / 1e6 * stretch
    sent_ms = np.ceil(due_ms * 10.0) / 10.0 + delay_ms
    return [answered(k, due, sent, [(sent + 50, 1)]) for k, (due, sent) in enumerate(zip(due_ms, sent_ms, strict=True))]


@pytest.mark.parametrize(
    ("delay_ms", "stretch", "as_scheduled"), [(0.0, 1.0, True), (1.85, 1.0, True), (2.05, 1.0, False), (0.0, 1.3, False)]
)
def test_sends_are_as_scheduled_up_to_a_slip_of_2_ms_of_a_schedule_as_asked(
    make_report: MakeReport, answered: Make, delay_ms: float, stretch: float, as_scheduled: bool
) -> None:
    records = _grained(answered, delay_ms, stretch)
    finding = finding_of(make_report(records, load=asked_load(3_000.0)), "arrivals_not_as_asked")
    assert finding is not None
    assert finding.evidence["as_scheduled"] is as_scheduled
    assert (finding.evidence["law"], finding.evidence["rate_per_s"]) == ("exponential", 3_000.0)
    assert finding.evidence["gaps"] == 5_999


def _facts(report: RunReport, **metrics: Any) -> RunFacts:
    """What findings are made of, with other numbers of the run."""
    return RunFacts(report.requests, replace(report.metrics, **metrics), report.manifest, report.client, report.server, ())


@pytest.fixture(scope="module")
def grained(make_report: MakeReport, answered: Make) -> RunReport:
    return make_report(_grained(answered, 0.0), load=asked_load(3_000.0))


@pytest.mark.parametrize(
    ("scheduled", "sent", "as_scheduled"),
    [
        (1.0, 1.09, True),
        (1.0, 1.11, False),
        (1.0, 0.91, True),
        (1.0, 0.89, False),
        (2.0, 2.18, True),
        (2.0, 2.22, False),
        (None, 1.0, False),
        (0.0, 1.0, False),
        (1.0, None, False),
    ],
)
def test_sends_are_as_scheduled_up_to_a_tenth_of_the_dispersion(
    grained: RunReport, scheduled: float | None, sent: float | None, as_scheduled: bool
) -> None:
    finding = ArrivalsNotAsAsked.check(_facts(grained, scheduled_dispersion=scheduled, sent_dispersion=sent))
    assert finding is not None
    assert (finding.as_scheduled, finding.sent_dispersion) == (as_scheduled, sent)


def test_sends_of_an_unknown_slip_are_not_as_scheduled(grained: RunReport) -> None:
    slip = grained.metrics.slip_ms
    assert slip is not None
    failed = replace(slip, percentiles={q: replace(percentile, value=None) for q, percentile in slip.percentiles.items()})
    for unknown in (None, failed):
        latencies = {**grained.metrics.latencies, SCHEDULE_SLIP: unknown}
        finding = ArrivalsNotAsAsked.check(_facts(grained, latencies=latencies))
        assert finding is not None
        assert not finding.as_scheduled


@pytest.mark.parametrize(("p99_ms", "as_scheduled"), [(2.0, True), (2.001, False)])
def test_a_p99_slip_of_exactly_2_ms_is_as_scheduled(grained: RunReport, p99_ms: float, as_scheduled: bool) -> None:
    slip = grained.metrics.slip_ms
    assert slip is not None
    changed = replace(slip, percentiles={q: replace(percentile, value=p99_ms) for q, percentile in slip.percentiles.items()})
    finding = ArrivalsNotAsAsked.check(_facts(grained, latencies={**grained.metrics.latencies, SCHEDULE_SLIP: changed}))
    assert finding is not None
    assert finding.as_scheduled is as_scheduled


def test_waits_of_requests_that_all_failed_are_no_finding(make_report: MakeReport, failed: Make) -> None:
    records = [
        failed(k, 10 * k, Outcome.REFUSED, 10 * k + 50, 10 * k + 90, released_ns=(10 * k + 50) * 1_000_000) for k in range(700)
    ]
    assert finding_of(make_report(records, load=CEILING), "waited_at_ceiling") is None


def test_requests_that_ran_out_were_last_sent_when_the_last_of_those_sent_was(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = [answered(0, 0, 0, [(50, 1)]), answered(1, 0, 2_500, [(2_550, 1)]), failed(2, 0, Outcome.NOT_SENT)]
    finding = finding_of(make_report(records, load=CLOSED | {"prepared": 3, "ran_out": True}), "requests_ran_out")
    assert finding is not None
    assert finding.evidence["last_sent_s"] == 2.5


@pytest.mark.parametrize("few", [False, True])
def test_a_run_of_too_few_requests_is_not_called_unsteady(make_report: MakeReport, answered: Make, few: bool) -> None:
    report = make_report(queue_of_one_server(answered, 13.0, 5 if few else 700))
    assert (report.metrics.windows.steady, report.metrics.windows.too_few_to_tell) == (None, few)
    assert (finding_of(report, "not_steady") is None) is few


def test_a_growing_queue_and_a_wandering_rate_have_the_numbers_of_their_tests(make_report: MakeReport, answered: Make) -> None:
    report = make_report(queue_of_one_server(answered, 13.0))
    queue, growth = QueueGrowing.check(_facts(report)), queue_growth(report.requests)
    assert queue is not None
    assert growth is not None
    assert queue.evidence == asdict(growth) | {"share_left_behind": growth.share_left_behind}
    assert queue.offered_per_s == pytest.approx(100.0, rel=0.01)
    assert queue.completed_per_s == pytest.approx(1e3 / 13.0, rel=0.01)

    even_s = Exponential(100.0).offsets_ns(6_000, seed=3) / 1e9
    swung = [answered(k, at, at, [(at + 50, 1)]) for k, at in enumerate((1e3 * (even_s + 0.5 * np.sin(even_s))).tolist())]
    wandering = make_report(swung, load=EXPONENTIAL)
    law = configured_law(wandering.manifest)
    assert law is not None
    found, rate = wandering_rate(wandering.requests, law), RateWanders.check(_facts(wandering))
    assert found is not None
    assert rate == RateWanders("exponential", 100.0, found.window_s, found.dispersion, found.p_value)


def test_a_wait_of_exactly_2_ms_and_a_tenth_of_the_latency_is_found(make_report: MakeReport, answered: Make) -> None:
    def waited(wait_ms: float, latency_ms: float, streaming: bool = True) -> Finding | None:
        records = [
            answered(
                k, 10 * k, 10 * k + wait_ms, [(10 * k + wait_ms + latency_ms, 1)], released_ns=round((10 * k + wait_ms) * 1e6)
            )
            for k in range(700)
        ]
        return finding_of(make_report(records, load=CEILING, streaming=streaming), "waited_at_ceiling")

    assert waited(2.0, 20.0) is not None
    assert waited(9.9, 100.0) is None
    assert waited(10.0, 100.0) is not None
    unstreamed = waited(50.0, 100.0, streaming=False)
    assert unstreamed is not None
    assert unstreamed.evidence == pytest.approx(
        {
            "max_concurrency": 4, "waited": 700, "share": 1.0, "p99_wait_ms": 50.0, "latency": "E2E latency",
            "p99_from_schedule_ms": 150.0, "p99_from_send_ms": 100.0, "offered_rate": 100.0, "achieved_rate": 100.0,
        }
    )  # fmt: skip


def test_a_wait_at_the_ceiling_in_words() -> None:
    finding = WaitedAtCeiling(4, 1_500, 0.25, 2_000.5, "TTFT", None, 20.25, 100.0, 90.0)
    assert finding.sentence == (
        "1,500 requests (25%) waited in the client because 4 were in flight, p99 2,000.5 ms. p99 TTFT is failed from the "
        "schedule, which includes the wait, and 20.2 ms from the send, which does not."
    )
    assert (finding.severity, finding.advice) == (Severity.WARNING, finding.advices[0])
    assert "p99 TTFT is 2,020.5 ms from the schedule" in replace(finding, p99_from_schedule_ms=2_020.5).sentence
    burst = replace(finding, offered_rate=None)
    assert (burst.severity, burst.advice) == (Severity.NOTE, burst.advices[1])


def test_a_growing_queue_in_words() -> None:
    assert QueueGrowing(12.4, 1_200.6, 5_000, 0.231, 100.04, 76.96).sentence == (
        "The target completes 77.0 requests/s while 100.0/s arrive: the queue grew from 12 to 1,201 requests, by 23% of "
        "5,000 arrivals."
    )


def test_a_cold_start_names_its_latency_length_and_means(make_report: MakeReport, answered: Make) -> None:
    streamed = finding_of(make_report(cold_start(answered)), "cold_start")
    unstreamed = finding_of(make_report(cold_start(answered), streaming=False), "cold_start")
    assert streamed is not None
    assert unstreamed is not None
    assert (streamed.evidence["latency"], unstreamed.evidence["latency"]) == ("TTFT", "E2E latency")
    e = streamed.evidence
    assert e["ratio"] == pytest.approx(e["early_ms"] / e["later_ms"])
    assert e["early_ms"] > 2.0 * e["later_ms"]
    assert 0.4 < e["seconds"] < 3.4  # a 24th to a third of 10 s
    assert ColdStartFound("TTFT", 2.5, 1_500.04, 500.0, 3.0).sentence == (
        "TTFT of the first 2.5 s is 3.0 times that of the second half of the run (means: 1,500.0 and 500.0 ms)."
    )


def test_a_rate_that_wanders_in_words() -> None:
    assert RateWanders("gamma", 12.5, 2.5, 3.14, 0.00012).sentence == (
        "The rate of sends wanders: in windows of 2.5 s their numbers have 3.1 times the variance of gamma gaps at 12.5 "
        "requests/s, p = 0.0001."
    )


def test_a_run_out_of_requests_in_words_and_without_any_send(make_report: MakeReport, failed: Make) -> None:
    unsent = [failed(k, 10 * k, Outcome.NOT_SENT) for k in range(3)]
    finding = finding_of(make_report(unsent, load=CLOSED | {"prepared": 5_000, "ran_out": True}), "requests_ran_out")
    assert finding is not None
    assert finding.evidence == {"prepared": 5_000, "duration_s": 20.0, "last_sent_s": 0.0}
    assert finding.sentence == "All 5,000 prepared requests were sent after 0.0 s of 20 s; the run ended early."


def test_why_a_run_is_not_steady_is_named_and_an_interrupted_one_is_not_blamed(make_report: MakeReport, answered: Make) -> None:
    report = make_report(queue_of_one_server(answered, 13.0))
    finding = finding_of(report, "not_steady")
    assert finding is not None
    assert finding.evidence == {"reason": report.metrics.windows.not_steady}
    assert finding.sentence == f"No steady state was found: {report.metrics.windows.not_steady}."
    assert finding_of(make_report(queue_of_one_server(answered, 13.0), interrupted=True), "not_steady") is None


def test_a_growing_queue_of_a_slow_target_has_rates_that_are_no_zeros() -> None:
    assert QueueGrowing(1.2, 40.4, 200, 0.2, 0.0512, 0.0413).sentence.startswith(
        "The target completes 0.0413 requests/s while 0.0512/s arrive: the queue grew from 1 to 40 requests"
    )
