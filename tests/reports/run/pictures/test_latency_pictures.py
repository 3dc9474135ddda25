"""The pictures of latency show the numbers of the tables."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec import structs

from bench_records.record import Outcome, Record
from reports.render.picture import Dots, HeatMap, Line, Picture, Shape, Whiskers
from reports.run.page import run_pictures
from reports.run.pictures.latency import latency_pictures, nines, percentile_axis
from reports.run.pictures.over_time import drawn_positions, log_edges, part_text, percentile_per_part
from reports.run_report import RunReport
from reports.statistics.quantile_curve import curve_of

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _named(pictures: Sequence[Picture], name: str) -> Picture:
    (picture,) = [picture for picture in pictures if picture.name == name]
    return picture


def _line(picture: Picture, name: str) -> Line:
    (line,) = [mark for mark in picture.marks if isinstance(mark, Line) and mark.name == name]
    return line


@pytest.fixture
def slow_tail(answered: Make) -> list[Record]:
    """1,000 requests of 10 ms, and one of each 100 that takes 1 s more than the one before it."""
    return [
        answered(k, 10 * k, 10 * k + 1, [(10 * k + 5, 1), (10 * k + (10 if k % 100 else 10 + 10 * k), 1)]) for k in range(1_000)
    ]


def test_the_curve_meets_the_table_at_its_percentiles(make_report: MakeReport, slow_tail: list[Record]) -> None:
    report = make_report(slow_tail)
    line = _line(_named(latency_pictures(report), "latency-by-percentile"), "E2E latency, from schedule")
    table = report.metrics.e2e_ms.scheduled
    assert table is not None
    for q, value in ((0.50, table.p50), (0.90, table.p90), (0.99, table.p99)):
        at = np.argmin(np.abs(line.x - -math.log10(1 - q)))
        assert line.y[at] == value
    assert line.y[-1] == table.max


@pytest.mark.parametrize(
    ("reach", "names"),
    [
        (-math.log10(0.65), ["0", "10", "20", "30"]),  # up to p35
        (-math.log10(0.5), ["0", "50"]),
        (-math.log10(0.02), ["0", "50", "75", "90"]),
        (-math.log10(0.001), ["0", "50", "75", "90", "99", "99.9"]),
    ],
)
def test_the_axis_of_percentiles_has_a_scale_wherever_its_curves_end(reach: float, names: list[str]) -> None:
    ticks = percentile_axis(reach).ticks
    assert [text for _, text in ticks] == names
    assert [at for at, _ in ticks] == pytest.approx([-math.log10(1 - float(text) / 100) for text in names])


def test_failures_end_the_curve_and_hold_the_distribution_below_one(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = [answered(k, k, k, [(k + 5, 1)]) for k in range(90)]
    records += [failed(90 + k, 90 + k, Outcome.TIMEOUT, 90 + k, 200) for k in range(10)]
    pictures = latency_pictures(make_report(records))
    by_percentile = _named(pictures, "latency-by-percentile")
    assert _line(by_percentile, "TTFT, from send").x[-1] == pytest.approx(1.0)  # p90
    assert "ends where the failed requests begin" in by_percentile.caption
    ecdf = _line(_named(pictures, "latency-distribution"), "TTFT, from send")
    assert (ecdf.x[0], ecdf.y[0]) == (0.0, 0.0)
    assert ecdf.y[-1] == pytest.approx(0.9)


def test_the_largest_value_has_a_place_on_the_axis_of_nines() -> None:
    at = nines(curve_of(np.arange(1.0, 11.0), 10))
    assert np.isfinite(at).all()
    assert (np.diff(at) > 0).all()
    assert at[8] == pytest.approx(1.0)  # the 9th of 10 is p90


def test_intervals_stand_at_their_percentiles(make_report: MakeReport, answered: Make) -> None:
    rng = np.random.default_rng(0)
    report = make_report([answered(k, k, k, [(k + x, 1)]) for k, x in enumerate(rng.exponential(10, 3_000).tolist())])
    picture = _named(latency_pictures(report), "latency-by-percentile")
    (whiskers,) = [mark for mark in picture.marks if isinstance(mark, Whiskers) and mark.name == "TTFT, from schedule"]
    assert report.metrics.ttft_ms is not None
    table = report.metrics.ttft_ms.scheduled
    assert table is not None
    intervals = ((q, table.percentile(q).interval) for q in (0.5, 0.99))
    expected = {-np.log10(1 - q): interval for q, interval in intervals if interval is not None}
    assert expected
    drawn = zip(whiskers.x.tolist(), whiskers.low.tolist(), whiskers.high.tolist(), strict=True)
    assert list(drawn) == [(at, *interval) for at, interval in expected.items()]
    assert "95 % interval" in picture.caption


def test_a_far_tail_makes_the_axis_logarithmic(make_report: MakeReport, slow_tail: list[Record], steady_run: SteadyRun) -> None:
    assert _named(latency_pictures(make_report(slow_tail)), "latency-distribution").x.log
    assert not _named(latency_pictures(make_report(steady_run(100))), "latency-distribution").x.log


def test_every_success_is_in_the_heat_map(make_report: MakeReport, slow_tail: list[Record], failed: Make) -> None:
    records = [*slow_tail, failed(1_000, 9_999, Outcome.CONNECT, 9_999, 10_000)]
    pictures = latency_pictures(make_report(records))
    for name in ("e2e-heat-map", "ttft-heat-map"):
        heat = next(mark for mark in _named(pictures, name).marks if isinstance(mark, HeatMap))
        assert heat.counts.shape == (heat.y_edges.size - 1, heat.x_edges.size - 1)
        assert heat.counts.sum() == 1_000
    heat = next(mark for mark in _named(pictures, "e2e-heat-map").marks if isinstance(mark, HeatMap))
    tenths_ms = [10.0 if k % 100 else 10.0 + 10 * k for k in range(1_000)]
    assert heat.counts.sum(axis=1).tolist() == np.histogram(tenths_ms, heat.y_edges)[0].tolist()
    assert heat.counts[-1].sum() == 2  # 8 and 9 s


def test_many_requests_are_sampled_and_the_slowest_kept(make_report: MakeReport, answered: Make) -> None:
    latency_ms = np.random.default_rng(0).exponential(10.0, 10_000) + 1
    latency_ms[7_123] = 5_000.0
    report = make_report([answered(k, k, k, [(k + latency_ms[k], 1)]) for k in range(10_000)])
    picture = _named(latency_pictures(report), "latency-over-time")
    dots = next(mark for mark in picture.marks if isinstance(mark, Dots))
    assert dots.x.size <= 2_002
    assert dots.y.max() == pytest.approx(5_000.0)
    assert dots.notes[int(np.argmax(dots.y))] == "request 7123"
    assert "each stretch of neighbours shows its slowest" in picture.caption
    few = _named(latency_pictures(make_report([answered(k, k, k, [(k + 5, 1)]) for k in range(100)])), "latency-over-time")
    assert "stretch" not in few.caption


def test_failures_stand_where_they_ended(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [answered(0, 0, 0, [(5, 1)]), failed(1, 10, Outcome.STREAM_CUT, 12, 40), failed(2, 20, Outcome.NOT_SENT)]
    picture = _named(latency_pictures(make_report(records)), "latency-over-time")
    (crosses,) = [mark for mark in picture.marks if isinstance(mark, Dots) and mark.shape is Shape.CROSS]
    assert (crosses.x.tolist(), crosses.y.tolist(), crosses.notes) == ([0.01], [30.0], ("request 1: stream_cut",))


@pytest.mark.parametrize("count", [0, 1, 19_999, 20_000, 20_001, 40_001, 99_999])
def test_the_dots_that_are_drawn_are_known_and_not_too_many(count: int) -> None:
    latency_ms = np.arange(float(count))
    latency_ms[::3] = np.nan
    shown = drawn_positions(latency_ms, 2_000)
    assert not np.isnan(latency_ms[shown]).any()
    assert shown.size <= 2_002
    assert (np.diff(shown) > 0).all()


def test_percentiles_of_parts_are_nearest_rank_and_know_gaps() -> None:
    times = np.array([0.0, 1.0, 2.0, 9.0, 10.0])
    values = np.array([5.0, 7.0, 6.0, 1.0, np.inf])
    found = percentile_per_part(times, values, np.array([0.0, 3.0, 6.0, 10.0]), 0.5)
    assert found[0] == 6.0
    assert np.isnan(found[1])
    assert found[2] == 1.0


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [0.001, 1e9], [1.0, 1.0000001]])
def test_logarithmic_edges_hold_all_values(values: list[float]) -> None:
    edges = log_edges(np.array(values), 40)
    assert edges[0] <= min(values)
    assert edges[-1] >= max(values)
    assert (np.diff(edges) > 0).all()


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
        names = {picture.name for picture in run_pictures(make_report(records, streaming=streaming)).all}
    assert {"latency-by-percentile", "latency-over-time", "rates", "slip", "in-flight"} <= names
    assert ("token-latency-by-percentile" in names) == streaming


def test_answers_without_tokens_are_drawn_without_a_warning(make_report: MakeReport, answered: Make) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_pictures(make_report([answered(0, 0, 1, [], done=5)]))


def test_a_run_without_successes_has_no_latency(make_report: MakeReport, failed: Make) -> None:
    pictures = run_pictures(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]))
    assert pictures.latency == ()
    assert {picture.name for picture in pictures.arrivals} == {"rates", "slip", "in-flight"}


def test_pictures_that_count_withdrawn_requests_do_not_call_them_successful(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1), (10 * k + 9, 1)]) for k in range(100)]
    records[::4] = [structs.replace(record, outcome=Outcome.WITHDRAWN) for record in records[::4]]
    picture = _named(latency_pictures(make_report(records)), "ttft-heat-map")
    heat = next(mark for mark in picture.marks if isinstance(mark, HeatMap))
    assert heat.counts.sum() == 100
    assert "successful" not in picture.caption


@pytest.mark.parametrize(("parts_of_s", "text"), [(0.05, "0.05 s"), (12.5, "12.5 s"), (1_250.0, "1,250 s")])
def test_the_parts_of_runs_of_days_have_no_exponent(parts_of_s: float, text: str) -> None:
    assert part_text(np.array([0.0, parts_of_s * 1e9, 2 * parts_of_s * 1e9])) == text
