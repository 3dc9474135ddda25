"""The pictures of a report."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from harness.records.record import Outcome, Record
from reports.charts import charts
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
