"""What servers measured of a request, from the fields that they document."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.server_times import ServerTimes, of_stamps, of_vllm


@pytest.mark.parametrize(
    ("stamps", "times"),
    [
        ((100, 130, 180, 400), ServerTimes(queue_ns=30, prefill_ns=50, decode_ns=220, arrival_ns=100)),
        ((100, 100, 180, 180), ServerTimes(queue_ns=0, prefill_ns=80, decode_ns=0, arrival_ns=100)),
        ((100, 130, 0, 0), ServerTimes(queue_ns=30, arrival_ns=100)),  # no token as yet
        ((100, 0, 0, 0), ServerTimes(arrival_ns=100)),
        ((100, 90, 180, 400), ServerTimes(prefill_ns=90, decode_ns=220, arrival_ns=100)),  # out of order: no duration
        ((0, 0, 0, 0), None),  # TensorRT-LLM before 0.19 answers zeros unasked
        ((-5, -4, -3, -2), None),
        ((1 << 62, 1 << 62, 1 << 62, 1 << 62), None),
    ],
)
def test_durations_are_between_the_stamps_of_events_that_took_place(
    stamps: tuple[int, int, int, int], times: ServerTimes | None
) -> None:
    assert of_stamps(*stamps) == times


def test_vllms_time_to_first_token_is_the_prefill() -> None:
    """The example of docs.vllm.ai/en/latest/features/per_request_metrics."""
    metrics = {
        "time_to_first_token_ms": 85.2,
        "generation_time_ms": 1240.5,
        "queue_time_ms": 12.3,
        "mean_itl_ms": 9.1,
        "tokens_per_second": 103.2,
    }
    assert of_vllm(metrics) == ServerTimes(queue_ns=12_300_000, prefill_ns=85_200_000, decode_ns=1_240_500_000)


@pytest.mark.parametrize(
    "metrics",
    [
        None,
        {},
        [],
        "fast",
        {"queue_time_ms": None, "time_to_first_token_ms": None},
        {"queue_time_ms": -1.0, "time_to_first_token_ms": "85", "generation_time_ms": True},
        {"queue_time_ms": float("inf"), "generation_time_ms": float("nan"), "time_to_first_token_ms": 1e300},
    ],
)
def test_what_is_no_duration_is_unknown_and_fails_no_request(metrics: Any) -> None:
    assert of_vllm(metrics) is None
