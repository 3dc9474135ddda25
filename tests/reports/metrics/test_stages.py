"""Stages of a rate that changes by steps: which requests belong to which, and what is shown of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench_records.manifest import manifest_of
from bench_records.record import Outcome, Record
from reports.metrics.requests import Requests
from reports.metrics.stages import stages
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.summary_json import summary
from reports.run_report import RunReport
from reports.statistics.estimate import Cause

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_LOAD = {
    "mode": "open",
    "stages": [{"begin_s": 0.0, "end_s": 2.0, "rate_per_s": 5.0}, {"begin_s": 2.0, "end_s": 3.0, "rate_per_s": 20.0}],
}


@pytest.fixture
def records(answered: Make, failed: Make) -> list[Record]:
    """Ten in the first stage, the last of which is sent in the second; twenty in the second, of which two fail."""
    first = [answered(k, 200 * k, 200 * k if k < 9 else 2_050, [(200 * k + 300, 1)]) for k in range(10)]
    second = [answered(10 + k, 2_000 + 50 * k, 2_000 + 50 * k, [(2_000 + 50 * k + 70, 1)]) for k in range(18)]
    lost = [failed(28 + k, 2_900 + 50 * k, Outcome.TIMEOUT, 2_900 + 50 * k, 3_500) for k in range(2)]
    return [*first, *second, *lost]


def test_requests_are_of_the_stage_in_which_they_were_due(make_report: MakeReport, records: list[Record]) -> None:
    first, second = make_report(records, load=_LOAD).stages
    assert (first.scheduled, first.failed, first.sent_rate, first.asked_rate) == (10, 0, 9 / 2, 5.0)
    assert (second.scheduled, second.failed, second.sent_rate, second.asked_rate) == (20, 2, 21.0, 20.0)
    assert first.ttft_ms is not None
    assert second.e2e_ms is not None
    assert (first.ttft_ms.p50, first.ttft_ms.n) == (300, 10)
    assert (second.e2e_ms.p50, second.e2e_ms.p99, second.e2e_ms.n) == (70, None, 18)  # two failed, slower than all


def test_every_report_has_a_row_for_each(make_report: MakeReport, records: list[Record]) -> None:
    report = make_report(records, load=_LOAD)
    for text in (render(report), render_markdown(report)):
        assert "scheduled/s" in text
    found: list[dict[str, Any]] = summary(report)["stages"]
    assert [(stage["begin_s"], stage["end_s"], stage["scheduled"], stage["failed"]) for stage in found] == [
        (0.0, 2.0, 10, 0), (2.0, 3.0, 20, 2),
    ]  # fmt: skip


def test_an_unstreamed_run_has_no_first_tokens(make_report: MakeReport, records: list[Record]) -> None:
    first = make_report(records, streaming=False, load=_LOAD).stages[0]
    assert (first.ttft_ms, first.e2e_ms is None) == (None, False)


@pytest.mark.parametrize("load", [{"mode": "open"}, None])
def test_a_run_at_one_rate_or_at_an_unknown_one_has_none(make_report: MakeReport, records: list[Record], load: Any) -> None:
    report = make_report(records, load=load)
    assert report.stages == ()
    assert summary(report)["stages"] == []
    assert "scheduled/s" not in render(report)


def test_a_stage_has_no_upper_limit_of_a_tail_where_its_load_may_fill_the_batch_that_the_target_publishes(
    make_requests: Callable[..., Requests], answered: Make
) -> None:
    """One request a second, of 0.3 s or so: one at a time is all that the target serves."""
    waits = np.random.default_rng(3).normal(300.0, 60.0, 1_000).tolist()
    requests = make_requests([answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + wait, 1)]) for k, wait in enumerate(waits)])
    one = {"begin_s": 0.0, "end_s": 1_000.0, "rate_per_s": 1.0}
    manifest = manifest_of({"load": {"mode": "open", "stages": [one]}, "target": {"model": "core", "streaming": True}})
    for limit, reason in ((None, None), (64, None), (1, Cause.FEW_QUEUES)):
        (stage,) = stages(requests, manifest, limit)
        for latency in (stage.ttft_ms, stage.e2e_ms):
            assert latency is not None
            assert latency.percentile(0.99).reason == reason
