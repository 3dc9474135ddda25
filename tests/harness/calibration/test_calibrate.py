"""What the trials of a calibration send."""

from __future__ import annotations

import numpy as np
import pytest

from harness.calibration import calibrate as calibrating
from harness.calibration.calibrate import PACE, QUICK, calibrate, rung_schedule, trial_schedule
from harness.calibration.trial import OverrunError, Subject, TrialResult
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.transport.url import Origin
from harness.errors import RunError
from workloads.schedule.schedule import Schedule


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


def test_a_machine_too_busy_for_the_quiet_rate_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls_behind(subject: Subject, schedule: Schedule, workers: int) -> TrialResult:
        raise OverrunError("the client fell seconds behind")

    monkeypatch.setattr(calibrating, "run_trial", falls_behind)
    subject = Subject(OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m"), lambda body: None, PACE)
    with pytest.raises(RunError, match="sse, quiet: the client fell seconds behind; calibrate while the machine is idle"):
        calibrate({"sse": subject}, (1,), QUICK, lambda line: None)
