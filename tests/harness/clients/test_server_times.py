"""What servers measured of a request, from the fields that they document."""

from __future__ import annotations

from typing import Any

import pytest

from harness.clients.server_times import ServerTimes, fields_asking_for_times, of_dynamo, of_llama_cpp, of_stamps, of_vllm

_YEAR_NS = 365 * 86_400 * 10**9


@pytest.mark.parametrize(
    ("stamps", "times"),
    [
        ((100, 130, 180, 400), ServerTimes(queue_ns=30, prefill_ns=50, decode_ns=220, arrival_ns=100)),
        ((100, 100, 180, 180), ServerTimes(queue_ns=0, prefill_ns=80, decode_ns=0, arrival_ns=100)),
        ((100, 130, 0, 0), ServerTimes(queue_ns=30, arrival_ns=100)),  # no token as yet
        ((100, 0, 0, 0), ServerTimes(arrival_ns=100)),
        ((100, 90, 180, 400), ServerTimes(prefill_ns=90, decode_ns=220, arrival_ns=100)),  # out of order: no duration
        (
            (_YEAR_NS, _YEAR_NS + 30, _YEAR_NS + 80, _YEAR_NS + 300),  # of a host that has run for a year
            ServerTimes(queue_ns=30, prefill_ns=50, decode_ns=220, arrival_ns=_YEAR_NS),
        ),
        ((100, 130, _YEAR_NS, _YEAR_NS), ServerTimes(queue_ns=30, decode_ns=0, arrival_ns=100)),  # no prefill takes a year
        ((0, 0, 0, 0), None),  # TensorRT-LLM before 0.19 answers zeros unasked
        ((-5, -4, -3, -2), None),
        ((1 << 62, 1 << 62, 1 << 62, 1 << 62), None),
        (("100", "130", "180", "400"), ServerTimes(queue_ns=30, prefill_ns=50, decode_ns=220, arrival_ns=100)),
        (("1" * 19, "1" * 19, "1" * 19, "1" * 19), None),  # as large as an INT64
        (("100", "130", "180", "1" * 20), None),
        (("100", "130", "180", "٤٠٠"), None),
        (("100", "130", "180", " 400"), None),
        (("100", "130", "180", ""), None),
        ((100, 130, 180, True), None),
        ((100, 130, 180, 400.0), None),
    ],
)
def test_durations_are_between_the_stamps_of_events_that_took_place(
    stamps: tuple[Any, Any, Any, Any], times: ServerTimes | None
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


def test_dynamos_times_count_from_the_receipt_by_its_front_end() -> None:
    """A sample written from the documented schema, ``TimingInfo`` of ai-dynamo/dynamo; not recorded from a server."""
    timing = {
        "request_received_ms": 1_795_310_631_218,
        "prefill_wait_time_ms": 4.25,
        "prefill_time_ms": 31.5,
        "ttft_ms": 35.75,
        "total_time_ms": 410.75,
        "kv_hit_rate": 0.5,
    }
    times = ServerTimes(queue_ns=4_250_000, prefill_ns=31_500_000, decode_ns=375_000_000)
    assert of_dynamo({"worker_id": {"prefill_worker_id": 1}, "timing": timing}) == times
    aggregated = {name: timing[name] for name in ("request_received_ms", "ttft_ms", "total_time_ms")}
    assert of_dynamo({"timing": aggregated}) == ServerTimes(decode_ns=375_000_000)
    for name in ("prefill_wait_time_ms", "prefill_time_ms"):  # done elsewhere, and not noted: unknown, and never 0
        partly = {key: value for key, value in timing.items() if key != name} | {name: None}
        known = of_dynamo({"worker_id": {"decode_worker_id": 2}, "timing": partly})
        assert known is not None
        assert (known.queue_ns is None, known.prefill_ns is None) == (name != "prefill_time_ms", name == "prefill_time_ms")
        assert known.decode_ns == 375_000_000


@pytest.mark.parametrize(
    "nvext",
    [
        None,
        [],
        {},
        {"timing": None},
        {"timing": {"request_received_ms": 1}},
        {"timing": {"ttft_ms": 9.0, "total_time_ms": 8.0, "prefill_time_ms": -1.0}},
    ],
)
def test_an_answer_of_dynamo_without_durations_has_no_times(nvext: Any) -> None:
    assert of_dynamo(nvext) is None


def test_llama_cpp_says_nothing_of_its_queue() -> None:
    """A sample of github.com/vllm-project/vllm/issues/40076, in which an answer of llama.cpp's server is shown."""
    timings = {"cache_n": 60, "prompt_n": 8, "prompt_ms": 43.237, "predicted_n": 25, "predicted_ms": 238.74}
    assert of_llama_cpp(timings) == ServerTimes(prefill_ns=43_237_000, decode_ns=238_740_000)
    for odd in (None, [], {}, {"prompt_ms": -1, "predicted_ms": "9"}):
        assert of_llama_cpp(odd) is None


def test_each_server_is_asked_in_its_own_way() -> None:
    """trtllm-serve would refuse a request with a field that it does not know."""
    assert fields_asking_for_times("nvidia") == {"nvext": {"extra_fields": ["timing"]}}
    assert fields_asking_for_times("tensorrt_llm") == {}
    assert fields_asking_for_times("vllm") == fields_asking_for_times(None) == {"include_metrics": True}
