"""TTFT and TTFO of answers with reasoning: the first token of any kind, and the first that a user sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_records.record import Outcome, Record
from reports.metrics.metric import Anchored
from reports.run.full import render
from reports.run.summary_json import summary
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]


@pytest.fixture
def reasoned(answered: Make) -> list[Record]:
    """Reasoning from 100 ms on and the answer from 250 ms on; only reasoning; no reasoning. All are sent 10 ms late."""
    return [
        answered(0, 0, 10, [(100, 1), (200, 1), (250, 1), (300, 1)], has_reasoning=True, first_output_ns=250_000_000),
        answered(1, 0, 10, [(120, 1), (220, 1)], has_reasoning=True),
        answered(2, 0, 10, [(140, 1), (240, 1)], has_reasoning=False),
    ]


def _values(latency: Anchored | None) -> list[tuple[int, float, float | None]]:
    """n, mean and maximum from the schedule and from the send."""
    assert latency is not None
    return [(d.n, d.mean.value, d.max) for _, d in latency.by_anchor if d is not None]


def test_the_first_token_counts_whatever_it_is_and_the_first_output_without_reasoning(
    make_report: MakeReport, reasoned: list[Record]
) -> None:
    metrics = make_report(reasoned).metrics
    assert _values(metrics.ttft_ms) == [(3, 120.0, 140.0), (3, 110.0, 130.0)]
    assert _values(metrics.ttfo_ms) == [(2, 195.0, 250.0), (2, 185.0, 240.0)]


def test_a_failure_counts_as_slower_than_every_output(make_report: MakeReport, reasoned: list[Record], failed: Make) -> None:
    latency = make_report([*reasoned, failed(3, 0, Outcome.REFUSED, 10)]).metrics.ttfo_ms
    assert latency is not None
    assert latency.scheduled is not None
    assert (latency.scheduled.n, latency.scheduled.failed, latency.scheduled.max) == (2, 1, None)


def test_the_metric_is_shown_only_where_answers_have_reasoning(
    make_report: MakeReport, reasoned: list[Record], steady_run: Callable[..., list[Record]]
) -> None:
    with_reasoning, without = make_report(reasoned), make_report(steady_run(3))
    assert "TTFO, from schedule" in render(with_reasoning)
    assert summary(with_reasoning)["metrics"]["ttfo_ms"]["scheduled"]["mean"] == 195.0
    assert "TTFO" not in render(without)
    assert summary(without)["metrics"]["ttfo_ms"] is None


def test_unstreamed_answers_have_none(make_report: MakeReport, reasoned: list[Record]) -> None:
    assert make_report(reasoned, streaming=False).metrics.ttfo_ms is None


def test_a_run_of_reasoning_alone_has_no_output_to_time(make_report: MakeReport, reasoned: list[Record]) -> None:
    assert make_report([reasoned[1]]).metrics.ttfo_ms == Anchored(None, None)
