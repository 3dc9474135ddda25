"""Findings about the target."""

from __future__ import annotations

from collections.abc import Callable

from harness.records.record import Record
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.findings.runs import paused_streams
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
