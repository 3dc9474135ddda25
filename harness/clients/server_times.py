"""What a server itself measured of one request, from the fields in which servers return it.

Durations count by the server's own clock, so they need no common clock with the client.
"""

from __future__ import annotations

from typing import Any

import msgspec

STAMPS = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
"""Outputs of TensorRT-LLM's models with ``return_perf_metrics``: ns of the server's monotonic clock, 0 before the event."""
_LARGEST_NS = 1 << 53
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


def of_stamps(arrival_ns: int, scheduled_ns: int, first_token_ns: int, last_token_ns: int) -> ServerTimes | None:
    """The times by ``STAMPS``, in their order; None where no event has taken place."""
    times = ServerTimes(
        queue_ns=_between(arrival_ns, scheduled_ns),
        prefill_ns=_between(scheduled_ns, first_token_ns),
        decode_ns=_between(first_token_ns, last_token_ns),
        arrival_ns=arrival_ns if 0 < arrival_ns <= _LARGEST_NS else None,
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


_NOTHING = ServerTimes()


def _between(start_ns: int, end_ns: int) -> int | None:
    return end_ns - start_ns if 0 < start_ns <= end_ns <= _LARGEST_NS else None


def _of_ms(value: Any) -> int | None:
    """Whole ns; None for what is no duration: no oddity of a server may fail a request."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LARGEST_NS / _NS_PER_MS:
        return None
    return round(value * _NS_PER_MS)
