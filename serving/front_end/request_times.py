"""What the engine measured of a request, in the form of vLLM's ``metrics``.

https://docs.vllm.ai/en/latest/features/per_request_metrics
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from serving.front_end.api_error import ApiError

TIMES_INPUT = "return_perf_metrics"
_NS_PER_MS, _NS_PER_S = 1e6, 1e9


class Stamps(NamedTuple):
    """Outputs of the core model by their names: ns of its monotonic clock, 0 before the event."""

    arrival_time_ns: int
    first_scheduled_time_ns: int
    first_token_time_ns: int
    last_token_time_ns: int


STAMP_OUTPUTS = Stamps._fields


class Metrics(msgspec.Struct, frozen=True):
    """The times of an answer of one sequence; None is unknown.

    ``time_to_first_token_ms`` and ``tokens_per_second`` count from the first step that worked on the request,
    ``generation_time_ms`` from the first token to the last.
    """

    time_to_first_token_ms: float | None
    generation_time_ms: float | None
    queue_time_ms: float | None
    mean_itl_ms: float | None
    tokens_per_second: float | None


def stamps_of(values: Mapping[str, int]) -> Stamps | None:
    """The stamps among ``values``, the outputs of a response by name; None unless it has all."""
    return Stamps(**values) if values.keys() == set(STAMP_OUTPUTS) else None


def metrics_of(stamps: Stamps, tokens: int) -> Metrics:
    """The times between the stamps of a sequence that has this many ``tokens``."""
    arrival_ns, scheduled_ns, first_ns, last_ns = stamps
    decode_ns, whole_ns = _between(first_ns, last_ns), _between(scheduled_ns, last_ns)
    return Metrics(
        time_to_first_token_ms=_ms(_between(scheduled_ns, first_ns)),
        generation_time_ms=_ms(decode_ns),
        queue_time_ms=_ms(_between(arrival_ns, scheduled_ns)),
        mean_itl_ms=None if decode_ns is None or tokens < 2 else decode_ns / _NS_PER_MS / (tokens - 1),
        tokens_per_second=tokens / (whole_ns / _NS_PER_S) if whole_ns else None,
    )


def not_timed() -> ApiError:
    """The error where the engine measures no times."""
    return ApiError(
        "Unsupported parameter: 'include_metrics' is not supported with this model: its engine returns no times of requests.",
        param="include_metrics",
        code="unsupported_parameter",
    )


def _between(start_ns: int, end_ns: int) -> int | None:
    return end_ns - start_ns if 0 < start_ns <= end_ns else None


def _ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / _NS_PER_MS
