"""Findings about the client: each provoked, and each quiet where the stamps are good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from harness.records.client_sample import ClientSample
from harness.records.record import Outcome, Record
from reports.run_report import RunReport
from tests.reports.found import finding_of as _finding
from tests.reports.watched import machine_samples, worker_samples

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _samples(lags_ms: Sequence[float], **more: Any) -> list[ClientSample]:
    """A worker's, within the second that ``steady_run(100)`` lasts."""
    return worker_samples(lags_ms, every_ms=2.5, **more)


def _severity(report: RunReport, code: str) -> str | None:
    finding = _finding(report, code)
    return None if finding is None else finding.severity.value


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
    assert _severity(make_report(steady_run(100), client=_samples(lags_ms)), "client_saturated") == severity


def test_small_lags_are_no_matter_however_short_the_latencies(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 1, 2)]) for k in range(100)]
    samples = _samples([0.5] * 290 + [1.9] * 10)
    assert _severity(make_report(records, client=samples), "client_saturated") is None
    assert _severity(make_report(records, client=_samples([0.5] * 290 + [2.1] * 10)), "client_saturated") == "invalid"


def test_a_busy_machine_with_good_stamps_is_not_blamed(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = _samples([0.3] * 300, cpu_share=0.97, wait_share=0.6, switches=50, gc_longest_ms=0.5)
    report = make_report(steady_run(100), client=[*samples, *machine_samples(8, busy_cores=2.0, steal_cores=0.3)])
    assert _severity(report, "client_saturated") is None


def test_in_a_short_run_the_wait_for_a_core_tells(make_report: MakeReport, steady_run: SteadyRun) -> None:
    starved = worker_samples([0.1] * 10, wait_share=0.9, switches=2)
    assert _severity(make_report(steady_run(20), client=starved), "client_saturated") == "invalid"  # 11 ms each time
    waiting = worker_samples([0.1] * 10, wait_share=0.9, switches=20)
    assert _severity(make_report(steady_run(20), client=waiting), "client_saturated") is None  # 1.1 ms each time


def test_one_starved_worker_of_four_is_enough(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = [s for worker in range(4) for s in _samples([60.0 if worker == 2 else 0.1] * 300, worker=worker)]
    assert _severity(make_report(steady_run(100), client=samples), "client_saturated") == "invalid"


def test_unstreamed_runs_are_judged_by_their_whole_latency(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(100), streaming=False, client=_samples([0.1] * 280 + [70.0] * 20))
    finding = _finding(report, "client_saturated")
    assert finding is not None
    assert (finding.severity.value, finding.evidence["p99_icl_ms"]) == ("invalid", None)
    assert finding.evidence["p50_latency_from_sent_ms"] == pytest.approx(120.0)


def test_without_samples_or_successes_nothing_is_said(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    assert _finding(make_report(steady_run(100)), "client_saturated") is None
    nothing_done = [failed(k, 10 * k, Outcome.CONNECT, 10 * k, 10 * k + 1) for k in range(100)]
    assert _finding(make_report(nothing_done, client=_samples([90.0] * 40)), "client_saturated") is None


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
    finding = _finding(make_report(steady_run(100), client=samples), "client_saturated")
    assert finding is not None
    assert advice in finding.advice


def test_evidence_reaches_the_sentence(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = _samples([60.0] * 300, cpu_share=0.1, wait_share=0.8, gc_longest_ms=1.5)
    finding = _finding(make_report(steady_run(100), client=samples), "client_saturated")
    assert finding is not None
    assert finding.sentence == (
        "The client was kept from running, and its sends and times of arrival are late: it woke 60.0 ms late on average, "
        "60.0 ms at p99, beside a median latency of 100.0 ms from the send (10% of a core used, 80% of the time spent waiting "
        "for one, longest garbage collection 1.5 ms)."
    )


def test_a_client_whose_kernel_stamps_what_arrives_is_late_with_its_sends_alone(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    report = make_report(steady_run(100), client=_samples([60.0] * 300), connections={"unstamped_reads": 0})
    finding = _finding(report, "client_saturated")
    assert finding is not None
    assert "and its sends are late:" in finding.sentence


# ---- clock_stepped


def _clock(stepped_ms: float = 0.0, slept_ms: float = 0.0) -> dict[str, Any]:
    before = {"realtime_minus_monotonic_ns": 1_795_306_986_682_515_898, "boottime_minus_monotonic_ns": 32}
    after = {
        "realtime_minus_monotonic_ns": before["realtime_minus_monotonic_ns"] + round(stepped_ms * 1e6),
        "boottime_minus_monotonic_ns": before["boottime_minus_monotonic_ns"] + round(slept_ms * 1e6),
    }
    return {"clock": {"before": before, "after": after}}


@pytest.mark.parametrize(
    ("clock", "severity"),
    [
        (_clock(), None),
        (_clock(stepped_ms=9, slept_ms=9), None),
        (_clock(stepped_ms=11), "warning"),
        (_clock(stepped_ms=-3_600_000), "warning"),
        (_clock(slept_ms=11), "invalid"),
        (_clock(stepped_ms=60_000, slept_ms=60_000), "invalid"),  # awake again, the wall clock is right and the other is not
        ({"clock": None}, None),
        ({"clock": {"before": _clock()["clock"]["before"], "after": None}}, None),
        ({}, None),
    ],
)
def test_a_clock_that_was_set_is_told_and_a_machine_that_slept_spoils_the_run(
    make_report: MakeReport, steady_run: SteadyRun, clock: dict[str, Any], severity: str | None
) -> None:
    assert _severity(make_report(steady_run(10), **clock), "clock_stepped") == severity


def test_clocks_in_words(make_report: MakeReport, steady_run: SteadyRun) -> None:
    stepped = _finding(make_report(steady_run(10), **_clock(stepped_ms=-1500)), "clock_stepped")
    slept = _finding(make_report(steady_run(10), **_clock(slept_ms=60_000)), "clock_stepped")
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
    finding = _finding(make_report(steady_run(10), connections=connections), "connection_limit_reached")
    assert (None if finding is None else finding.evidence["requests"]) == requests
    if finding is not None:
        assert finding.severity.value == "warning"
        assert finding.sentence == "7 requests waited for a stream, because the server accepts no more of them at once."


def test_a_manifest_from_before_there_were_such_facts_says_nothing(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert _finding(make_report(steady_run(10)), "connection_limit_reached") is None
