"""Findings about the target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.records.record import Record
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
        "No stream had a token for 3.02 s from 4.00 s on, while 9 requests were in flight; at other times the longest silence "
        "was 0.020 s."
    )
    assert finding.evidence["client_lag_max_ms"] is None


def test_a_target_that_does_not_stop_and_an_unstreamed_run_have_no_pause(make_report: MakeReport, answered: Make) -> None:
    assert finding_of(make_report(paused_streams(answered, 0.0)), "target_paused") is None
    assert finding_of(make_report(paused_streams(answered, 3_000.0), streaming=False), "target_paused") is None


def test_a_client_that_stopped_with_its_target_is_named(make_report: MakeReport, answered: Make) -> None:
    for lag_ms, part in ((1_000.0, 0), (2_900.0, 1)):
        samples = worker_samples([0.1] * 160 + [lag_ms] + [0.1] * 60)
        finding = finding_of(make_report(paused_streams(answered, 3_000.0), client=samples), "target_paused")
        assert finding is not None
        assert finding.advice == finding.advices[part]


# ---- machine_shared


@pytest.mark.parametrize(
    ("others_cores", "cores", "found"), [(0.19, 2, False), (0.21, 2, True), (6.3, 64, False), (6.5, 64, True)]
)
def test_a_tenth_of_the_machine_that_others_used_is_named(
    make_report: MakeReport, answered: Make, others_cores: float, cores: int, found: bool
) -> None:
    report = make_report(paused_streams(answered, 0.0), **machine_use(others_cores, cores))
    assert (finding_of(report, "machine_shared") is not None) is found


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
