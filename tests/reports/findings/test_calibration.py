"""Findings about the calibration: absent at the calibrated rates, and naming the one that was exceeded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_records.record import Record
from reports.findings.calibration import BeyondCalibration, workers_text
from reports.findings.finding import Severity
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.manifests import calibration, rate_limit

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


@pytest.mark.parametrize(
    ("requests_per_s", "responses_per_s", "exceeded"),
    [
        (100, 300, []),
        (99, 300, ["100 requests/s where 99 are calibrated"]),
        (100, 299, ["300 responses/s where 299 are calibrated"]),
        (99, 299, ["100 requests/s where 99 are calibrated", "300 responses/s where 299 are calibrated"]),
    ],
)
def test_rates_beyond_the_calibrated_ones_are_found(
    make_report: MakeReport, steady_run: SteadyRun, requests_per_s: float, responses_per_s: float, exceeded: list[str]
) -> None:
    """100 requests/s of 3 responses each."""
    limits = calibration(rate_limit(requests_per_s), rate_limit(responses_per_s))
    finding = finding_of(make_report(steady_run(700), calibration=limits), "beyond_calibration")
    assert (finding is None) == (not exceeded)
    if finding is not None:
        assert finding.severity is Severity.WARNING
        assert finding.evidence == pytest.approx(
            {
                "requests_per_s": 100.0,
                "calibrated_requests_per_s": requests_per_s,
                "responses_per_s": 300.0,
                "calibrated_responses_per_s": responses_per_s,
                "workers": 1,
            }
        )
        assert finding.sentence == (f"In its busiest seconds the client handled {' and '.join(exceeded)} (with 1 worker).")


def test_a_rate_that_was_not_calibrated_cannot_be_exceeded() -> None:
    finding = BeyondCalibration(100.0, None, 1_300.0, 1_200.0, 4)
    assert finding.sentence == (
        "In its busiest seconds the client handled 1,300 responses/s where 1,200 are calibrated (with 4 workers)."
    )


def test_a_run_without_a_calibration_has_no_finding(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert finding_of(make_report(steady_run(700)), "beyond_calibration") is None


@pytest.mark.parametrize(("count", "text"), [(1, "1 worker"), (2, "2 workers")])
def test_workers_are_counted_in_words(count: int, text: str) -> None:
    assert workers_text(count) == text
