"""The record of one request."""

from __future__ import annotations

from enum import StrEnum

import msgspec

PROBE = "probe"
"""The class of the probes beside a load; no class of --class has this name."""


class Outcome(StrEnum):
    """How a request ended: done, withdrawn, or the kind of its failure."""

    DONE = "done"
    CONNECT = "connect"  # no connection to the server could be made, or the server closed one before the request
    REFUSED = "refused"  # the server answered that it is full
    TIMEOUT = "timeout"  # no end within the request's time limit
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"  # noqa: S105  no token within --first_token_timeout
    TOKEN_GAP_TIMEOUT = "token_gap_timeout"  # noqa: S105  tokens, and then none within --token_gap_timeout
    SERVER_ERROR = "server_error"  # the server answered with an error
    STREAM_CUT = "stream_cut"  # the connection broke before the answer was complete
    INCOMPLETE = "incomplete"  # the answer ended in order but without a finish_reason, which this server sends
    MALFORMED = "malformed"  # the answer could not be parsed
    CANCELLED = "cancelled"  # the client cancelled it, because the run was stopped
    WITHDRAWN = "withdrawn"  # the client cancelled it as planned (--cancel): no failure
    NOT_SENT = "not_sent"  # the run ended before it was sent
    LOST = "lost"  # the client failed: its worker died, and whether it was sent is unknown, or its exchange failed


TIMEOUTS = (Outcome.TIMEOUT, Outcome.FIRST_TOKEN_TIMEOUT, Outcome.TOKEN_GAP_TIMEOUT)
"""The failures by which the client ended an answer that took too long."""

FAILURES = tuple(outcome for outcome in Outcome if outcome not in (Outcome.DONE, Outcome.WITHDRAWN, Outcome.NOT_SENT))

FAILED_BY_TARGET = tuple(outcome for outcome in FAILURES if outcome not in (Outcome.CANCELLED, Outcome.LOST))
"""The others are the client's: it stopped, or failed itself."""

LATEST_STAMP_NS = 1 << 58
"""The latest time of a server's clock, which may count from the start of its host: nine years."""


class TokenSource(StrEnum):
    """The source of a count of output tokens, the most trusted first."""

    SERVER = "server"  # the server counted them
    IDS = "ids"  # the length of the returned token ids
    CHUNKS = "chunks"  # the number of chunks, of a server whose complete answers have one token in each
    TEXT = "text"  # the returned text, tokenised again by the client


class Record(msgspec.Struct, frozen=True, gc=False):
    """The outcome and times of one request. Times are ns of one monotonic clock since the run's start; unknown is None.

    ``scheduled_ns`` is when it should have been sent, in a closed loop when its user was free. ``released_ns`` is when it
    could be sent: later only where as many as --max_concurrency allows were in flight, so the difference is not a delay of
    the client. ``token_times_ns`` are the arrivals of the responses with generated tokens, ``token_counts`` the tokens of
    each (None where only the whole text could be counted). ``requested_input_tokens`` is the length that a prompt was made for,
    and the client's count of another; ``input_tokens`` is the server's count, with those of its chat template, or without
    ``server_counted_input`` the client's.
    ``output_tokens`` excludes an echoed prompt. ``text_tokens`` is the client's own count of the returned text where the server
    counted, too, made for some requests to check it. ``text_chunks`` are the chunks with a piece of an answer made of text,
    and ``empty_chunks`` those of them without any text, except one that only ends the answer. ``hidden_tokens`` are those of
    ``output_tokens`` that the server counts as reasoning and did not send.
    ``has_reasoning`` is whether the server marked a part of the answer as reasoning; then ``first_output_ns`` is the arrival of
    the first response with text besides it. ``parent`` is the index of the request whose answer a later turn of a session
    waited for, of several the one before it in its session, or the failed one of a turn that was not sent; ``planned_ns`` is
    the turn's own time where it has one: it is scheduled later where that answer ended later.
    ``cached_input_tokens`` are those of ``input_tokens`` that the server found in its prefix cache, by its own count.

    ``traffic_class`` is the request's class in a mixture. It was to be cancelled ``cancel_after_ns`` of its send, or with its
    ``cancel_after_tokens``-th token; both are None where it was not. One that was cancelled so is WITHDRAWN, and its tokens are
    those until then; one whose answer ended before is DONE.

    ``finish_reason`` is why the answer ended, by the server. ``end_marker_missing``: the answer ended in order, but without the
    end marker that its protocol has.

    ``server_queue_ns``, ``server_prefill_ns`` and ``server_decode_ns`` are what the server measured of the request: before its
    engine began, from there to the first token, and from there to the last. ``server_arrival_ns`` is when the engine took it
    in, by the monotonic clock of the server's host, which is the client's own where the two are one host.

    ``connect_ns`` is how long the request waited, from its send on, for a connection to open or for room on one, and
    ``router_ns`` how long it was in routers before the head of its answer came, by what these say. ``target`` is the number of
    the target that it was sent to, in the order of --url.

    ``written_ns`` is when the kernel was given the last byte of the request, and ``head_ns`` when the head of the answer
    arrived.
    """

    index: int
    outcome: Outcome
    scheduled_ns: int
    requested_output_tokens: int
    released_ns: int | None = None
    sent_ns: int | None = None
    done_ns: int | None = None
    token_times_ns: tuple[int, ...] = ()
    token_counts: tuple[int, ...] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_source: TokenSource | None = None
    prompt_echoed: bool | None = None
    ignore_eos: bool = False
    error: str | None = None
    worker: int | None = None
    session: str | None = None
    text_tokens: int | None = None
    has_reasoning: bool | None = None
    first_output_ns: int | None = None
    requested_input_tokens: int | None = None
    server_counted_input: bool | None = None
    parent: int | None = None
    planned_ns: int | None = None
    cached_input_tokens: int | None = None
    traffic_class: str | None = None
    cancel_after_ns: int | None = None
    cancel_after_tokens: int | None = None
    finish_reason: str | None = None
    end_marker_missing: bool = False
    server_arrival_ns: int | None = None
    server_queue_ns: int | None = None
    server_prefill_ns: int | None = None
    server_decode_ns: int | None = None
    connect_ns: int | None = None
    router_ns: int | None = None
    target: int | None = None
    text_chunks: int | None = None
    written_ns: int | None = None
    head_ns: int | None = None
    empty_chunks: int | None = None
    hidden_tokens: int | None = None

    @property
    def sent_tokens(self) -> int:
        """The output tokens without reasoning that the server did not send; 0 where their number is unknown."""
        return (self.output_tokens or 0) - (self.hidden_tokens or 0)
