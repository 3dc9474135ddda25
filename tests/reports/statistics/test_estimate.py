"""Intervals, and reasons for having none, in words."""

from __future__ import annotations

import pytest

from reports.render.tables import cell_text
from reports.statistics.estimate import Cause, Correlated, Estimate, FewClusters, OtherSchedules, Reason, TooFew, reason_text


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1_500.0, (1_234.5, 2_000.125)), "1,234.50 – 2,000.12"),
        (Estimate(1_500.0, None, TooFew(99, 100), 1_234.5), "≥ 1,234.50; n too small"),
        (Estimate(None, reason=Cause.AMONG_FAILURES), "failed"),
        (Estimate(0.0042, (0.0031, 0.0123)), "0.0031 – 0.01"),
        (Estimate(0.0042, None, TooFew(99, 100), 0.0031), "≥ 0.0031; n too small"),
        (Estimate(0.005, (0.0, 0.01)), "0.00 – 0.01"),
        (Estimate(20.0), ""),
    ],
)
def test_an_interval_is_written_with_its_limits_or_the_reason_for_none(estimate: Estimate, text: str) -> None:
    assert estimate.interval_text == text


def test_the_numbers_of_an_interval_have_the_form_that_is_asked_for() -> None:
    assert Estimate(0.002, (0.001, 0.003)).limits_text(cell_text) == "0.001 – 0.003"
    assert Estimate(0.002, None, TooFew(9, 100), 0.001).limits_text(cell_text) == "≥ 0.001; n too small"


@pytest.mark.parametrize(
    ("reason", "short", "sentence"),
    [
        (TooFew(99, 100), "n too small", "too few requests for an interval, at least 100 needed"),
        (Correlated(1_234, 30), "effective n 1,234", "equivalent to 1,234 independent requests, 30 needed"),
        (Correlated(1, 10), "effective n 1", "equivalent to 1 independent request, 10 needed"),
        (Cause.DRIFTS, "drifts, or run too short", "it drifts, or the run is too short"),
        (Cause.UNEVEN, "rests on few values", "it rests on few values"),
        (
            Cause.CLUSTERED_ARRIVALS,
            "arrivals in few clusters",
            "arrivals came in few clusters: send more, worth 200 independent ones",
        ),
        (Cause.AMONG_FAILURES, "failed", "it falls among the failed requests"),
        (Cause.CUT_OFF, "requests cut off", "requests were cut off, so a lower bound alone is known"),
        (Cause.NONE_SUCCEEDED, "no request succeeded", "no request succeeded"),
        (
            OtherSchedules(Cause.DRIFTS),
            "other schedules: drifts, or run too short",
            "other schedules: drifts, or run too short",
        ),
    ],
)
def test_a_reason_is_short_in_tables_and_needs_none_in_a_sentence(reason: Reason, short: str, sentence: str) -> None:
    assert (str(reason), reason.sentence) == (short, sentence)
    assert reason_text(reason) == short


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Correlated(8, 30, 3_800), "effective n 8; about 3,800 requests would do"),
        (FewClusters(3, 5, 12_000), "3 clusters of values beyond it, 5 needed; about 12,000 requests would do"),
        (FewClusters(1, 5, 9_200), "1 cluster of values beyond it, 5 needed; about 9,200 requests would do"),
    ],
)
def test_a_reason_names_how_many_requests_would_do(reason: Reason, text: str) -> None:
    assert str(reason) == text


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_words(cause: Cause) -> None:
    assert str(cause)
    assert cause.sentence


def test_no_reason_is_null_in_documents() -> None:
    assert reason_text(None) is None
