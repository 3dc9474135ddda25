"""Options of the client that sends: its processes, cores and connections, its warm-up, and the time limit of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, switch
from bench_cli.measurement.load_options import LoadOptions
from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits
from harness.run.worker_count import MAX_WORKERS

if TYPE_CHECKING:
    from harness.protocols.protocol import ServingProtocol
    from harness.run.token_limits import TokenLimits

_READ_BYTES = 2**16  # lengths are checked by each read, so a smaller limit would be inexact

_DEFAULTS = DEFAULT_ANSWER_LIMITS


def _limit(value: int, help_text: str, least: int = _READ_BYTES) -> int:
    return option(value, type=click.IntRange(least, 2**31 - 1), metavar="N", help=help_text)


def _seconds(default: str, help_text: str) -> float | None:
    return option(None, type=click.FloatRange(min=0, min_open=True), show_default=default, help=help_text)


def _read_workers(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """Callback of --workers: a number, or None for "auto"."""
    if value == "auto":
        return None
    number: int = click.IntRange(1, MAX_WORKERS)(value, parameter, context)
    return number


@dataclass(frozen=True)
class ClientOptions(Concern, title="Client"):
    """The client's processes. None: chosen for the load and the machine; timeouts in seconds. The limits of answers are those
    of ``AnswerLimits``."""

    workers: int | None = option(
        None,
        default="auto",
        callback=_read_workers,
        metavar="N|auto",
        help="Client processes; auto follows the load and the machine's cores. N does not change what is sent.",
    )
    pin_workers: bool | None = switch(
        None, show_default="where cores are to spare", help="Give each client process a core of its own."
    )
    connections: int | None = option(
        None,
        type=click.IntRange(1, 1024),
        metavar="N",
        show_default="8, and up to 64 for many requests",
        help="HTTP/2 connections of each client process.",
    )
    warmup_requests: int = option(10, type=click.IntRange(min=0), common=True, help="Warm-up requests, not measured.")
    request_timeout: float = option(
        600.0,
        "-t",
        "--request_timeout",
        "--stream_timeout",
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds after which a request counts as failed.",
    )
    connection_timeout: float | None = _seconds(
        "20 with grpc, else --request_timeout",
        "Seconds for each connection of the run, after which its requests fail: connect.",
    )
    first_token_timeout: float | None = _seconds(
        "none", "Seconds from the send to the first token of a streamed answer, after which it fails: first_token_timeout."
    )
    token_gap_timeout: float | None = _seconds(
        "none", "Seconds without a further token of a streamed answer, after which it fails: token_gap_timeout."
    )
    connect_timeout: float = option(
        60.0,
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds for finding the model and trying the server, before any request of the run.",
    )
    max_header_bytes: int = _limit(_DEFAULTS.max_header_bytes, "Bytes of an answer's headers, beyond which it is malformed.")
    max_answer_bytes: int = _limit(_DEFAULTS.max_answer_bytes, "Bytes of an answer, as received.")
    max_responses: int = _limit(_DEFAULTS.max_responses, "Events or messages of an answer.", least=1)
    max_message_bytes: int = _limit(
        _DEFAULTS.max_message_bytes, "Bytes of one event or message, or of an answer that is not streamed."
    )

    @property
    def token_limits(self) -> TokenLimits:
        from harness.run.token_limits import TokenLimits

        return TokenLimits(self.first_token_timeout, self.token_gap_timeout)

    @property
    def answer_limits(self) -> AnswerLimits:
        return AnswerLimits(self.max_header_bytes, self.max_answer_bytes, self.max_responses, self.max_message_bytes)


def check_time_outs(options: ClientOptions, streaming: bool | None) -> None:
    """Raises UsageError for a time-out that no answer can reach; ``streaming`` is None where it is not known yet."""
    for name in _TIME_OUTS:
        value = getattr(options, name)
        if value is not None and value >= options.request_timeout:
            raise click.UsageError(
                f"--{name} {value:g}: no request lasts so long, for --request_timeout {options.request_timeout:g} ends it"
            )
        if value is not None and streaming is False and name != "connection_timeout":
            raise click.UsageError(f"--{name}: the answers are not streamed, and have all tokens at their end")


_TIME_OUTS = ("connection_timeout", "first_token_timeout", "token_gap_timeout")


def check_client_options(options: ClientOptions, load: LoadOptions, protocol: ServingProtocol) -> None:
    """Raises UsageError for connections of another protocol, and for workers that cannot share the load or the cores."""
    from harness.host.cpus import available_cores

    if options.connections is not None and not protocol.pools_connections:
        raise click.UsageError("--connections goes with -i grpc: over HTTP/1.1 each request in flight has one of its own")
    if options.workers is None:
        return
    for name, limit in (("--concurrency", load.concurrency), ("--max_concurrency", load.max_concurrency)):
        if limit is not None and options.workers > limit:
            raise click.UsageError(f"--workers {options.workers} cannot share {name} {limit}; give no more workers than that")
    if options.pin_workers and options.workers > (cores := len(available_cores().ids)):
        raise click.UsageError(f"--pin_workers: {options.workers} workers cannot have a core each, there are {cores}")
