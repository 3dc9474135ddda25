"""Findings about the client: each provoked, and each quiet where the stamps are good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from bench_records.client_sample import ClientSample
from bench_records.record import Outcome, Record
from reports.findings.client import AchievedBelowOffered, ClientSaturated
from reports.findings.client_delay import DelayCause
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of
from tests.reports.findings.runs import CEILING, CLOSED, held_at_ceiling, late_sends, stretched_sends
from tests.reports.manifests import clock_readings
from tests.reports.watched import WorkerUsage, machine_samples, worker_samples
from tests.reports.worker_hosts import worker_host, worker_hosts

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _samples(lags_ms: Sequence[float], worker: int = 0, **usage: Any) -> list[ClientSample]:
    """A worker's, within the second that ``steady_run(100)`` lasts."""
    return worker_samples(lags_ms, WorkerUsage(**usage), worker=worker, every_ms=2.5)


# ---- schedule_slip


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
def test_slip_is_compared_with_the_median_latency(
    make_report: MakeReport, answered: Make, slip_ms: float, latency_ms: float, severity: str | None
) -> None:
    assert severity_of(make_report(late_sends(answered, slip_ms, latency_ms)), "schedule_slip") == severity


def test_slip_evidence(make_report: MakeReport, answered: Make) -> None:
    finding = finding_of(make_report(late_sends(answered, 20, 80)), "schedule_slip")
    assert finding is not None
    assert finding.evidence == {"p99_slip_ms": 20, "p50_latency_from_sent_ms": 80, "cause": "unknown"}


def test_slip_is_compared_with_ttft_where_streamed_else_with_e2e_latency(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 100 * k, 100 * k + 20, [(100 * k + 50, 1), (100 * k + 1_020, 1)]) for k in range(20)]
    assert severity_of(make_report(records, streaming=True), "schedule_slip") == "invalid"  # 20 of 30 ms
    assert severity_of(make_report(records, streaming=False), "schedule_slip") is None  # 20 of 1,000 ms


def test_late_sends_that_failed_count_as_slip(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = late_sends(answered, 0, 10)
    records[10:20] = [failed(k, 100 * k, Outcome.TIMEOUT, 100 * k + 30, 100 * k + 90) for k in range(10, 20)]
    assert severity_of(make_report(records), "schedule_slip") == "invalid"


def test_where_most_requests_failed_the_client_is_not_blamed_beside_a_latency_of_zero(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = late_sends(answered, 3, 1_000, count=40)
    records += [failed(k, 100 * k, Outcome.TIMEOUT, 100 * k + 3, 100 * k + 2_000) for k in range(40, 100)]
    finding = finding_of(make_report(records), "schedule_slip")
    assert finding is None or finding.evidence["p50_latency_from_sent_ms"] is None


# ---- achieved_below_offered


@pytest.mark.parametrize(("stretch", "severity"), [(1.0, None), (1.04, None), (1.08, "warning"), (1.2, "invalid")])
def test_a_rate_that_was_not_reached(make_report: MakeReport, answered: Make, stretch: float, severity: str | None) -> None:
    report = make_report(stretched_sends(answered, stretch))
    assert severity_of(report, "achieved_below_offered") == severity
    if severity is not None:
        finding = finding_of(report, "achieved_below_offered")
        assert finding is not None
        assert finding.evidence == pytest.approx({"offered_rate": 100.0, "achieved_rate": 100 / stretch, "cause": "unknown"})


def test_everything_at_once_offers_no_rate_to_fall_short_of(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, 0, 50 * k, [(10_000, 1)]) for k in range(20)])
    assert finding_of(report, "achieved_below_offered") is None


def test_everything_at_once_below_a_ceiling_offers_no_rate_either(make_report: MakeReport, answered: Make) -> None:
    """The ceiling released 50 requests/s, of which 40 were sent."""
    records = [answered(k, 0, 25 * k, [(25 * k + 20, 1)], released_ns=20_000_000 * k) for k in range(101)]
    assert finding_of(make_report(records, load=CEILING), "achieved_below_offered") is None


@pytest.mark.parametrize(("last_ms", "expected"), [(20_000, False), (20_001, True)])
def test_a_rate_of_exactly_95_percent_is_enough(make_report: MakeReport, answered: Make, last_ms: int, expected: bool) -> None:
    """96 requests in 19 s are 5 a second, of which the sends in 20 s make 4.75."""
    records = [answered(k, 200 * k, 200 * k, [(200 * k + 50, 1)]) for k in range(95)]
    records.append(answered(95, 19_000, last_ms, [(last_ms + 50, 1)]))
    finding = finding_of(make_report(records), "achieved_below_offered")
    assert (finding is not None) is expected


def test_an_interrupted_run_is_not_blamed_for_its_rate(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [answered(k, 10 * k, 20 * k, [(20 * k + 5_000, 1)]) for k in range(50)]
    assert finding_of(make_report(records), "achieved_below_offered") is not None
    stopped = [*records, failed(50, 500, Outcome.NOT_SENT)]
    assert finding_of(make_report(stopped, interrupted=True), "achieved_below_offered") is None


def test_a_run_that_ended_before_its_last_requests_offered_the_rate_of_those_before(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    """As where a disk was full: the second half was due twice as fast, and was never sent."""
    sent = [answered(k, 20 * k, 20 * k, [(20 * k + 10, 1)]) for k in range(50)]
    records = [*sent, *(failed(50 + k, 1_000 + 10 * k, Outcome.NOT_SENT) for k in range(50))]
    assert finding_of(make_report(records, problem="[Errno 28] No space left on device"), "achieved_below_offered") is None
    late = [*stretched_sends(answered, 1.2), *(failed(200 + k, 2_000 + 10 * k, Outcome.NOT_SENT) for k in range(50))]
    assert finding_of(make_report(late, problem="[Errno 28] No space left on device"), "achieved_below_offered") is not None


def _released_late(answered: Make, slip_ms: float) -> list[Record]:
    """A schedule of 100 requests/s that a ceiling lets through at 50, each sent the later the longer the run has lasted."""
    return [
        answered(k, 10 * k, (20 + slip_ms) * k, [((20 + slip_ms) * k + 20, 1)], released_ns=20_000_000 * k) for k in range(101)
    ]


def test_a_ceiling_that_keeps_the_rate_down_is_not_the_clients_fault(make_report: MakeReport, answered: Make) -> None:
    assert finding_of(make_report(_released_late(answered, 0.0), load=CEILING), "achieved_below_offered") is None


def test_the_rate_at_which_a_ceiling_released_requests_is_what_the_client_has_to_reach(
    make_report: MakeReport, answered: Make
) -> None:
    finding = finding_of(make_report(_released_late(answered, 5.0), load=CEILING), "achieved_below_offered")
    assert finding is not None
    assert finding.severity.value == "invalid"
    assert finding.evidence == pytest.approx({"offered_rate": 50.0, "achieved_rate": 40.0, "cause": "unknown"})


@pytest.mark.parametrize(("gc_longest_ms", "cause"), [(99.5, "not the CPU"), (100.5, "garbage collection")])
def test_a_rate_is_missed_for_what_explains_the_longest_delay(
    make_report: MakeReport, answered: Make, gc_longest_ms: float, cause: str
) -> None:
    """The last of 101 requests is sent 200 ms late, the p99 198 ms."""
    samples = worker_samples([0.1] * 80, WorkerUsage(0.06, gc_longest_ms=gc_longest_ms))
    finding = finding_of(make_report(stretched_sends(answered, 1.2), client=samples), "achieved_below_offered")
    assert finding is not None
    assert finding.evidence["cause"] == cause


@pytest.mark.parametrize(("stretch", "cause"), [(1.0, "lost requests"), (1.04, "lost requests"), (1.2, "not the CPU")])
def test_a_rate_without_lost_requests_is_not_blamed_on_the_client(
    make_report: MakeReport, answered: Make, failed: Make, stretch: float, cause: str
) -> None:
    """One of two workers was killed, so every other request from the middle on is lost."""
    records = stretched_sends(answered, stretch)
    records = [failed(k, 10 * k, Outcome.LOST) if k > 50 and k % 2 else record for k, record in enumerate(records)]
    finding = finding_of(make_report(records, client=worker_samples([0.1] * 80, WorkerUsage(0.06))), "achieved_below_offered")
    assert finding is not None
    assert finding.evidence["cause"] == cause
    assert ("Requests were lost" in finding.advice) == (cause == "lost requests")


# ---- objectives_lost_to_client; the remedy of late sends


def _late_by(answered: Make, late: int, sent: int = 200) -> list[Record]:
    """A TTFT of 100 ms from the send; ``late`` of the requests were sent 20 ms late."""
    slips = [20.0 if k < late else 0.0 for k in range(sent)]
    return [answered(k, 100 * k, 100 * k + slip, [(100 * k + slip + 100, 1)]) for k, slip in enumerate(slips)]


@pytest.mark.parametrize(
    ("late", "sent", "lost"),
    [(0, 200, None), (2, 200, None), (3, 200, 3), (4, 500, None), (5, 500, 5)],  # 3 requests, and 1 % of those sent
)
def test_objectives_that_the_client_cost(
    make_report: MakeReport, answered: Make, late: int, sent: int, lost: int | None
) -> None:
    report = make_report(_late_by(answered, late, sent), criteria={"slo": ["ttft<=110ms"]})
    finding = finding_of(report, "objectives_lost_to_client")
    assert (None if finding is None else finding.evidence["lost"]) == lost
    if finding is not None:
        assert finding.evidence["attainment_from_send"] == 1.0
        assert finding.evidence["attainment"] == 1.0 - late / sent


def test_objectives_missed_from_the_send_too_are_not_lost_to_the_client(make_report: MakeReport, answered: Make) -> None:
    report = make_report(_late_by(answered, 50), criteria={"slo": ["ttft<=99ms"]})
    assert finding_of(report, "objectives_lost_to_client") is None


def test_a_wait_at_the_ceiling_is_not_the_clients(make_report: MakeReport, answered: Make) -> None:
    records = held_at_ceiling(answered, waits_ms=200.0)
    report = make_report(records, load=CEILING, criteria={"slo": ["ttft<=100ms"]})
    assert report.metrics.goodput is not None
    assert report.metrics.goodput.attainment_from_send > report.metrics.goodput.attainment
    assert finding_of(report, "objectives_lost_to_client") is None


def test_what_the_client_cost_in_words(make_report: MakeReport, answered: Make) -> None:
    samples = worker_samples([0.1] * 800, WorkerUsage(0.06))
    report = make_report(_late_by(answered, 20), criteria={"slo": ["ttft<=110ms"]}, client=samples)
    finding = finding_of(report, "objectives_lost_to_client")
    assert finding is not None
    assert finding.sentence == (
        "20 requests were sent late and met every objective from the send, but not from the schedule: attainment is 90.0% from "
        "the schedule and 100.0% from the send. The busiest worker used 6% of a core."
    )
    assert "more --workers do not help" in finding.advice
    unwatched = finding_of(make_report(_late_by(answered, 20), criteria={"slo": ["ttft<=110ms"]}), "objectives_lost_to_client")
    assert unwatched is not None
    assert unwatched.evidence["cpu_share"] is None
    assert unwatched.sentence.endswith("and 100.0% from the send.")


@pytest.mark.parametrize("code", ["schedule_slip", "objectives_lost_to_client"])
@pytest.mark.parametrize(
    ("usage", "lag_ms", "cause"),
    [
        (WorkerUsage(0.95), 0.1, "CPU"),
        (WorkerUsage(0.06, gc_longest_ms=15.0), 0.1, "garbage collection"),
        (WorkerUsage(0.06, gc_longest_ms=5.0), 0.1, "not the CPU"),  # too short for a delay of 20 ms
        (WorkerUsage(0.06, wait_share=0.3), 0.1, "other processes"),
        (WorkerUsage(0.06), 15.0, "late event loop"),
        (WorkerUsage(0.06), 5.0, "not the CPU"),
        (WorkerUsage(0.06, wait_share=None), 0.1, "unknown"),
    ],
)
def test_the_remedy_of_late_sends_fits_their_cause(
    make_report: MakeReport, answered: Make, code: str, usage: WorkerUsage, lag_ms: float, cause: str
) -> None:
    samples = worker_samples([0.1] * 100 + [lag_ms] + [0.1] * 699, usage)
    finding = finding_of(make_report(_late_by(answered, 50), criteria={"slo": ["ttft<=110ms"]}, client=samples), code)
    assert finding is not None
    assert finding.evidence["cause"] == cause
    asks_for_workers = "more --workers" in finding.advice and "do not help" not in finding.advice
    assert asks_for_workers is (cause in ("CPU", "garbage collection", "unknown"))


# ---- client_saturated; the median latency from the send of steady_run is 100 ms, the gaps are 10 ms


@pytest.mark.parametrize(
    ("lags_ms", "severity"),
    [
        ([0.1] * 300, None),
        ([0.1] * 298 + [400.0] * 2, None),  # fewer than one in a hundred
        ([0.1] * 290 + [4.9] * 10, None),  # small beside the latency, and beside half a gap
        ([0.1] * 290 + [5.0] * 10, "warning"),  # half a gap
        ([0.1] * 290 + [11.0] * 10, "warning"),
        ([0.1] * 290 + [50.0] * 10, "warning"),
        ([0.1] * 290 + [51.0] * 10, "invalid"),  # half the latency
        ([9.0] * 300, "warning"),
        ([11.0] * 300, "invalid"),  # every stamp is off by more than a tenth
        ([51.0] * 90, "invalid"),
        ([0.1] * 85 + [90.0] * 5, None),  # too few for a word on p99; the mean is below a tenth
        ([40.0] * 19, None),  # too few for the mean, too; and nothing had to wait for a core
    ],
)
def test_late_stamps_count_by_what_they_are_late_beside(
    make_report: MakeReport, steady_run: SteadyRun, lags_ms: list[float], severity: str | None
) -> None:
    assert severity_of(make_report(steady_run(100), client=_samples(lags_ms)), "client_saturated") == severity


def test_small_lags_are_no_matter_however_short_the_latencies(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 1, 2)]) for k in range(100)]
    samples = _samples([0.5] * 290 + [1.9] * 10)
    assert severity_of(make_report(records, client=samples), "client_saturated") is None
    assert severity_of(make_report(records, client=_samples([0.5] * 290 + [2.1] * 10)), "client_saturated") == "invalid"


def test_a_busy_machine_with_good_stamps_is_not_blamed(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = _samples([0.3] * 300, cpu_share=0.97, wait_share=0.6, switches=50, gc_longest_ms=0.5)
    report = make_report(steady_run(100), client=[*samples, *machine_samples(8, busy_cores=2.0, steal_cores=0.3)])
    assert severity_of(report, "client_saturated") is None


def test_a_short_run_is_judged_by_the_wait_for_a_core(make_report: MakeReport, steady_run: SteadyRun) -> None:
    starved = worker_samples([0.1] * 10, WorkerUsage(wait_share=0.9, switches=2))
    assert severity_of(make_report(steady_run(20), client=starved), "client_saturated") == "invalid"  # 11 ms each time
    waiting = worker_samples([0.1] * 10, WorkerUsage(wait_share=0.9, switches=20))
    assert severity_of(make_report(steady_run(20), client=waiting), "client_saturated") is None  # 1.1 ms each time


def test_a_worker_that_never_woke_while_a_request_was_in_flight_is_judged_by_its_wait_for_a_core_alone(
    make_report: MakeReport, answered: Make
) -> None:
    records = [answered(k, 1_000 + 10 * k, 1_000 + 10 * k, [(1_100 + 10 * k, 1)]) for k in range(20)]
    starved = worker_samples([0.1] * 10, WorkerUsage(wait_share=0.9, switches=2))
    finding = finding_of(make_report(records, client=starved), "client_saturated")
    assert finding is not None
    assert finding.severity.value == "invalid"
    lag = [finding.evidence[name] for name in ("lag_p99_ms", "lag_mean_ms", "lag_max_ms", "wake_ups")]
    assert lag == [None, None, None, 0]
    assert "late: compared with a median latency of 100.0 ms" in finding.sentence


def test_samples_of_the_parent_alone_do_not_show_a_late_worker(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert finding_of(make_report(steady_run(20), client=machine_samples(2)), "client_saturated") is None


def test_one_starved_worker_of_four_is_enough(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = [s for worker in range(4) for s in _samples([60.0 if worker == 2 else 0.1] * 300, worker=worker)]
    assert severity_of(make_report(steady_run(100), client=samples), "client_saturated") == "invalid"


def test_unstreamed_runs_are_judged_by_their_whole_latency(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(100), streaming=False, client=_samples([0.1] * 280 + [70.0] * 20))
    finding = finding_of(report, "client_saturated")
    assert finding is not None
    assert (finding.severity.value, finding.evidence["p99_icl_ms"]) == ("invalid", None)
    assert finding.evidence["p50_latency_from_sent_ms"] == pytest.approx(120.0)


def test_without_samples_or_successes_there_is_no_finding(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    assert finding_of(make_report(steady_run(100)), "client_saturated") is None
    nothing_done = [failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(100)]
    assert finding_of(make_report(nothing_done, client=_samples([90.0] * 40)), "client_saturated") is None


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"samples": _samples([60.0] * 300, cpu_share=0.1), "steal_cores": 0.4}, "hypervisor"),
        ({"samples": _samples([60.0] * 300, gc_longest_ms=55.0)}, "Garbage"),
        ({"samples": _samples([60.0] * 300, cpu_share=0.95)}, "--workers"),
        ({"samples": _samples([60.0] * 300, cpu_share=0.1, wait_share=0.8)}, "cores of its own"),
    ],
)
def test_advice_is_about_the_likely_cause(
    make_report: MakeReport, steady_run: SteadyRun, more: dict[str, Any], advice: str
) -> None:
    samples: list[ClientSample] = [*more["samples"], *machine_samples(8, steal_cores=more.get("steal_cores", 0.0))]
    finding = finding_of(make_report(steady_run(100), client=samples), "client_saturated")
    assert finding is not None
    assert advice in finding.advice


def test_evidence_reaches_the_sentence(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = _samples([60.0] * 300, cpu_share=0.1, wait_share=0.8, gc_longest_ms=1.5)
    finding = finding_of(make_report(steady_run(100), client=samples), "client_saturated")
    assert finding is not None
    assert finding.sentence == (
        "The client's workers ran late, and its sends and times of arrival are late: they woke 60.0 ms late on average, "
        "60.0 ms at p99, compared with a median latency of 100.0 ms from the send (80% of the time spent waiting for a core)."
    )


def test_late_wake_ups_without_a_known_cause_name_none(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = _samples([60.0] * 300, cpu_share=0.1, wait_share=0.01, gc_longest_ms=1.5)
    finding = finding_of(make_report(steady_run(100), client=samples), "client_saturated")
    assert finding is not None
    assert "more --workers do not help" in finding.advice
    assert finding.sentence.endswith("compared with a median latency of 100.0 ms from the send.")


def test_a_client_whose_kernel_stamps_what_arrives_is_late_with_its_sends_alone(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    report = make_report(steady_run(100), client=_samples([60.0] * 300), connections={"unstamped_reads": 0})
    finding = finding_of(report, "client_saturated")
    assert finding is not None
    assert "and its sends are late:" in finding.sentence


# ---- clock_stepped


@pytest.mark.parametrize(
    ("clock", "severity"),
    [
        (clock_readings(), None),
        (clock_readings(stepped_ms=9, slept_ms=9), None),
        (clock_readings(stepped_ms=11), "warning"),
        (clock_readings(stepped_ms=-3_600_000), "warning"),
        (clock_readings(slept_ms=11), "invalid"),
        (
            clock_readings(stepped_ms=60_000, slept_ms=60_000),
            "invalid",
        ),  # the wall clock counts sleep
        ({"clock": None}, None),
        ({"clock": {"before": clock_readings()["clock"]["before"], "after": None}}, None),
        ({}, None),
    ],
)
def test_a_clock_that_was_set_is_a_warning_and_a_machine_that_slept_makes_the_run_invalid(
    make_report: MakeReport, steady_run: SteadyRun, clock: dict[str, Any], severity: str | None
) -> None:
    assert severity_of(make_report(steady_run(10), **clock), "clock_stepped") == severity


def test_clocks_in_words(make_report: MakeReport, steady_run: SteadyRun) -> None:
    stepped = finding_of(make_report(steady_run(10), **clock_readings(stepped_ms=-1500)), "clock_stepped")
    slept = finding_of(make_report(steady_run(10), **clock_readings(slept_ms=60_000)), "clock_stepped")
    assert stepped is not None
    assert slept is not None
    assert stepped.sentence == "The machine's wall clock was set by -1.500 s during the run."
    assert slept.sentence == "The machine slept for 60.0 s during the run."


# ---- connection_limit_reached


@pytest.mark.parametrize(
    ("connections", "requests"),
    [(None, None), ({}, None), ({"limit_reached": 0}, None), ({"limit_reached": None}, None), ({"limit_reached": 7}, 7)],
)
def test_requests_that_waited_for_a_stream(
    make_report: MakeReport, steady_run: SteadyRun, connections: Any, requests: int | None
) -> None:
    finding = finding_of(make_report(steady_run(10), connections=connections), "connection_limit_reached")
    assert (None if finding is None else finding.evidence["requests"]) == requests
    if finding is not None:
        assert finding.severity.value == "warning"
        assert finding.sentence == "7 requests waited for a stream, because the server accepts no more of them at once."


def test_a_manifest_without_connections_has_no_such_finding(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert finding_of(make_report(steady_run(10)), "connection_limit_reached") is None


# ---- at the thresholds, and in words


@pytest.mark.parametrize(
    ("slip_ms", "latency_ms", "severity"),
    [(2.0, 20.0, "warning"), (9.99, 100.0, None), (10.0, 100.0, "warning"), (50.0, 100.0, "warning"), (50.1, 100.0, "invalid")],
)
def test_slip_counts_from_a_tenth_and_is_invalid_above_half_of_the_latency(
    make_report: MakeReport, answered: Make, slip_ms: float, latency_ms: float, severity: str | None
) -> None:
    report = make_report(late_sends(answered, slip_ms, latency_ms))
    assert severity_of(report, "schedule_slip") == severity
    if severity is not None:
        finding = finding_of(report, "schedule_slip")
        assert finding is not None
        assert finding.sentence == (
            f"The p99 schedule slip is {slip_ms:.1f} ms compared with a median latency of {latency_ms:.1f} ms from the send."
        )


@pytest.mark.parametrize(
    ("achieved", "severity"),
    [(95.01, None), (94.99, "warning"), (90.01, "warning"), (89.99, "invalid")],
)
def test_a_rate_counts_below_95_percent_and_is_invalid_below_90(
    make_report: MakeReport, answered: Make, achieved: float, severity: str | None
) -> None:
    report = make_report(stretched_sends(answered, 100.0 / achieved))
    assert severity_of(report, "achieved_below_offered") == severity
    if severity is not None:
        finding = finding_of(report, "achieved_below_offered")
        assert finding is not None
        assert finding.sentence == f"{achieved:.2f} requests/s were sent where 100.00 were offered."


def _saturated(**replaced: Any) -> ClientSaturated:
    """Beside a median latency of 100 ms and gaps of 40 ms at p99; neither lag is material."""
    usual: dict[str, Any] = {
        "lag_p99_ms": 1.0, "lag_mean_ms": 0.5, "lag_max_ms": 20.0, "wake_ups": 300, "p50_latency_from_sent_ms": 100.0,
        "p99_icl_ms": 40.0, "cpu_share": 0.1, "run_queue_wait_share": 0.2, "run_queue_wait_ms": 0.3, "gc_longest_ms": 1.0,
        "steal_cores": 0.0, "unstamped_reads": None,
    }  # fmt: skip
    return ClientSaturated(**usual | replaced)


@pytest.mark.parametrize(
    ("replaced", "invalid"),
    [
        ({}, False),
        ({"lag_p99_ms": 50.0}, False),
        ({"lag_p99_ms": 50.1}, True),
        ({"lag_p99_ms": 50.1, "wake_ups": 100}, True),
        ({"lag_p99_ms": 50.1, "wake_ups": 99}, False),
        ({"lag_p99_ms": 1.99, "p50_latency_from_sent_ms": 3.0}, False),
        ({"lag_p99_ms": 2.0, "p50_latency_from_sent_ms": 3.0}, True),
        ({"lag_mean_ms": 10.0}, False),
        ({"lag_mean_ms": 10.1}, True),
        ({"lag_mean_ms": 10.1, "wake_ups": 20}, True),
        ({"lag_mean_ms": 10.1, "wake_ups": 19}, False),  # too few wake-ups: the wait for a core counts
        ({"lag_mean_ms": None, "run_queue_wait_ms": 10.1, "wake_ups": 19}, True),
        ({"lag_mean_ms": None, "run_queue_wait_ms": None, "wake_ups": 0}, False),
        ({"lag_mean_ms": 0.5, "run_queue_wait_ms": 10.1}, False),
        ({"lag_mean_ms": 0.99, "p50_latency_from_sent_ms": 5.0}, False),
        ({"lag_mean_ms": 1.0, "p50_latency_from_sent_ms": 5.0}, True),
        ({"lag_p99_ms": None}, False),
    ],
)
def test_lag_is_invalid_above_half_of_the_latency_at_p99_and_a_tenth_on_average(
    replaced: dict[str, Any], invalid: bool
) -> None:
    assert (_saturated(**replaced).severity.value == "invalid") is invalid


@pytest.mark.parametrize(
    ("replaced", "advice"),
    [
        ({"steal_cores": 0.05}, "Other processes had"),
        ({"steal_cores": 0.051, "gc_longest_ms": 50.0, "cpu_share": 1.0}, "The hypervisor"),
        ({"steal_cores": None, "gc_longest_ms": 10.0}, "Other processes had"),
        ({"gc_longest_ms": 10.1, "cpu_share": 1.0}, "Garbage collections"),
        ({"gc_longest_ms": 0.1, "lag_max_ms": None}, "Garbage collections"),
        ({"gc_longest_ms": None, "cpu_share": 0.8}, "Other processes had"),
        ({"cpu_share": 0.81}, "A worker used up"),
        ({"cpu_share": None}, "Other processes had"),
    ],
)
def test_the_cause_of_a_lag_is_steal_then_collections_then_the_cpu(replaced: dict[str, Any], advice: str) -> None:
    assert _saturated(**replaced).advice.startswith(advice)


@pytest.mark.parametrize(("p99_lag_ms", "expected"), [(4.99, False), (5.0, True)])
def test_lag_beside_half_a_gap_is_material(
    make_report: MakeReport, steady_run: SteadyRun, p99_lag_ms: float, expected: bool
) -> None:
    samples = _samples([0.1] * 290 + [p99_lag_ms] * 10)
    assert (finding_of(make_report(steady_run(100), client=samples), "client_saturated") is not None) is expected


def test_what_a_saturated_client_rests_on(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = [
        *_samples([60.0] * 299 + [70.0], cpu_share=0.4, wait_share=0.8, gc_longest_ms=1.5),
        *machine_samples(8, steal_cores=0.02),
    ]
    finding = finding_of(make_report(steady_run(100), client=samples, connections={"unstamped_reads": 3}), "client_saturated")
    assert finding is not None
    e = finding.evidence
    assert (e["wake_ups"], e["unstamped_reads"]) == (300, 3)
    assert (e["lag_max_ms"], e["gc_longest_ms"], e["p99_icl_ms"]) == pytest.approx((70.0, 1.5, 10.0))
    assert e["lag_mean_ms"] == pytest.approx(60.0 + 10.0 / 300)
    assert (e["cpu_share"], e["run_queue_wait_share"]) == pytest.approx((0.4, 0.8), rel=0.05)
    assert e["steal_cores"] == pytest.approx(0.02)
    assert e["run_queue_wait_ms"] == pytest.approx(2.5 * 0.8 / 10, rel=0.05)  # 2 ms in each 2.5 ms, over 10 switches


@pytest.mark.parametrize(("ms", "expected"), [(10.0, False), (10.001, True), (-10.0, False), (-10.001, True)])
def test_clocks_may_differ_by_10_ms(make_report: MakeReport, steady_run: SteadyRun, ms: float, expected: bool) -> None:
    stepped = make_report(steady_run(10), **clock_readings(stepped_ms=ms))
    slept = make_report(steady_run(10), **clock_readings(slept_ms=ms))
    assert severity_of(stepped, "clock_stepped") == ("warning" if expected else None)
    assert severity_of(slept, "clock_stepped") == ("invalid" if expected else None)
    for report, evidence in (
        (stepped, {"slept_s": 0.0, "stepped_s": ms / 1e3}),
        (slept, {"slept_s": ms / 1e3, "stepped_s": 0.0}),
    ):
        finding = finding_of(report, "clock_stepped")
        assert finding is None or finding.evidence == pytest.approx(evidence, rel=1e-12)


def test_what_is_known_of_connections_is_evidence(make_report: MakeReport, steady_run: SteadyRun) -> None:
    known = {
        "per_worker": 4,
        "opened": 8,
        "longest_wait_ms": 12.5,
        "total_wait_ms": 99.0,
        "unstamped_reads": 0,
        "workers_told": 2,
    }
    finding = finding_of(make_report(steady_run(10), connections={"limit_reached": 7, **known}), "connection_limit_reached")
    few = finding_of(make_report(steady_run(10), connections={"limit_reached": 1}), "connection_limit_reached")
    assert finding is not None
    assert few is not None
    assert finding.evidence == {"requests": 7, **known}
    assert few.evidence == {"requests": 1}


def test_one_late_request_is_slip_enough(make_report: MakeReport, answered: Make) -> None:
    assert severity_of(make_report(late_sends(answered, 20, 100, count=1)), "schedule_slip") == "warning"


@pytest.mark.parametrize(("first_late", "of_users"), [(0, True), (20, False)])
def test_slip_of_a_closed_loop_has_the_same_evidence_and_an_advice_for_first_sends(
    make_report: MakeReport, answered: Make, first_late: int, of_users: bool
) -> None:
    on_time, late = late_sends(answered, 0, 80), late_sends(answered, 20, 80)
    records = [*on_time[:first_late], *late[first_late : first_late + 8], *on_time[first_late + 8 :]]
    finding = finding_of(make_report(records, load=CLOSED), "schedule_slip")
    assert finding is not None
    assert finding.evidence == {"p99_slip_ms": 20, "p50_latency_from_sent_ms": 80, "cause": "unknown"}
    assert ("--ramp_up" in finding.advice) is of_users


@pytest.mark.parametrize(
    ("first", "later", "users", "of_users"),
    [(4, 6, 8, False), (5, 5, 8, True), (6, 4, 8, True), (8, 1, 4, False), (1, 0, None, False)],
)
def test_slip_is_that_of_first_sends_where_half_of_the_late_requests_are_first_ones(
    make_report: MakeReport, answered: Make, first: int, later: int, users: int | None, of_users: bool
) -> None:
    """``first`` of 40 requests at the begin, and ``later`` at the end, were sent 20 ms late."""
    on_time, late = late_sends(answered, 0, 80, count=40), late_sends(answered, 20, 80, count=40)
    records = [*late[:first], *on_time[first : 40 - later], *late[40 - later :]]
    finding = finding_of(make_report(records, load=CLOSED | {"concurrency": users}), "schedule_slip")
    assert finding is not None
    assert ("--ramp_up" in finding.advice) is of_users


def test_small_rates_of_sends_are_no_zeros() -> None:
    finding = AchievedBelowOffered(0.0051, 0.0042, DelayCause.NOT_CPU)
    assert finding.sentence == "0.0042 requests/s were sent where 0.0051 were offered."


# ---- worker_killed


@pytest.mark.parametrize(
    ("explained", "found"),
    [
        ({}, True),
        ({"problem": "disk full"}, False),
        (
            {"recovered": {"scheduled": 704, "written_down": 700, "lost": 4, "not_sent": 0, "journals": 2, "torn_bytes": 0}},
            False,
        ),
        (worker_hosts(worker_host(0), worker_host(1, lost="nothing was heard of it for 15 s")), False),
    ],
)
def test_a_killed_worker_makes_a_run_invalid_however_few_requests_it_had(
    make_report: MakeReport, steady_run: SteadyRun, explained: dict[str, Any], found: bool
) -> None:
    """In a closed loop those in flight alone are lost, and half of the users are gone."""
    records = steady_run(704)
    reason = "its worker ended with status -9"
    lost = [msgspec.structs.replace(r, outcome=Outcome.LOST, sent_ns=None, done_ns=None, error=error, token_times_ns=(),
            token_counts=()) for r, error in zip(records[300:304], (reason, *["status -15"] * 3), strict=True)]  # fmt: skip
    report = make_report([*records[:300], *lost, *records[304:]], **explained)
    assert ("worker_killed" in [finding.code for finding in report.findings]) == found
    if found:
        assert finding_of(report, "worker_killed").evidence == {"requests": 4, "reason": reason}
        assert severity_of(report, "errors") == "warning"
        assert not report.valid
