"""How long an answer may be, so that a server cannot fill the client's memory or disk.

The defaults are far above any real answer: a token is 250 bytes on the wire, so an answer of 131,072 tokens has 33 MB.
"""

from __future__ import annotations

import msgspec

from bench_records.record import Outcome
from harness.clients.protocol import ExchangeFailedError


class AnswerLimits(msgspec.Struct, frozen=True):
    """The most that one answer may have; a field has the name of its option.

    ``max_header_bytes`` arrive in a row without a body: a head, trailers, or extensions of chunks. ``max_message_bytes`` is for
    each response: an event, a gRPC message, or a body that is not an event stream. Lengths are checked as bytes are read, so
    one read (64 KiB) may arrive beyond them.
    """

    max_header_bytes: int = 2**18
    max_answer_bytes: int = 2**26
    max_responses: int = 2**18
    max_message_bytes: int = 2**24


DEFAULT_ANSWER_LIMITS = AnswerLimits()


class AnswerTooLongError(ExchangeFailedError):
    """An answer exceeds a limit, of which ``option`` is the name. Its responses are not kept."""

    def __init__(self, subject: str, most: int, unit: str, option: str) -> None:
        super().__init__(Outcome.MALFORMED, f"{subject} longer than {most:,} {unit} (--{option})")


def header_too_long(limits: AnswerLimits) -> AnswerTooLongError:
    return AnswerTooLongError("the answer's headers are", limits.max_header_bytes, "bytes", "max_header_bytes")


def answer_too_long(limits: AnswerLimits) -> AnswerTooLongError:
    return AnswerTooLongError("the answer is", limits.max_answer_bytes, "bytes", "max_answer_bytes")


def too_many_responses(limits: AnswerLimits) -> AnswerTooLongError:
    return AnswerTooLongError("the answer is", limits.max_responses, "responses", "max_responses")


def message_too_long(limits: AnswerLimits) -> AnswerTooLongError:
    return AnswerTooLongError("a response is", limits.max_message_bytes, "bytes", "max_message_bytes")
