"""Findings about numbers that must agree: each provoked, and each absent where they agree."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.records.record import Outcome, Record, TokenSource
from reports.findings.finding import Severity
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of
from tests.reports.findings.runs import (
    chunks_joined,
    doubled_tokens,
    held_open,
)

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


# ---- token_counts_disagree, littles_law


def test_the_server_counts_other_tokens_than_came(make_report: MakeReport, steady_run: SteadyRun, answered: Make) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 1), (150, 1)], output_tokens=5)
    finding = finding_of(make_report(records), "token_counts_disagree")
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence == pytest.approx({"requests": 1, "share": 0.1, "in_responses": 29, "reported": 32})


def test_counts_that_agree_are_unknown_or_of_failures_do_not_disagree(
    make_report: MakeReport, steady_run: SteadyRun, answered: Make, failed: Make
) -> None:
    records = steady_run(10)
    records[4] = answered(4, 40, 40, [(140, 3)], token_counts=None, output_tokens=4)
    records[5] = answered(5, 50, 50, [(150, 3)], output_tokens=None)
    records[6] = failed(6, 60, Outcome.STREAM_CUT, 60, 90, output_tokens=9, token_times_ns=(70_000_000,), token_counts=(1,))
    assert finding_of(make_report(records), "token_counts_disagree") is None


def test_itl_is_not_shown_of_the_faster_answers_alone(make_report: MakeReport, answered: Make) -> None:
    report = make_report(chunks_joined(answered, 50, 50))
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert finding.evidence == pytest.approx({"share": 2 / 3, "tpot_of_known_ms": 10.0, "tpot_of_all_ms": 15.0})
    assert finding.sentence.endswith("have a mean TPOT of 10.00 ms, -33% to all.")
    assert report.metrics.itl_ms is None
    assert report.metrics.icl_ms is not None
    assert report.metrics.tpot_ms is not None


def test_itl_that_covers_nearly_all_gaps_is_shown_with_its_share(make_report: MakeReport, answered: Make) -> None:
    report = make_report(chunks_joined(answered, 1, 999))
    finding = finding_of(report, "token_counts_unknown")
    assert finding is not None
    assert finding.evidence["share"] == pytest.approx(1998 / 1999)
    assert report.metrics.itl_ms is not None
    assert report.metrics.itl_ms.mean.value == pytest.approx(10.0)


@pytest.mark.parametrize("joined", [0, 100])
def test_counts_that_are_all_known_or_all_unknown_bias_nothing(make_report: MakeReport, answered: Make, joined: int) -> None:
    report = make_report(chunks_joined(answered, joined, 100 - joined))
    assert finding_of(report, "token_counts_unknown") is None
    assert (report.metrics.itl_ms is None) == (joined == 100)


@pytest.mark.parametrize(
    ("in_text", "severity"), [(30, None), (34, None), (24, None), (50, "warning"), (10, "warning"), (None, None)]
)
def test_texts_that_make_other_counts_than_the_servers(
    make_report: MakeReport, answered: Make, in_text: int | None, severity: str | None
) -> None:
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 100, 30)], output_tokens=30, text_tokens=None if k % 2 else in_text)
        for k in range(40)
    ]
    report = make_report(records)
    assert severity_of(report, "text_tokens_disagree") == severity
    if in_text == 50:
        finding = finding_of(report, "text_tokens_disagree")
        assert finding is not None
        assert finding.evidence == {"requests": 20, "in_text": 1_000, "reported": 600}
        assert "600 tokens for 20 answers whose text has 1,000" in finding.sentence


def test_too_few_tokens_are_no_evidence_about_the_servers_counts(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert finding_of(make_report(steady_run(40, text_tokens=3, output_tokens=1)), "text_tokens_disagree") is None


@pytest.mark.parametrize(("doubled", "severity"), [(0, None), (1, "warning"), (10, "invalid")])
def test_more_tokens_than_were_asked_for_came(
    make_report: MakeReport, answered: Make, doubled: int, severity: str | None
) -> None:
    report = make_report(doubled_tokens(answered, doubled))
    assert severity_of(report, "output_longer_than_asked") == severity
    if severity is not None:
        finding = finding_of(report, "output_longer_than_asked")
        assert finding is not None
        assert (finding.evidence["requests"], finding.evidence["tokens_beyond"]) == (doubled, 2 * doubled)


def test_text_counted_again_may_have_a_token_more_than_was_asked_for(make_report: MakeReport, answered: Make) -> None:
    source = {"output_tokens": 4, "output_tokens_source": TokenSource.TEXT, "token_counts": None}
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], requested_output_tokens=3, **source) for k in range(20)]
    assert finding_of(make_report(records), "output_longer_than_asked") is None


@pytest.mark.parametrize(("held_open_ms", "severity"), [(1, None), (400, "warning")])
def test_streams_that_stay_open_after_their_last_token_break_littles_law(
    make_report: MakeReport, answered: Make, held_open_ms: float, severity: str | None
) -> None:
    report = make_report(held_open(answered, held_open_ms))
    assert report.metrics.windows.steady is not None
    assert severity_of(report, "littles_law") == severity
    if severity is not None:
        finding = finding_of(report, "littles_law")
        assert finding is not None
        assert finding.evidence == pytest.approx({"mean_in_flight": 50, "rate_per_s": 100, "mean_latency_s": 0.1}, rel=0.02)
