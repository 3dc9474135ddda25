"""The target of a measurement: a running server, or the embedded pipeline deployed for the length of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from bench_cli.measurement.client_options import ClientOptions
from bench_cli.measurement.connect import CheckVariant, ConnectedModel, MeasuredModel, connect, takes_no_variant
from bench_cli.measurement.embedded_options import EmbeddedOptions
from bench_cli.measurement.set_up_deadline import SetUpDeadline
from bench_cli.measurement.target_options import DEFAULT_TRITON_MODEL, TargetOptions, openai_url
from bench_cli.tokenizers import open_tokenizer
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_probe import PROBE, probe_chat
from harness.clients.prefix_cache_reset import PrefixCacheReset, find_prefix_cache_reset
from harness.clients.registry import KnownClient
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import Origin
from harness.clients.triton import grpc as triton_grpc
from harness.clients.triton import http as triton_http
from harness.clients.triton.prefix_cache_reset import (
    GrpcResetCall,
    HttpResetCall,
    TritonPrefixCacheReset,
    find_triton_prefix_cache_reset,
)
from serving.engines.openvino.folder import read_limits
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server

CacheReset = PrefixCacheReset | TritonPrefixCacheReset


@dataclass(frozen=True)
class Target:
    """A model at ``origin`` that is ready to be driven by ``client``.

    ``headers`` are those of every request, which may hold a secret; ``tokenizer`` and ``tokenizer_dir`` are None where
    unknown. ``server`` and ``context_tokens`` are the embedded pipeline's, None with --url. ``template_tokens`` are those that
    a server of chat completions adds to each prompt, None where unknown. ``prefix_cache_reset`` empties the server's cache,
    None without --reset_prefix_cache. ``deadline`` is the set-up's. ``check_variant`` raises
    TargetError for a class of requests that it cannot serve.
    """

    origin: Origin
    protocol: str
    headers: Headers
    client: KnownClient
    model: MeasuredModel
    tokenizer: Any | None = None
    tokenizer_dir: Path | None = None
    server: Server | None = None
    context_tokens: int | None = None
    template_tokens: int | None = None
    prefix_cache_reset: CacheReset | None = None
    check_variant: CheckVariant = takes_no_variant
    deadline: SetUpDeadline | None = None

    @property
    def streaming(self) -> bool:
        return self.client.streaming

    @property
    def address(self) -> str:
        """``host:port`` of gRPC, or the URL."""
        return self.origin.address if self.protocol == "grpc" else str(self.origin)


@contextmanager
def open_target(options: TargetOptions, client: ClientOptions, embedded: EmbeddedOptions, server_log: Path) -> Iterator[Target]:
    """The target at --url, or the embedded pipeline, which logs to ``server_log``. Raises TargetError and ServingError."""
    if options.url is not None:
        deadline = SetUpDeadline.of(client.connect_timeout)
        connected = connect(options, client, deadline, None)
        target = replace(_target(options, connected, options.tokenizer_dir or connected.tokenizer_dir), deadline=deadline)
        yield replace(target, prefix_cache_reset=_prefix_cache_reset(options, target))
        return
    repository = embedded.repository(options.tokenizer_dir)
    limits = read_limits(repository.engine_dir)
    click.echo("Deploying the embedded pipeline …", err=True)
    with deploy(repository, choose_addresses(), server_log) as server:
        addresses = server.addresses
        click.echo(f"Ready: gRPC {addresses.grpc}, HTTP {addresses.http}, metrics {addresses.metrics}", err=True)
        deadline = SetUpDeadline.of(client.connect_timeout)
        connected = connect(options, client, deadline, addresses)
        target = _target(options, connected, options.tokenizer_dir or repository.tokenizer_dir)
        yield replace(target, server=server, context_tokens=limits.context_tokens, deadline=deadline)


def probe_target(target: Target, options: ClientOptions) -> Target:
    """The target with the results of a probe, one chat completion; unchanged without warm-up, and over Triton's protocols."""
    client = target.client
    if not isinstance(client, OpenAIChatClient) or not options.warmup_requests:
        return target
    deadline = target.deadline or SetUpDeadline.of(options.connect_timeout)
    probe = probe_chat(client, lambda: min(options.request_timeout, deadline.left_s))
    if not deadline.left_s:
        click.echo(f"Warning: {deadline.passed}: the server has not answered the probe; the warm-up follows", err=True)
    template_tokens = None
    if probe.prompt_tokens is not None and target.tokenizer is not None:
        template_tokens = probe.prompt_tokens - len(target.tokenizer.encode(PROBE.prompt, add_special_tokens=False))
    client = msgspec.structs.replace(client, continuous_usage=probe.continuous_usage, sends_finish_reason=probe.finish_reason)
    return replace(target, client=client, template_tokens=template_tokens)


def _prefix_cache_reset(options: TargetOptions, target: Target) -> CacheReset | None:
    """The call that empties the cache, tried; None without --reset_prefix_cache. Raises TargetError where there is none."""
    if not options.reset_prefix_cache:
        return None
    headers, origin = options.headers, target.origin
    core = target.model.name if target.model.takes_token_ids else DEFAULT_TRITON_MODEL
    match options.protocol:
        case "grpc":
            address = origin.address
            inspect = partial(triton_grpc.inspect_model, address)
            return find_triton_prefix_cache_reset(inspect, core, partial(GrpcResetCall, address))
        case "http":
            return find_triton_prefix_cache_reset(
                lambda name: triton_http.inspect_model(origin, name, headers),
                core,
                lambda name: HttpResetCall(origin, name, headers),
            )
        case _:
            return find_prefix_cache_reset(origin, openai_url(options).path, headers)


def _target(options: TargetOptions, connected: ConnectedModel, tokenizer_dir: Path | None) -> Target:
    tokenizer = None if tokenizer_dir is None else open_tokenizer(tokenizer_dir)
    end_id, pad_id = (None, None) if tokenizer is None else (tokenizer.eos_token_id, tokenizer.pad_token_id)
    return Target(
        origin=connected.origin,
        protocol=options.protocol,
        headers=tuple(options.headers.items()),
        client=connected.make_client(end_id, pad_id),
        model=connected.model,
        tokenizer=tokenizer,
        tokenizer_dir=tokenizer_dir,
        check_variant=connected.check_variant,
    )
