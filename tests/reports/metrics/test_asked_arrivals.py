"""Arrivals as the law asks for them, as drawn, and as sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench_records.record import Outcome, Record
from reports.metrics.asked_arrivals import ArrivalSample, AskedArrivals
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.page import run_page, run_pictures
from reports.run.summary_json import summary
from reports.run.tables import arrival_law_table
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_S = 1000  # ms
_LAW = {"law": "gamma arrivals (shape 4)", "unit": "requests", "rate_per_s": 0.75, "gap_cv": None, "law_gap_cv": 0.5}
_STAGES = [{"begin_s": 0.0, "end_s": 4.0, "rate_per_s": 0.5}, {"begin_s": 4.0, "end_s": 8.0, "rate_per_s": 1.0}]


@pytest.fixture
def report(make_report: MakeReport, answered: Make, failed: Make) -> RunReport:
    """Arrivals at 0, 2, 4, 5 and 6 s; those at 2 and 4 s are sent late by 1 s and 0.5 s, and the last one is not sent."""
    late_ms = {2: 1000, 4: 500}
    sent = [answered(k, at * _S, at * _S + late_ms.get(at, 0), [(at * _S + 1500, 1)]) for k, at in enumerate((0, 2, 4, 5))]
    load = {"mode": "open", "asked_arrivals": _LAW, "stages": _STAGES}
    return make_report([*sent, failed(4, 6 * _S, Outcome.NOT_SENT)], load=load)


def test_the_whole_run_and_each_stage_have_their_rates_and_variations(report: RunReport) -> None:
    whole, first, second = report.asked_arrivals
    assert (whole.law, whole.unit, whole.stage, whole.asked_rate, whole.asked_gap_cv) == (
        "gamma arrivals (shape 4)", "requests", None, 0.75, None,
    )  # fmt: skip
    assert whole.scheduled == ArrivalSample(pytest.approx(4 / 6), pytest.approx(1 / 3), 4)
    assert whole.sent == ArrivalSample(pytest.approx(3 / 5), pytest.approx(0.6164, abs=1e-4), 3)
    assert (first.stage, first.asked_rate, first.asked_gap_cv) == (1, 0.5, 0.5)
    assert first.scheduled == ArrivalSample(0.5, None, 1)
    assert second.scheduled == ArrivalSample(0.75, 0.0, 2)
    assert second.sent == ArrivalSample(0.5, None, 1)
    assert [(stage.law, stage.unit) for stage in (first, second)] == [(whole.law, whole.unit)] * 2


def test_every_format_has_the_asked_and_the_sent_rate(report: RunReport) -> None:
    table = arrival_law_table(report)
    assert [row[0] for row in table.rows] == ["all requests", "stage 1", "stage 2"]
    assert "Requested: gamma arrivals (shape 4)." in table.note
    assert table in [block for section in run_page(report, run_pictures(report)).sections for block in section.blocks]
    (line,) = [line for line in render(report).splitlines() if line.startswith("all requests")]
    assert line.split()[2:] == ["0.75", "0.67", "0.60", "–", "0.33", "0.62", "3"]
    assert "Arrivals, requested and sent" in render_markdown(report) or "| all requests |" in render_markdown(report)
    laws = summary(report)["arrival_laws"]
    assert laws[1]["asked"] == {"rate_per_s": 0.5, "gap_cv": 0.5}
    assert laws[1]["sent"] == {"rate_per_s": 0.5, "gap_cv": None, "gaps": 1}


def _entry(unit: str) -> dict[str, Any]:
    return {"asked_arrivals": {"law": "x", "unit": unit, "rate_per_s": 1.0, "gap_cv": 1.0, "law_gap_cv": 1.0}}


def test_the_arrivals_of_sessions_are_first_turns(make_report: MakeReport, answered: Make) -> None:
    records = [
        answered(0, 2 * _S, 2 * _S, [(2005, 1)]),
        answered(1, 3 * _S, 3 * _S, [(3005, 1)], parent=0),
        answered(2, 6 * _S, 6 * _S, [(6005, 1)]),
    ]
    (whole,) = make_report(records, load={"mode": "sessions"} | _entry("sessions")).asked_arrivals
    assert whole == AskedArrivals("x", "sessions", None, 1.0, 1.0, ArrivalSample(0.25, None, 1), ArrivalSample(0.25, None, 1))


def test_a_ramp_is_taken_off(make_report: MakeReport, answered: Make) -> None:
    """At t² / (2 · ramp) within it, and after it all at the full rate."""
    times_s = [0, 2, 4, 5, 6]
    records = [answered(k, at * _S, at * _S, [(at * _S + 1, 1)]) for k, at in enumerate(times_s)]
    load = {"mode": "open", "ramp_up_s": 4.0} | _entry("requests")
    (whole,) = make_report(records, load=load).asked_arrivals
    assert whole.sent is not None
    assert whole.sent.rate_per_s == pytest.approx(4 / 4)  # at 0, 0.5, 2, 3 and 4 s


def test_the_wait_at_a_ceiling_is_taken_off(make_report: MakeReport, answered: Make) -> None:
    """Due at 0, 1, 2 and 3 s; the last two are held back for 2 s, and the last one is sent 1 s late besides."""
    records = [
        answered(k, k * _S, (k + wait + late) * _S, [(9000, 1)], released_ns=(k + wait) * 10**9)
        for k, (wait, late) in enumerate([(0, 0), (0, 0), (2, 0), (2, 1)])
    ]
    (whole,) = make_report(records, load={"mode": "open"} | _entry("requests")).asked_arrivals
    assert whole.scheduled == ArrivalSample(1.0, 0.0, 3)
    assert whole.sent == ArrivalSample(pytest.approx(3 / 4), pytest.approx((2 / 9) ** 0.5 / (4 / 3)), 3)


def test_arrivals_at_one_moment_have_no_rate_and_pairs_of_them_have_one(make_report: MakeReport, answered: Make) -> None:
    def scheduled(*times_s: int) -> ArrivalSample | None:
        records = [answered(k, at * _S, at * _S, [(at * _S + 5, 1)]) for k, at in enumerate(times_s)]
        (whole,) = make_report(records, load={"mode": "open"} | _entry("requests")).asked_arrivals
        return whole.scheduled

    assert scheduled(1, 1, 1) is None
    assert scheduled(1, 1, 3, 3) == ArrivalSample(1.5, pytest.approx(2**0.5), 3)  # gaps of 0, 2 and 0 s


def test_where_nothing_was_sent_nothing_is_known_of_the_sends(make_report: MakeReport, failed: Make) -> None:
    records = [failed(k, k * _S, Outcome.NOT_SENT) for k in range(2)]
    (whole,) = make_report(records, load={"mode": "open"} | _entry("requests")).asked_arrivals
    assert (whole.scheduled, whole.sent) == (ArrivalSample(1.0, None, 1), None)


@pytest.mark.parametrize("load", [{"mode": "closed", "asked_arrivals": None}, {"mode": "open"}, None])
def test_a_run_without_a_rate_has_none(make_report: MakeReport, answered: Make, load: dict[str, Any]) -> None:
    report = make_report([answered(0, 0, 0, [(5, 1)]), answered(1, 1, 1, [(6, 1)])], load=load)
    assert report.asked_arrivals == ()
    assert arrival_law_table(report).rows == ()
