"""Findings about planned cancellations, and those that planned cancellations must not make false."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from harness.records.record import Outcome, Record
from reports.run_report import RunReport
from tests.reports.findings.runs import withdrawn
from tests.reports.manifests import counted_by_server
from tests.reports.watched import metric

SteadyRun = Callable[..., list[Record]]
MakeReport = Callable[..., RunReport]


def _codes(report: RunReport) -> set[str]:
    return {finding.code for finding in report.findings}


def _generated(tokens: float) -> dict[str, Any]:
    return {"server": metric("vllm:generation_tokens_total", {-1: 0, 30: tokens})}


@pytest.fixture
def cancelled(steady_run: SteadyRun) -> list[Record]:
    """1,000 requests of 3 tokens; every tenth, which asked for 101 at 10 ms each, is cancelled with its first."""
    return [
        replace(withdrawn(one, tokens=1), requested_output_tokens=101) if one.index % 10 == 3 else one
        for one in steady_run(1_000, ignore_eos=True)
    ]


def test_planned_cancellations_alone_are_nothing_to_complain_of(make_report: MakeReport, cancelled: list[Record]) -> None:
    report = make_report(cancelled, **counted_by_server(1_000))
    assert (_codes(report), report.valid) == (set(), True)


def test_a_server_that_stops_at_the_cancellation_counts_what_arrived(make_report: MakeReport, cancelled: list[Record]) -> None:
    assert _codes(make_report(cancelled, **_generated(2_700 + 100))) == set()
    noticed_after_a_quarter_of_a_second = 2_700 + 100 * 26
    assert _codes(make_report(cancelled, **_generated(noticed_after_a_quarter_of_a_second))) == set()


def test_answers_that_end_before_a_server_looks_prove_nothing(make_report: MakeReport, cancelled: list[Record]) -> None:
    short = [replace(one, requested_output_tokens=20) for one in cancelled]
    assert "generated_after_cancellation" not in _codes(make_report(short, **_generated(2_700 + 100 * 20)))


def test_a_server_that_computes_on_is_found(make_report: MakeReport, cancelled: list[Record]) -> None:
    report = make_report(cancelled, **_generated(2_700 + 100 * 101))
    assert _codes(report) == {"generated_after_cancellation"}
    (finding,) = report.findings
    assert finding.evidence == {"withdrawn": 100, "generated_beyond": 10_000.0, "still_asked": 10_000.0}


def test_failures_beside_it_explain_tokens_that_did_not_arrive(
    make_report: MakeReport, cancelled: list[Record], failed: Callable[..., Record]
) -> None:
    records = [*cancelled[:-1], failed(999, 9_990, Outcome.STREAM_CUT, 9_990, 10_000)]
    assert "generated_after_cancellation" not in _codes(make_report(records, **_generated(12_800)))


@pytest.mark.parametrize(("count", "severity"), [(1, "note"), (11, "warning")])
def test_cancelling_before_the_first_token_makes_ttft_too_low(
    make_report: MakeReport, steady_run: SteadyRun, count: int, severity: str
) -> None:
    records = [withdrawn(one, tokens=0) if one.index < count else one for one in steady_run(1_000)]
    report = make_report(records)
    assert [(finding.code, finding.severity.value) for finding in report.findings] == [
        ("withdrawn_before_first_token", severity)
    ]
    assert "withdrawn_before_first_token" not in _codes(make_report(records, streaming=False))


def test_a_turn_that_was_stopped_with_the_run_is_no_turn_behind_a_failure(
    make_report: MakeReport, steady_run: SteadyRun, failed: Callable[..., Record]
) -> None:
    first, *others = steady_run(20)
    later = failed(20, 300, Outcome.NOT_SENT, parent=0)
    report = make_report([withdrawn(first, tokens=1), *others, later], load={"mode": "sessions"}, interrupted=True)
    assert "turns_not_sent" not in _codes(report)
