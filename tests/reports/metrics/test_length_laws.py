"""Lengths as the law asks for them, as sent, and as counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_records.record import Outcome, Record
from reports.metrics.length_laws import LengthLaw, LengthSample
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.page import run_page, run_pictures
from reports.run.summary_json import summary
from reports.run.tables import length_law_table
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_LAWS = {
    "input": {"law": "uniform:min=10,max=30", "mean": 20.0, "stdev": 6.055},
    "output": {"law": "8±2", "mean": 8.5, "stdev": 2.02},
}


@pytest.fixture
def stopped_early(make_report: MakeReport, answered: Make, failed: Make) -> RunReport:
    """Four requests: two successes whose answers ended before their length, a failure that was sent, and one that was not."""
    asked = {"requested_input_tokens": 20, "input_tokens": 24}
    return make_report(
        [
            answered(0, 0, 0, [(5, 4)], **asked, requested_output_tokens=8, output_tokens=4),
            answered(1, 1, 1, [(6, 6)], **asked, requested_output_tokens=10, output_tokens=6),
            failed(2, 2, Outcome.TIMEOUT, 2, 9, requested_input_tokens=26, requested_output_tokens=9, output_tokens=1),
            failed(3, 3, Outcome.NOT_SENT, requested_input_tokens=900, requested_output_tokens=900),
        ],
        lengths=_LAWS,
        workload={"description": "x", "dropped_too_long": 3},
    )


def test_sent_lengths_are_of_all_sent_and_actual_ones_of_successes(stopped_early: RunReport) -> None:
    assert stopped_early.output_law == LengthLaw(
        "8±2", 8.5, 2.02, LengthSample(9.0, pytest.approx((2 / 3) ** 0.5), 3), LengthSample(5.0, 1.0, 2)
    )
    assert stopped_early.input_law.sent == LengthSample(22.0, pytest.approx(8**0.5), 3)
    assert stopped_early.input_law.actual == LengthSample(24.0, 0.0, 2)


def test_every_format_has_the_asked_the_sent_and_the_received_mean(stopped_early: RunReport) -> None:
    table = length_law_table(stopped_early)
    assert [row[1:5] for row in table.rows] == [("uniform:min=10,max=30", 20.0, 22.0, 24.0), ("8±2", 8.5, 9.0, 5.0)]
    assert "3 prompts were drawn by the law, but too long to be sent." in table.note
    assert table in [
        block for section in run_page(stopped_early, run_pictures(stopped_early)).sections for block in section.blocks
    ]
    (line,) = [line for line in render(stopped_early).splitlines() if "8±2" in line]
    assert line.split()[-7:] == ["8.50", "9.00", "5.00", "2.02", "0.82", "1.00", "3"]
    assert "uniform:min=10,max=30" in render_markdown(stopped_early)
    assert summary(stopped_early)["length_laws"]["output"] == {
        "law": "8±2",
        "asked": {"mean": 8.5, "stdev": 2.02},
        "sent": {"mean": 9.0, "stdev": pytest.approx((2 / 3) ** 0.5), "requests": 3},
        "actual": {"mean": 5.0, "stdev": 1.0, "requests": 2},
    }


@pytest.mark.parametrize("manifest", [{}, {"lengths": None}, {"lengths": {"input": None}}])
def test_without_a_law_nothing_was_asked(make_report: MakeReport, answered: Make, manifest: dict[str, object]) -> None:
    report = make_report([answered(0, 0, 0, [(5, 4)], requested_output_tokens=4, output_tokens=4)], **manifest)
    assert report.output_law == LengthLaw(None, None, None, LengthSample(4.0, 0.0, 1), LengthSample(4.0, 0.0, 1))
    assert summary(report)["length_laws"]["output"]["asked"] is None
    assert length_law_table(report).rows[-1][1:4] == (None, None, 4.0)


def test_a_law_of_a_run_that_sent_nothing_still_asks(make_report: MakeReport, failed: Make) -> None:
    report = make_report([failed(0, 0, Outcome.NOT_SENT)], lengths=_LAWS)
    assert report.input_law == LengthLaw("uniform:min=10,max=30", 20.0, 6.055, None, None)
    assert [row[-1] for row in length_law_table(report).rows] == [None, None]


@pytest.mark.parametrize(("template", "words"), [(4, "with the 4 tokens of a chat template"), (0, "with the tokens of a chat")])
def test_the_note_says_how_many_tokens_of_a_template_are_in_the_actual_lengths(
    make_report: MakeReport, answered: Make, template: int, words: str
) -> None:
    records = [
        answered(k, k, k, [(k + 5, 4)], requested_input_tokens=20, input_tokens=20 + template, server_counted_input=True)
        for k in range(3)
    ]
    target = {"model": "m", "protocol": "openai", "streaming": True, "template_tokens": template}
    assert words in length_law_table(make_report(records, target=target)).note
