"""What a server itself measured of one request, from the fields in which servers return it.

Durations count by the server's own clock, so they need no common clock with the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bench_records.record import LATEST_STAMP_NS

STAMPS = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
"""Outputs of TensorRT-LLM's models with ``return_perf_metrics``: ns of the server's monotonic clock, 0 before the event."""
_LARGEST_NS = 1 << 53  # of a duration: 104 days
_MOST_DIGITS = 19  # of an INT64
_NS_PER_MS = 1e6


class ServerTimes(msgspec.Struct, frozen=True, gc=False):
    """One request by its server, as far as the answer had come; None is unknown.

    ``queue_ns`` is the wait before the engine worked on it, ``prefill_ns`` the time from there to the first token,
    ``decode_ns`` from there to the last one. ``arrival_ns`` is when the engine took it in, on the server's monotonic clock.
    """

    queue_ns: int | None = None
    prefill_ns: int | None = None
    decode_ns: int | None = None
    arrival_ns: int | None = None


def of_stamps(*stamps: Any) -> ServerTimes | None:
    """The times by ``STAMPS``, all in their order: integers, or texts of 1 to 19 decimal digits, as upstream's ``llmapi`` sends
    them, though its configuration has integers. None where no event has taken place, or a stamp is anything else.
    """
    parsed = [ns for ns in map(_stamp_ns, stamps) if ns is not None]
    if len(parsed) != len(STAMPS):
        return None
    arrival_ns, scheduled_ns, first_token_ns, last_token_ns = parsed
    times = ServerTimes(
        queue_ns=_between(arrival_ns, scheduled_ns),
        prefill_ns=_between(scheduled_ns, first_token_ns),
        decode_ns=_between(first_token_ns, last_token_ns),
        arrival_ns=arrival_ns if 0 < arrival_ns <= LATEST_STAMP_NS else None,
    )
    return None if times == _NOTHING else times


def of_vllm(metrics: Any) -> ServerTimes | None:
    """The times by ``metrics`` of an answer of vLLM, whatever that is; None where it has none of them.

    Its time to the first token counts from the scheduling, so it is the prefill, and its generation time is the decode
    (docs.vllm.ai/en/latest/features/per_request_metrics).
    """
    if not isinstance(metrics, dict):
        return None
    times = ServerTimes(
        queue_ns=_of_ms(metrics.get("queue_time_ms")),
        prefill_ns=_of_ms(metrics.get("time_to_first_token_ms")),
        decode_ns=_of_ms(metrics.get("generation_time_ms")),
    )
    return None if times == _NOTHING else times


def of_dynamo(nvext: Any) -> ServerTimes | None:
    """The times by ``nvext`` of an answer of NVIDIA's Dynamo, whatever that is; None where it has none of them.

    They count from the receipt by its front end (``TimingInfo`` in its lib/llm/src/protocols/common/timing.rs), so that its
    tokenizing and routing are part of the queue. Where prefill and decode share a worker, it notes no start of the prefill.
    Its one stamp, of the wall clock in whole ms, is not used.
    """
    timing = nvext.get("timing") if isinstance(nvext, dict) else None
    if not isinstance(timing, dict):
        return None
    first_ns, whole_ns = _of_ms(timing.get("ttft_ms")), _of_ms(timing.get("total_time_ms"))
    times = ServerTimes(
        queue_ns=_of_ms(timing.get("prefill_wait_time_ms")),
        prefill_ns=_of_ms(timing.get("prefill_time_ms")),
        decode_ns=whole_ns - first_ns if first_ns is not None and whole_ns is not None and first_ns <= whole_ns else None,
    )
    return None if times == _NOTHING else times


def of_llama_cpp(timings: Any) -> ServerTimes | None:
    """The times by ``timings`` of an answer of llama.cpp's server, whatever that is; None where it has none of them.

    It sends them unrequested (tools/server/README.md of ggml-org/llama.cpp), and says nothing of the wait for a slot.
    """
    if not isinstance(timings, dict):
        return None
    times = ServerTimes(prefill_ns=_of_ms(timings.get("prompt_ms")), decode_ns=_of_ms(timings.get("predicted_ms")))
    return None if times == _NOTHING else times


def fields_asking_for_times(owner: str | None) -> Mapping[str, Any]:
    """The fields of a request that ask a server of OpenAI's protocols for its times; ``owner`` is that of its models.

    trtllm-serve refuses fields that it does not know, and returns no times in its answers: see ``polled_path``.
    """
    match owner:
        case "nvidia":
            return {"nvext": {"extra_fields": ["timing"]}}
        case _ if owner == _TRTLLM:
            return {}
        case _:
            return {"include_metrics": True}


def polled_path(owner: str | None) -> str | None:
    """Where a server of OpenAI's protocols has the times of requests that ended; None where it has them in its answers."""
    return "/perf_metrics" if owner == _TRTLLM else None


_TRTLLM = "tensorrt_llm"  # whose models trtllm-serve's are
_NOTHING = ServerTimes()


def _stamp_ns(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _between(start_ns: int, end_ns: int) -> int | None:
    return end_ns - start_ns if 0 < start_ns <= end_ns <= min(LATEST_STAMP_NS, start_ns + _LARGEST_NS) else None


def _of_ms(value: Any) -> int | None:
    """Whole ns; None for what is no duration: no oddity of a server may fail a request."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LARGEST_NS / _NS_PER_MS:
        return None
    return round(value * _NS_PER_MS)
