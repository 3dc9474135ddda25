"""Options of the client that sends: its processes, cores and connections, its warm-up, and the time limit of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.measurement.load_options import LoadOptions
from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits
from harness.run.worker_count import MAX_WORKERS

if TYPE_CHECKING:
    from harness.protocols.protocol import ServingProtocol

_READ_BYTES = 2**16  # lengths are checked by each read, so a smaller limit would be inexact


@dataclass(frozen=True)
class ClientOptions:
    """The client's processes. None: chosen for the load and the machine; timeouts in seconds. The limits of answers are those
    of ``AnswerLimits``."""

    workers: int | None
    pin_workers: bool | None
    connections: int | None
    warmup_requests: int
    request_timeout: float
    connect_timeout: float
    max_header_bytes: int
    max_answer_bytes: int
    max_responses: int
    max_message_bytes: int

    @property
    def answer_limits(self) -> AnswerLimits:
        return AnswerLimits(self.max_header_bytes, self.max_answer_bytes, self.max_responses, self.max_message_bytes)


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


def _read_workers(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """Callback of --workers: a number, or None for "auto"."""
    if value == "auto":
        return None
    number: int = click.IntRange(1, MAX_WORKERS)(value, parameter, context)
    return number


def _limit_option(name: str, help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    least = 1 if name == "max_responses" else _READ_BYTES
    default = getattr(DEFAULT_ANSWER_LIMITS, name)
    return cloup.option(f"--{name}", type=click.IntRange(least, 2**31 - 1), metavar="N", default=default, help=help_text)


client_group = cloup.option_group(
    "Client",
    cloup.option(
        "--workers",
        callback=_read_workers,
        default="auto",
        metavar="N|auto",
        help="Client processes; auto goes by the load and the machine's cores. N does not change what is sent.",
    ),
    cloup.option(
        "--pin_workers/--no_pin_workers",
        default=None,
        show_default="where cores are to spare",
        help="Give each client process a core of its own.",
    ),
    cloup.option(
        "--connections",
        type=click.IntRange(1, 1024),
        metavar="N",
        show_default="1, and more where the server limits streams",
        help="HTTP/2 connections of each client process.",
    ),
    cloup.option("--warmup_requests", type=click.IntRange(min=0), default=10, help="Requests before the clock starts."),
    cloup.option(
        "-t",
        "--request_timeout",
        "--stream_timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        help="Seconds after which a request counts as failed.",
    ),
    cloup.option(
        "--connect_timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        help="Seconds for finding the model and trying the server, before any request of the run.",
    ),
    _limit_option("max_header_bytes", "Bytes of an answer's headers, beyond which it is malformed."),
    _limit_option("max_answer_bytes", "Bytes of an answer, as received."),
    _limit_option("max_responses", "Events or messages of an answer."),
    _limit_option("max_message_bytes", "Bytes of one event or message, or of an answer that is not streamed."),
)
