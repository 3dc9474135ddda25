"""What the trials of a calibration send."""

from __future__ import annotations

import numpy as np
import pytest

from harness.calibration.calibrate import PACE, rung_schedule, trial_schedule


@pytest.mark.parametrize("rung_s", [0.5, 1.0])
@pytest.mark.parametrize("responses_per_s", [8_000.0, 32_000.0])
def test_a_rate_of_responses_is_there_for_as_long_as_it_is_said_to_be_held(responses_per_s: float, rung_s: float) -> None:
    """When a perfect server and client would have each response: 100 tokens take half a second."""
    offsets_s = np.array(rung_schedule(responses_per_s, 100, rung_s, PACE).offsets_ns) / 1e9
    arrivals_s = (offsets_s[:, None] + PACE.first_token_ns / 1e9 + PACE.gap_ns / 1e9 * np.arange(100)).ravel()
    answer_s = (PACE.first_token_ns + 99 * PACE.gap_ns) / 1e9
    held = np.count_nonzero((arrivals_s >= answer_s) & (arrivals_s < answer_s + rung_s)) / rung_s
    assert held == pytest.approx(responses_per_s, rel=0.15)  # the arrivals are still random


@pytest.mark.parametrize("requests_per_s", [20.0, 80.0, 500.0])
def test_a_short_schedule_has_the_rate_that_it_is_named_for(requests_per_s: float) -> None:
    offsets_ns = trial_schedule(requests_per_s, 1, 1.0).offsets_ns
    assert len(offsets_ns) == requests_per_s
    assert (len(offsets_ns) - 1) / (offsets_ns[-1] - offsets_ns[0]) * 1e9 == pytest.approx(requests_per_s)
