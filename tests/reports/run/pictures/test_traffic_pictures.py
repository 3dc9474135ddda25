"""What was offered, sent and answered, and tokens requested and received."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.render.picture import Dots, Line, Picture
from reports.run.pictures.traffic import arrival_pictures, token_pictures
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _lines(pictures: Sequence[Picture], name: str) -> dict[str, Line]:
    (picture,) = [picture for picture in pictures if picture.name == name]
    return {mark.name: mark for mark in picture.marks if isinstance(mark, Line)}


def _total(line: Line) -> float:
    """The area below steps: how many there were."""
    return float((line.y[:-1] * np.diff(line.x)).sum())


def test_every_request_is_counted_once_in_the_rates(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(500), *(failed(500 + k, 5_000, Outcome.TIMEOUT, 5_000, 5_100) for k in range(20))]
    lines = _lines(arrival_pictures(make_report(records)), "rates")
    assert _total(lines["offered"]) == pytest.approx(520)
    assert _total(lines["sent"]) == pytest.approx(520)
    assert _total(lines["answered"]) == pytest.approx(500)
    assert lines["offered"].y[3] == pytest.approx(100, rel=0.1)  # one each 10 ms


def test_what_a_stopped_run_did_not_come_to_send_was_not_offered(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    """The picture said that the client was late from the stop on, and all pictures over time went on to the plan's end."""
    report = make_report([*steady_run(500), *(failed(k, 10 * k, Outcome.NOT_SENT) for k in range(500, 1_500))])
    lines = _lines(arrival_pictures(report), "rates")
    assert _total(lines["offered"]) == pytest.approx(500)
    assert lines["offered"].x[-1] == pytest.approx(5.11, abs=0.02)  # the end of the last answer
    assert report.metrics.offered_rate == report.metrics.achieved_rate


def test_a_closed_loop_offers_no_rate(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(100), load={"mode": "closed", "concurrency": 4})
    assert set(_lines(arrival_pictures(report), "rates")) == {"sent", "answered"}


def test_slip_shows_when_the_client_was_late(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + (80 if 200 <= k < 220 else 1), [(10 * k + 100, 1)]) for k in range(400)]
    lines = _lines(arrival_pictures(make_report(records)), "slip")
    late = lines["largest"].y > 70
    assert late.any()
    assert lines["largest"].x[late].min() == pytest.approx(2.0, abs=0.3)
    assert lines["largest"].x[late].max() == pytest.approx(2.2, abs=0.3)
    assert lines["median"].y[0] == pytest.approx(1.0)


def test_in_flight_is_the_mean_of_each_part(make_report: MakeReport, steady_run: SteadyRun) -> None:
    lines = _lines(arrival_pictures(make_report(steady_run(500))), "in-flight")
    middle = lines["in flight"].y[200:300]  # each request of 121 ms, one every 10 ms
    assert middle.mean() == pytest.approx(12.1, rel=0.02)
    assert lines["due and not ended"].y[200:300].mean() == pytest.approx(12.1, rel=0.02)


def test_output_tokens_over_time_add_up(make_report: MakeReport, steady_run: SteadyRun) -> None:
    (line,) = _lines(token_pictures(make_report(steady_run(500))), "output-tokens").values()
    assert _total(line) == pytest.approx(1_500)


def test_requested_and_received_counts_the_pairs(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, k, k, [(k + 5, 3)], requested_output_tokens=3 if k % 2 else 9) for k in range(10)]
    (picture,) = [drawn for drawn in token_pictures(make_report(records)) if drawn.name == "asked-and-got"]
    (dots,) = [mark for mark in picture.marks if isinstance(mark, Dots)]
    assert list(zip(dots.x.tolist(), dots.y.tolist(), dots.notes, strict=True)) == [
        (3.0, 3.0, "5 requests"),
        (9.0, 3.0, "5 requests"),
    ]


def test_many_pairs_are_sampled_over_all_distances_from_the_line(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, k, k, [(k + 5, 1)], requested_output_tokens=k, output_tokens=k // 2) for k in range(1, 5_001)]
    (picture,) = [drawn for drawn in token_pictures(make_report(records)) if drawn.name == "asked-and-got"]
    (dots,) = [mark for mark in picture.marks if isinstance(mark, Dots)]
    assert dots.x.size == 2_000
    assert "2,000 of 5,000 different pairs are shown" in picture.caption
    assert (dots.x - dots.y).max() == 2_500  # the farthest among them


def test_lengths_count_every_success(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, k, k, [(k + 5, 2)], input_tokens=1 + k % 300) for k in range(600)]
    lines = _lines(token_pictures(make_report(records)), "lengths")
    assert {name: line.y[:-1].sum() for name, line in lines.items()} == dict.fromkeys(lines, 600.0)
    assert set(lines) == {"input", "output requested", "output received"}
