"""The pictures of a comparison: what they show of intervals that have no end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bench_records.record import Record
from reports.compare.comparison import Arm, ArmComparison, compare
from reports.compare.difference import Difference, Verdict
from reports.compare.json_file import difference_document
from reports.compare.pictures import change_picture, quantile_difference_picture
from reports.compare.tables import interval_text
from reports.render.picture import Dots, Spans, Whiskers
from reports.run_report import RunReport


@pytest.fixture(scope="module")
def in_waves(make_report: Callable[..., RunReport], answered: Callable[..., Record]) -> ArmComparison:
    """Two short runs of 120 requests, each of a schedule of its own, whose latencies rise and fall slowly: for some quantiles
    no change is excluded.
    """

    def run(seed: int) -> RunReport:
        steps, level, records = np.random.default_rng(seed).normal(0.0, 0.2, 120), 0.0, []
        for k, step in enumerate(steps.tolist()):
            level = 0.9 * level + step
            records.append(answered(k, 100 * k, 100 * k, [(100 * k + 20.0 * math.exp(level), 1)]))
        return make_report(records, schedule={"digest": f"{seed:064x}", "seed": seed})

    (comparison,) = compare([Arm("a", (run(0),)), Arm("b", (run(1),))], allow_different=True).comparisons
    return comparison


def _p50(comparison: ArmComparison) -> Difference:
    return next(d for d in comparison.differences if d.measure.name == "p50_e2e")


def test_a_quantile_s_interval_without_an_upper_limit_is_none(in_waves: ArmComparison) -> None:
    """A bar up to 3·10²² ms hid the curve of all other quantiles."""
    known = [point for point in in_waves.curve if point.interval_ms is not None]
    assert {0.5, 0.6} <= {point.q for point in in_waves.curve} - {point.q for point in known}
    assert known
    picture = quantile_difference_picture(in_waves, "arm1")
    assert picture is not None
    (bars,) = (mark for mark in picture.marks if isinstance(mark, Whiskers))
    assert bars.x.size == len(known)
    assert np.abs(np.concatenate([bars.low, bars.high])).max() < 1_000.0


def test_a_change_without_an_upper_limit_is_cut_where_its_words_end(in_waves: ArmComparison) -> None:
    median, picture = _p50(in_waves), change_picture(in_waves, "arm1")
    assert not median.has_upper_limit
    assert interval_text(median) == "-100.0% to above +1,000%"
    assert picture is not None
    assert max(float(mark.high.max()) for mark in picture.marks if isinstance(mark, Spans)) == 1_000.0
    assert picture.caption.endswith("What lies above +1,000% is drawn there.")


def test_a_change_above_all_that_is_drawn_is_drawn_at_the_end(in_waves: ArmComparison) -> None:
    """The bar of +2,900 % (+2,500 to +3,300 %) went from 2,500 back to 1,000, beside its dot."""
    far = replace(_p50(in_waves), change=29.0, interval=(25.0, 33.0), verdict=Verdict.WORSE)
    picture = change_picture(replace(in_waves, differences=(far,)), "arm1")
    assert picture is not None
    (bar,), (dot,) = ([mark for mark in picture.marks if isinstance(mark, kind)] for kind in (Spans, Dots))
    assert (bar.low.tolist(), bar.high.tolist(), dot.x.tolist()) == ([1_000.0], [1_000.0], [1_000.0])
    assert dot.notes == ("above +1,000%, 95 %: above +1,000% to above +1,000%",)


def test_json_says_whether_an_interval_ends_above(in_waves: ArmComparison) -> None:
    median = _p50(in_waves)
    ends = [replace(median, interval=interval) for interval in (median.interval, (-0.1, 0.2), None)]
    assert [difference_document(d)["has_upper_limit"] for d in ends] == [False, True, None]
