"""The target of a measurement: a running server, or the embedded pipeline deployed for the length of the run."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from bench_cli.measurement.client_options import ClientOptions
from bench_cli.measurement.embedded_options import EmbeddedOptions
from bench_cli.measurement.target_options import TargetOptions, read_address
from bench_cli.tokenizers import open_tokenizer
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import HttpUrl, Origin
from harness.errors import TargetError
from harness.protocols.known_client import KnownClient
from harness.protocols.protocol import (
    CacheReset,
    CheckVariant,
    ClientSettings,
    DescribeServer,
    MeasuredModel,
    ServingProtocol,
    says_nothing,
    takes_no_variant,
)
from harness.protocols.set_up_deadline import SetUpDeadline
from serving.engines import read_context_tokens
from serving.launch.addresses import ServerAddresses
from workloads.elements.request import Balance


@dataclass(frozen=True)
class Target:
    """A model at ``origin`` that is ready to be driven by ``client``.

    ``headers`` are those of every request, which may hold a secret; ``tokenizer`` and ``tokenizer_dir`` are None where
    unknown. ``embedded`` and ``context_tokens`` are those of the embedded pipeline, None with --url. ``template_tokens`` are
    those that the server adds to each prompt (a chat template, special tokens), None where unknown. ``prefix_cache_reset``
    empties the server's cache, None without --reset_prefix_cache. ``deadline`` is the set-up's. ``check_variant`` warns of
    a class of requests, and raises TargetError for one that it cannot serve. ``describe`` asks the
    server what it says of itself. ``server_timings``: requests ask for the server's times of them, or they are polled
    from ``times_url``.

    This is the first of several servers, and ``others`` are the rest: they serve the same model, by the same protocol. Requests
    are spread over all by ``balance``; ``prefix_cache_reset`` is for all.
    """

    origin: Origin
    protocol: ServingProtocol
    headers: Headers
    client: KnownClient
    model: MeasuredModel
    tokenizer: Any | None = None
    tokenizer_dir: Path | None = None
    embedded: ServerAddresses | None = None
    context_tokens: int | None = None
    template_tokens: int | None = None
    prefix_cache_reset: CacheReset | None = None
    check_variant: CheckVariant = takes_no_variant
    describe: DescribeServer = says_nothing
    deadline: SetUpDeadline | None = None
    server_timings: bool = False
    times_url: HttpUrl | None = None
    others: tuple[Target, ...] = ()
    balance: Balance = Balance.ROUND_ROBIN

    @property
    def servers(self) -> tuple[Target, ...]:
        """This one and the others, in the order of --url."""
        return (replace(self, others=()), *self.others)

    @property
    def streaming(self) -> bool:
        return self.client.streaming

    @property
    def address(self) -> str:
        """``host:port`` of gRPC, or the URL."""
        return self.protocol.shown(self.origin)


@contextmanager
def open_target(options: TargetOptions, client: ClientOptions, embedded: EmbeddedOptions, server_log: Path) -> Iterator[Target]:
    """The target at --url, or the embedded pipeline, which logs to ``server_log``. Raises TargetError and ServingError."""
    if options.url:
        places = [read_address(options.serving, url, options.endpoint) for url in options.url]
        targets = [_connect(options, client, place, None) for place in places]
        if options.reset_prefix_cache:
            resets = [options.serving.find_cache_reset(place, targets[0].model, options.headers) for place in places]
            targets[0] = replace(targets[0], prefix_cache_reset=resets[0] if len(resets) == 1 else ResetOfAll(tuple(resets)))
        yield _together(targets, Balance(options.balance))
        return
    from bench_cli.measurement.pipeline import open_pipeline  # 0.1 s of CPU, which a target at --url need not wait for

    repository = embedded.repository(options.tokenizer_dir)
    context_tokens = read_context_tokens(repository.engine, repository.engine_dir, repository.engine_options)
    with open_pipeline(repository, server_log, options.serving.embedded_port) as addresses:
        address = _embedded_address(options, addresses)
        target = _connect(options, client, address, repository.tokenizer_dir)
        yield replace(target, embedded=addresses, context_tokens=context_tokens)


@dataclass(frozen=True)
class ResetOfAll:
    """Empties the prefix cache of each of several servers."""

    resets: tuple[CacheReset, ...]

    def __call__(self) -> None:
        """Raises TargetError."""
        for reset in self.resets:
            reset()

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(map(str, self.resets)))


def _together(targets: Sequence[Target], balance: Balance) -> Target:
    """Several servers as one target. Raises TargetError where they do not serve the same model in the same way."""
    first, *others = targets
    for other in others:
        for what, of in _ALIKE:
            ours, theirs = of(first), of(other)
            if ours != theirs:
                raise TargetError(
                    f"--url {other.address}: {what} is {theirs}, and at {first.address} {ours}; requests can only be spread "
                    "over servers of one model: measure them apart"
                )
    return replace(first, others=tuple(others), balance=balance)


_ALIKE: tuple[tuple[str, Callable[[Target], object]], ...] = (
    ("the model", lambda target: target.model.name),
    ("'takes token ids'", lambda target: target.model.takes_token_ids),
    ("'returns text'", lambda target: target.model.returns_text),
    ("'decoupled'", lambda target: target.model.decoupled),
    ("'streams'", lambda target: target.streaming),
    ("'excludes the prompt from the answer'", lambda target: target.client.excludes_prompt),
)
"""What is the same of all servers of a run, in words: one client decodes the answers of all."""


def try_target(target: Target, options: ClientOptions) -> Target:
    """The target with what its protocol's trial request showed; unchanged without warm-up, and where it has none."""
    tried = _tried(target, options)
    return replace(tried, others=tuple(_tried(other, options) for other in target.others))


def _tried(target: Target, options: ClientOptions) -> Target:
    if not options.warmup_requests:
        return target
    deadline = target.deadline or SetUpDeadline.of(options.connect_timeout)
    tried = target.protocol.try_out(target.client, lambda: min(options.request_timeout, deadline.left_s))
    if tried is None:
        return target
    if not deadline.left_s:
        click.echo(f"Warning: {deadline.passed}: the server has not answered the trial request; the warm-up follows", err=True)
    template_tokens = None
    own_tokens = _own_tokens(tried.prompt, target.tokenizer)
    if tried.prompt_tokens is not None and own_tokens is not None:
        template_tokens = max(0, tried.prompt_tokens - own_tokens)
    return replace(target, client=tried.client, template_tokens=template_tokens)


def _own_tokens(prompt: str | Sequence[int], tokenizer: Any | None) -> int | None:
    """The tokens of ``prompt`` without what a server adds; None of a text without a ``tokenizer``."""
    if not isinstance(prompt, str):
        return len(prompt)
    return None if tokenizer is None else len(tokenizer.encode(prompt, add_special_tokens=False))


def _embedded_address(options: TargetOptions, addresses: ServerAddresses) -> Origin:
    match options.serving.embedded_port:
        case "grpc":
            return read_address(options.serving, addresses.grpc)
        case "http":
            return read_address(options.serving, addresses.http)
        case "openai":
            return read_address(options.serving, f"http://{addresses.host}:{addresses.openai_port}", options.endpoint)
    raise AssertionError("check_target_options refuses other protocols")


def _origin(address: Origin) -> Origin:
    return address.origin if isinstance(address, HttpUrl) else address


def _addresses(host: str) -> int:
    """The number of addresses of a host, those of IPv4 or those of IPv6; 0 where it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return 0
    families = Counter(family for family, _ in {(family, address[0]) for family, *_, address in found})
    return max(families.values(), default=0)


def _connect(options: TargetOptions, sending: ClientOptions, address: Origin, embedded_tokenizer: Path | None) -> Target:
    """The target at ``address``; its tokenizer is that of the options, or the embedded one, or the deployment's."""
    deadline = SetUpDeadline.of(sending.connect_timeout)
    settings = ClientSettings(
        model=options.model,
        streaming=options.streaming,
        headers=options.headers,
        extra_body=options.extra_body,
        secrets=options.secrets,
        connections=sending.connections,
        limits=sending.answer_limits,
        server_timings=options.server_timings,
        token_ids=options.token_ids,
        connection_timeout_s=sending.connection_timeout,
    )
    connected = options.serving.connect(address, settings, deadline)
    shown = options.serving.shown(_origin(address))
    if connected.warning is not None:
        at = f"--url {shown}: " if len(options.url) > 1 else ""
        click.echo(f"Warning: {at}{connected.warning}", err=True)
    if (addresses := _addresses(address.host)) > 1:
        click.echo(
            f"Warning: --url {shown}: {address.host} has {addresses} addresses, and requests are not spread evenly over them; "
            "to measure several servers, give the address of each as a --url of its own",
            err=True,
        )
    tokenizer_dir = options.tokenizer_dir or embedded_tokenizer or connected.tokenizer_dir
    tokenizer = None if tokenizer_dir is None else open_tokenizer(tokenizer_dir)
    end_id, pad_id = (None, None) if tokenizer is None else (tokenizer.eos_token_id, tokenizer.pad_token_id)
    return Target(
        origin=_origin(address),
        protocol=options.serving,
        headers=tuple(options.headers.items()),
        client=connected.make_client(end_id, pad_id),
        model=connected.model,
        tokenizer=tokenizer,
        tokenizer_dir=tokenizer_dir,
        check_variant=connected.check_variant,
        describe=connected.describe,
        deadline=deadline,
        server_timings=options.server_timings,
        times_url=connected.times_url,
    )
