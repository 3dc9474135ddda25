"""Findings about requests that were cut off, and those that planned cancellations must not make false."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record, TokenSource
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
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
    """1,000 requests of 3 tokens; every tenth, which requested 101 at 10 ms each, is cancelled with its first."""
    return [
        replace(withdrawn(record, tokens=1), requested_output_tokens=101) if record.index % 10 == 3 else record
        for record in steady_run(1_000, ignore_eos=True)
    ]


def test_planned_cancellations_alone_leave_lower_bounds_and_nothing_else(
    make_report: MakeReport, cancelled: list[Record]
) -> None:
    report = make_report(cancelled, **counted_by_server(1_000))
    assert (_codes(report), report.valid) == ({"latencies_cut_off"}, True)


def test_a_server_that_stops_at_the_cancellation_counts_what_arrived(make_report: MakeReport, cancelled: list[Record]) -> None:
    assert _codes(make_report(cancelled, **_generated(2_700 + 100))) == {"latencies_cut_off"}
    noticed_after_a_quarter_of_a_second = 2_700 + 100 * 26
    assert _codes(make_report(cancelled, **_generated(noticed_after_a_quarter_of_a_second))) == {"latencies_cut_off"}


def test_answers_that_a_proxy_holds_back_leave_the_server_s_speed_unknown(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    """All tokens of an answer come at one time, so that TPOT is 0."""
    held_back = [
        replace(record, token_times_ns=record.token_times_ns[-1:] * len(record.token_times_ns)) for record in steady_run(1_000)
    ]
    records = [
        replace(withdrawn(record, tokens=0), requested_output_tokens=101) if record.index % 10 == 3 else record
        for record in held_back
    ]
    report = make_report(records, **_generated(2_700 + 100 * 101))
    assert report.metrics.tpot_ms is not None
    assert report.metrics.tpot_ms.mean.value == 0.0
    assert "generated_after_cancellation" not in _codes(report)


def test_answers_that_end_before_a_server_looks_prove_nothing(make_report: MakeReport, cancelled: list[Record]) -> None:
    short = [replace(record, requested_output_tokens=20) for record in cancelled]
    assert "generated_after_cancellation" not in _codes(make_report(short, **_generated(2_700 + 100 * 20)))


def test_a_server_that_computes_on_is_found(make_report: MakeReport, cancelled: list[Record]) -> None:
    report = make_report(cancelled, **_generated(2_700 + 100 * 101))
    finding = finding_of(report, "generated_after_cancellation")
    assert finding is not None
    assert finding.evidence == {"withdrawn": 100, "generated_beyond": 10_000.0, "still_asked": 10_000.0}


@pytest.mark.parametrize(("beyond", "found"), [(6_240, False), (6_260, True)])
def test_half_of_what_follows_a_quarter_of_a_second_may_be_generated_on(
    make_report: MakeReport, cancelled: list[Record], beyond: int, found: bool
) -> None:
    """Each of 100 answers lacks 100 tokens of 10 ms: 25 of them may be on their way, and half of the other 75 are 37.5."""
    codes = _codes(make_report(cancelled, **_generated(2_700 + 100 + beyond)))
    assert ("generated_after_cancellation" in codes) is found


@pytest.mark.parametrize(("generated", "found"), [(2_700 + 6_290, False), (2_700 + 6_310, True)])
def test_a_request_that_was_cancelled_before_its_first_token_still_asked_for_all_of_them(
    make_report: MakeReport, steady_run: SteadyRun, generated: int, found: bool
) -> None:
    """Each of 100 answers lacks 101 tokens of 10 ms: 25 of them may be on their way, and half of the other 76 are 38."""
    records = [
        replace(withdrawn(record, tokens=0), requested_output_tokens=101) if record.index % 10 == 3 else record
        for record in steady_run(1_000)
    ]
    finding = finding_of(make_report(records, **_generated(generated)), "generated_after_cancellation")
    assert (finding is not None) is found
    if finding is not None:
        assert finding.evidence == {"withdrawn": 100, "generated_beyond": generated - 2_700.0, "still_asked": 10_100.0}


def test_cancellations_are_not_blamed_for_tokens_that_something_else_may_explain(
    make_report: MakeReport, cancelled: list[Record], steady_run: SteadyRun, failed: Callable[..., Record]
) -> None:
    cut = failed(999, 9_990, Outcome.STREAM_CUT, 9_990, 10_000)
    for records in (
        [*cancelled[:-1], cut],
        [*cancelled[:-1], replace(cut, output_tokens=0)],
        [*cancelled[:-1], replace(cancelled[-1], output_tokens=None)],
        [replace(record, output_tokens_source=TokenSource.TEXT) for record in cancelled],
        steady_run(1_000),
    ):
        assert "generated_after_cancellation" not in _codes(make_report(records, **_generated(12_800)))
    unstreamed = make_report(cancelled, streaming=False, **_generated(12_800))
    assert "generated_after_cancellation" not in _codes(unstreamed)


@pytest.mark.parametrize(("generated", "found"), [(9_000, True), (8_310, True), (8_290, False), (6_700, False)])
def test_tokens_of_cancelled_answers_that_are_counted_from_text_may_be_a_third_more(
    make_report: MakeReport, cancelled: list[Record], generated: int, found: bool
) -> None:
    """Each has 30 tokens by its text, which may be 40, of which 61 were left: 25 come before a server notices, and half of the
    other 36 are 18: 83.
    """
    from_text = {"output_tokens": 30, "token_counts": None, "output_tokens_source": TokenSource.TEXT}
    records = [replace(record, **from_text) if record.outcome is Outcome.WITHDRAWN else record for record in cancelled]
    assert ("generated_after_cancellation" in _codes(make_report(records, **_generated(2_700 + generated)))) is found


@pytest.mark.parametrize(("count", "severity", "tails"), [(1, "note", []), (11, "warning", ["p99_ttft"])])
def test_cancelling_before_the_first_token_makes_bounds_of_the_mean_and_of_tails(
    make_report: MakeReport, steady_run: SteadyRun, count: int, severity: str, tails: list[str]
) -> None:
    """The first tokens of all others came after 100 ms; these were cancelled after 150 to 150 + ``count`` ms."""
    records = [
        replace(withdrawn(record, tokens=0), done_ns=record.scheduled_ns + (150 + record.index) * 1_000_000)
        if record.index < count
        else record
        for record in steady_run(1_000)
    ]
    finding = finding_of(make_report(records), "latencies_cut_off")
    assert finding is not None
    assert finding.severity.value == severity
    assert f": {count} cancelled as planned. " in finding.sentence
    assert {name: value for name, value in finding.evidence.items() if name != "bounds"} == {
        "requests": count,
        "share": count / 1_000,
        "by_kind": {"withdrawn": count},
        "shortest_ms": 150.0,
        "median_ms": 150.0 + (count - 1) / 2,
    }
    assert [name for name in finding.evidence["bounds"] if "ttft" in name] == ["mean_ttft", *tails, "max_ttft"]
    unstreamed = finding_of(make_report(records, streaming=False), "latencies_cut_off")
    assert unstreamed is not None
    assert not [name for name in unstreamed.evidence["bounds"] if "ttft" in name]


def test_requests_that_time_out_or_are_stopped_are_cut_off_too(
    make_report: MakeReport, steady_run: SteadyRun, failed: Callable[..., Record]
) -> None:
    records = [
        *steady_run(997),
        failed(997, 9_970, Outcome.TIMEOUT, 9_970, 10_970),
        failed(998, 9_980, Outcome.CANCELLED, 9_980, 10_080),
        failed(999, 9_990, Outcome.REFUSED, 9_990, 9_991),
    ]
    finding = finding_of(make_report(records), "latencies_cut_off")
    assert finding is not None
    assert finding.sentence == (
        "2 requests (0.2%) were cut off before their answer ended: 1 in flight when the run was stopped, 1 timed out. The "
        "shortest had taken 100 ms by then, half of them at most 550 ms. Therefore these are lower bounds: mean_ttft, mean_e2e."
    )


def test_a_turn_that_was_stopped_with_the_run_is_no_turn_behind_a_failure(
    make_report: MakeReport, steady_run: SteadyRun, failed: Callable[..., Record]
) -> None:
    first, *others = steady_run(20)
    later = failed(20, 300, Outcome.NOT_SENT, parent=0)
    report = make_report([withdrawn(first, tokens=1), *others, later], load={"mode": "sessions"}, interrupted=True)
    assert "turns_not_sent" not in _codes(report)
