"""The pictures of a report."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

from harness.records.record import Outcome, Record
from reports.charts import charts, telling
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]


def test_a_streamed_run_has_three_pictures_that_are_svg(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    drawn = charts(make_report(steady_run(20)))
    assert [chart.title for chart in drawn] == ["Latency over time", "Latency distribution", "Load over time"]
    for chart in drawn:
        assert ElementTree.fromstring(chart.svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert chart.caption.endswith(".")


def test_a_run_without_successes_has_none(make_report: MakeReport, failed: Make) -> None:
    assert charts(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)])) == []


def test_many_dots_become_one_bitmap_inside_the_picture(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    dots = charts(make_report(steady_run(2_001)))[0]
    assert "data:image/png;base64," in dots.svg
    assert len(dots.svg) < 500_000
    assert "data:image/png;base64," not in charts(make_report(steady_run(50)))[0].svg


def test_a_large_run_s_pictures_stay_small_and_keep_the_slowest(make_report: MakeReport, answered: Make) -> None:
    latency_ms = np.random.default_rng(0).exponential(10.0, 50_000)
    latency_ms[31_234] = 5_000.0
    report = make_report([answered(k, k, k, [(k + latency_ms[k], 1)]) for k in range(50_000)])
    assert all(len(chart.svg) < 600_000 for chart in charts(report))
    shown = telling(latency_ms)
    assert 31_234 in shown
    assert shown.size <= 20_002
    assert (np.diff(shown) > 0).all()


@pytest.mark.parametrize("count", [0, 1, 19_999, 20_000, 20_001, 40_001, 99_999])
def test_the_dots_that_are_drawn_are_known_and_not_too_many(count: int) -> None:
    latency_ms = np.arange(float(count))
    latency_ms[::3] = np.nan
    shown = telling(latency_ms)
    assert not np.isnan(latency_ms[shown]).any()
    assert shown.size <= 20_002


@pytest.mark.parametrize("streaming", [True, False])
def test_mixed_records_can_be_drawn(make_report: MakeReport, answered: Make, failed: Make, streaming: bool) -> None:
    records = [
        answered(0, 0, 1, [(5, 1), (9, 2)]),
        answered(1, 1, 1, [(6, 1)], token_counts=None, output_tokens=None),
        answered(2, 2, 2, []),
        failed(3, 3, Outcome.STREAM_CUT, 3, 8, token_times_ns=(5_000_000,), token_counts=(1,)),
        failed(4, 4, Outcome.NOT_SENT),
        failed(5, 5, Outcome.LOST),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(charts(make_report(records, streaming=streaming))) == 3


def test_answers_without_tokens_are_drawn_without_a_warning(make_report: MakeReport, answered: Make) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        charts(make_report([answered(0, 0, 1, [], done=5)]))
