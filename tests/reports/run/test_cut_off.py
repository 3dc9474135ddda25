"""A run of which 3 % of the requests hang and are cancelled after 1 s: no number of any format hides them."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.compare.measures import measure_run
from reports.criteria import parse_slo
from reports.gates.gate import Status
from reports.metrics.estimates import of_percentile, over_runs
from reports.run.console import WIDTH, render_answer
from reports.run.csv_file import write_csv
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.page import run_page, run_pictures
from reports.run.summary_json import summary
from reports.run_data.run import open_run
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import Cause
from reports.trend.history import estimates_of

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]


@pytest.fixture(scope="module")
def hanging(make_report: MakeReport, answered: Make, failed: Make) -> RunReport:
    """2,000 requests, one each 10 ms, answered after 80 and 100 ms, give or take; a random 3 % hang."""
    rng = np.random.default_rng(1)
    hang, late = rng.random(2_000) < 0.03, rng.lognormal(0.0, 0.1, 2_000)
    records = [
        failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 1_000, error=None)
        if hang[k]
        else answered(k, 10 * k, 10 * k, [(10 * k + 80 * late[k], 1), (10 * k + 100 * late[k], 1)])
        for k in range(2_000)
    ]
    return make_report(records)


def test_the_tail_and_the_mean_are_at_least_what_is_known(hanging: RunReport) -> None:
    ttft, e2e = hanging.metrics.ttft_ms, hanging.metrics.e2e_ms.scheduled
    assert ttft is not None
    assert ttft.scheduled is not None
    assert e2e is not None
    p99 = ttft.scheduled.percentile(0.99)
    assert (p99.value, p99.lower_bound, p99.at_least) == (None, 1_000.0, 1_000.0)
    assert ttft.scheduled.p50 == pytest.approx(80, rel=0.02)
    assert e2e.mean.value is None
    assert e2e.mean.lower_bound == pytest.approx(0.97 * 100 + 0.03 * 1_000, rel=0.05)
    assert e2e.n + e2e.censored == 2_000


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        ("p99_ttft<=500ms", Status.FAILED),
        ("p99_e2e<=500ms", Status.FAILED),
        ("mean_e2e<=110ms", Status.FAILED),
        ("mean_e2e<=500ms", Status.UNDECIDED),
        ("attainment>=99%", Status.FAILED),
        ("p50_ttft<=100ms", Status.PASSED),
    ],
)
def test_a_gate_that_the_hanging_requests_decide_is_never_passed(hanging: RunReport, requirement: str, status: Status) -> None:
    (gate,) = read_run(hanging.folder, [parse_slo(requirement), parse_slo("ttft<=500ms")]).gates
    assert gate.status is status


def test_every_format_says_that_it_is_a_lower_bound(hanging: RunReport) -> None:
    full, markdown = render(hanging), render_markdown(hanging)
    for text in (full, markdown, str(run_page(hanging, run_pictures(hanging)))):
        assert "≥ 1,000.00" in text
    row = next(line for line in full.splitlines() if line.startswith("E2E latency, from schedule"))
    mean = row.removeprefix("E2E latency, from schedule").split()[:2]
    assert mean[0] == "≥"
    assert 120 < float(mean[1]) < 135
    answer = render_answer(hanging)
    assert "≥ 1,000*" in answer
    assert "p99 is a lower bound: requests were cut off." in answer
    assert "Requests were cut off: numbers with ≥ are lower bounds" in answer
    assert max(map(len, answer.splitlines())) <= WIDTH


def test_the_note_below_the_percentiles_counts_what_was_cut_off(hanging: RunReport) -> None:
    assert hanging.metrics.e2e_ms.scheduled is not None
    censored = hanging.metrics.e2e_ms.scheduled.censored
    assert f"E2E latency, from schedule: {censored}; " in str(run_page(hanging, run_pictures(hanging)))


def test_the_json_has_null_and_the_bound_beside_it(hanging: RunReport) -> None:
    document = json.loads(json.dumps(summary(hanging), allow_nan=False))
    ttft = document["metrics"]["ttft_ms"]["scheduled"]
    assert (ttft["mean"], ttft["p99"], ttft["max"], ttft["failed"]) == (None, None, None, 0)
    assert ttft["lower_bounds"].keys() == {"mean", "p99", "max"}
    assert ttft["lower_bounds"]["p99"] == ttft["at_least"]["p99"] == 1_000.0
    assert ttft["n"] + ttft["censored"] == 2_000
    (finding,) = (found for found in document["findings"] if found["code"] == "latencies_cut_off")
    assert (finding["severity"], finding["evidence"]["median_ms"]) == ("warning", 1_000.0)


def test_pictures_end_where_the_exact_values_end_and_show_the_cuts(hanging: RunReport) -> None:
    pictures = {picture.name: picture for picture in run_pictures(hanging).latency}
    line = next(mark for mark in pictures["latency-by-percentile"].marks if mark.name == "E2E latency, from schedule")
    assert float(line.y.max()) < 500.0  # type: ignore[union-attr]
    assert "or at the first cut of a request" in pictures["latency-by-percentile"].caption
    cut = next(mark for mark in pictures["latency-over-time"].marks if mark.name == "cut off")
    assert set(cut.y.tolist()) == {1_000.0}  # type: ignore[union-attr]
    assert "A grey × is where a request was cut off" in pictures["latency-over-time"].caption


def test_a_spreadsheet_and_a_data_frame_have_no_latency_of_a_request_that_was_cut_off(hanging: RunReport) -> None:
    write_csv(hanging, hanging.folder.csv)
    rows = [line.split(",") for line in hanging.folder.csv.read_text(encoding="utf-8").splitlines()]
    head, withdrawn = rows[0], [row for row in rows if row[1].strip('"') == "withdrawn"]
    assert len(withdrawn) > 40
    assert {row[head.index("last_token_ms")] for row in withdrawn} == {""}
    frame = open_run(hanging.folder.path).requests
    assert frame[frame.outcome == "withdrawn"][["ttft_ms", "e2e_ms"]].isna().all(axis=None)


def test_comparisons_trends_and_sweeps_have_no_value_and_the_reason(hanging: RunReport) -> None:
    measured = measure_run(hanging.requests, streaming=True)
    assert (measured["p99_ttft"].value, measured["p99_ttft"].reason) == (None, Cause.REACHES_CUT)
    assert measured["p50_e2e"].value == pytest.approx(100, rel=0.02)
    trend = estimates_of(hanging)["p99_ttft"]
    assert (trend.value, trend.interval_text) == (None, "≥ 1,000.00; requests cut off")
    e2e = hanging.metrics.e2e_ms.scheduled
    point = over_runs([of_percentile(e2e, 0.99)] * 3)
    assert (point.value, point.interval, point.reason) == (None, None, Cause.CUT_OFF)
    assert e2e is not None
    assert e2e.mean.interval_text.endswith("; requests cut off")
