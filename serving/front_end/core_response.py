"""What the core model answers, over either of its protocols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from serving.front_end.api_error import SERVER_ERROR, ApiError
from serving.front_end.request_times import TIMES_INPUT, Stamps, not_timed

_QUEUE_FULL = "queue size"


@dataclass(frozen=True, slots=True)
class CoreResponse:
    """One response: new tokens of the sequence ``index``; ``is_final``: no response follows, of any sequence.

    ``log_probs`` [tokens] is empty, and ``logits`` [tokens, vocabulary] and ``stamps`` are None, unless requested.
    """

    index: int
    token_ids: list[int]
    log_probs: list[float]
    logits: NDArray[Any] | None
    is_final: bool
    stamps: Stamps | None = None


def error_of(message: str, is_invalid: bool) -> ApiError:
    """The error that the model answered, which says that the request is wrong or that something failed."""
    if _QUEUE_FULL in message:
        return ApiError(message, 429, "rate_limit_error", code="rate_limit_exceeded")
    if TIMES_INPUT in message:  # the core model names the input that its engine does not support
        return not_timed()
    return ApiError(message) if is_invalid else ApiError(message, 500, SERVER_ERROR)


def not_ready() -> ApiError:
    """The error where no model answers."""
    return ApiError("the model is not ready: it is starting, ending or overloaded", 503, SERVER_ERROR)
