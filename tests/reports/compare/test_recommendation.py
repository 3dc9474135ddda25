"""What a comparison recommends, against simulated repeats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reports.compare.difference import Difference, Verdict, between_pairs, between_runs
from reports.compare.measures import Measure
from reports.compare.recommendation import CHANGE, recommend
from reports.compare.spread import Evidence, Spread
from reports.metrics.catalogue import TTFT

_P99 = Measure(TTFT, 0.99)


def _difference(spread: Spread | None) -> Difference:
    return Difference(_P99, 1.0, 1.0, 0.0, None, None, None, None, None if spread is None else spread.evidence,
                      Verdict.NONE, None, spread)  # fmt: skip


@pytest.mark.parametrize("evidence", [Evidence.RUNS, Evidence.RUN_PAIRS])
def test_the_recommended_repeats_find_the_change_in_four_of_five_cases(evidence: Evidence) -> None:
    sd, between = 0.03, between_pairs if evidence is Evidence.RUN_PAIRS else between_runs
    error = sd * math.sqrt(2.0 / 3.0)  # of three repeats
    found = recommend([_difference(Spread(0.0, error, 2.0, evidence))], runs=3, requests=3_000)
    assert found is not None
    assert found.requests == 3_000
    rng = np.random.default_rng(1)
    shown = [
        between(rng.normal(0.0, sd, found.repeats), rng.normal(math.log1p(CHANGE), sd, found.repeats)).p_value < 0.05
        for _ in range(400)
    ]
    assert 0.76 < np.mean(shown) < 0.97  # whole runs, so seldom exactly 80 %


def test_single_runs_are_recommended_more_requests_the_larger_their_error() -> None:
    few, many = (recommend([_difference(Spread(0.0, e, 16.0, Evidence.REQUESTS))], 1, 3_000) for e in (0.05, 0.2))
    assert few is not None
    assert many is not None
    assert (few.repeats, many.repeats) == (5, 5)
    assert few.requests >= 3_000
    assert many.requests / few.requests == pytest.approx(16.0, rel=0.2)
    assert few.text == f"To show 5% of TTFT p99 in four of five cases: 5 repeats of about {few.requests:,} requests each."


@pytest.mark.parametrize("spread", [None, Spread(0.0, 0.0, 2.0, Evidence.RUNS), Spread(0.0, 9.0, 2.0, Evidence.RUNS)])
def test_nothing_is_recommended_without_an_error_or_at_no_affordable_number(spread: Spread | None) -> None:
    assert recommend([_difference(spread)], 3, 3_000) is None
