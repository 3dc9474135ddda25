"""Findings about the target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_records.client_sample import ClientSample
from bench_records.record import Record
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.findings.runs import paused_streams
from tests.reports.manifests import machine_use
from tests.reports.watched import worker_samples

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]


# ---- target_paused


def test_a_target_that_stopped_is_named_with_its_time(make_report: MakeReport, answered: Make) -> None:
    finding = finding_of(make_report(paused_streams(answered, 3_000.0)), "target_paused")
    assert finding is not None
    assert finding.severity.value == "warning"
    assert finding.sentence == (
        "No stream had a token for 3.02 s from 4.00 s on, at the end of which 23 requests were in flight; at other times the "
        "longest silence was 0.020 s."
    )
    assert finding.evidence == {
        "at_s": pytest.approx(4.0, rel=1e-12), "length_s": pytest.approx(3.02, rel=1e-12), "in_flight": 23,
        "usual_s": pytest.approx(0.02, rel=1e-9), "pauses": 1, "client_lag_max_ms": None,
    }  # fmt: skip


def test_a_target_that_does_not_stop_and_an_unstreamed_run_have_no_pause(make_report: MakeReport, answered: Make) -> None:
    assert finding_of(make_report(paused_streams(answered, 0.0)), "target_paused") is None
    assert finding_of(make_report(paused_streams(answered, 3_000.0), streaming=False), "target_paused") is None


@pytest.mark.parametrize(
    ("lag_ms", "woke_ms", "part_ms", "stopped"),
    [
        (1_000.0, 6_000.0, 1_000.0, False),
        (2_900.0, 7_000.0, 2_900.0, True),
        (2_900.0, 9_890.0, 30.0, False),  # after the target went on
        (2_900.0, 4_000.0, 0.0, False),  # before it stopped
        (5_000.0, 8_000.0, 3_020.0, True),
    ],
)
def test_a_client_that_stopped_with_its_target_is_named(
    make_report: MakeReport, answered: Make, lag_ms: float, woke_ms: float, part_ms: float, stopped: bool
) -> None:
    """The target stops from 4 to 7.02 s, and the client's loop is due up to ``lag_ms`` before it wakes."""
    calm = worker_samples([0.0] * 300)
    late = ClientSample(time_ns=round(woke_ms * 1e6), worker=0, lag_ns=round(lag_ms * 1e6))
    samples = [sample for sample in calm if not woke_ms - lag_ms <= sample.time_ns / 1e6 <= woke_ms]
    samples = sorted([*samples, late], key=lambda sample: sample.time_ns)
    finding = finding_of(make_report(paused_streams(answered, 3_000.0), client=samples), "target_paused")
    assert finding is not None
    assert finding.evidence["client_lag_max_ms"] == pytest.approx(max(0.0, part_ms))
    assert finding.advice == finding.advices[1 if stopped else 0]


# ---- machine_shared


@pytest.mark.parametrize(
    ("others_cores", "cores", "found"),
    [(0.19, 2, False), (0.21, 2, True), (1.0, 10, True), (6.3, 64, False), (6.5, 64, True)],
)
def test_a_tenth_of_the_machine_that_others_used_is_named(
    make_report: MakeReport, answered: Make, others_cores: float, cores: int, found: bool
) -> None:
    report = make_report(paused_streams(answered, 0.0), **machine_use(others_cores, cores))
    assert (finding_of(report, "machine_shared") is not None) is found


def test_a_machine_that_others_used_has_all_that_ran_as_evidence(make_report: MakeReport, answered: Make) -> None:
    finding = finding_of(make_report(paused_streams(answered, 0.0), **machine_use(1.0, 10)), "machine_shared")
    assert finding is not None
    assert finding.evidence == {
        "others_cores": 1.0, "others_share": 0.1, "client_cores": 0.2, "target_cores": 0.5, "cores": 10
    }  # fmt: skip


def test_who_used_the_machine_in_words(make_report: MakeReport, answered: Make) -> None:
    finding = finding_of(make_report(paused_streams(answered, 0.0), **machine_use(1.1)), "machine_shared")
    assert finding is not None
    assert finding.sentence == (
        "Other programs used 1.10 of the 2 cores of the machine on average (55% of its CPU time), the target 0.50 and the "
        "client 0.20."
    )


@pytest.mark.parametrize(
    "unknown",
    [{}, {"machine_use": None}, machine_use(1.0, seconds=0.9), machine_use(-0.3)],
    ids=["older", "null", "short", "uncounted"],
)
def test_a_machine_of_unknown_use_is_not_judged(make_report: MakeReport, answered: Make, unknown: dict[str, object]) -> None:
    assert finding_of(make_report(paused_streams(answered, 0.0), **unknown), "machine_shared") is None
