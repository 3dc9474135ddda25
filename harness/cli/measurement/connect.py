"""Reaching a server by the protocol asked for: one function a protocol. What it finds is all that the rest needs to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from harness.cli.measurement.options import MeasureOptions
from harness.cli.measurement.urls import grpc_address, http_origin
from harness.cli.tokenizer import deployed_tokenizer_dir
from harness.clients.openai_chat import DEFAULT_PATH, OpenAIChatClient, choose_model, served_models
from harness.clients.registry import KnownClient
from harness.clients.transport.http2_pool import DEFAULT_LIMITS, ConnectionLimits
from harness.clients.triton import grpc as triton_grpc
from harness.clients.triton import http as triton_http
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient
from harness.clients.triton.model import TritonModel
from harness.errors import TargetError
from serving.launch.addresses import ServerAddresses

DEFAULT_TRITON_MODEL = "tensorrt_llm"

MakeClient = Callable[[int | None, int | None], KnownClient]


@dataclass(frozen=True)
class ServedModel:
    """What a server says of a model; ``decoupled`` is None and ``parameters`` is empty where the protocol does not tell.

    ``surely_ignores_eos``: whether every server of this kind can be asked to go on behind the end of the sequence.
    """

    name: str
    takes_token_ids: bool
    surely_ignores_eos: bool
    decoupled: bool | None = None
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reached:
    """A model that answers. ``make_client`` takes the ids of the end and the padding token, as far as they are known.

    ``tokenizer_dir`` is the folder that the server itself uses, if it names one that is on this machine.
    """

    address: str
    model: ServedModel
    streaming: bool
    make_client: MakeClient
    tokenizer_dir: Path | None


def check_protocol_options(options: MeasureOptions) -> None:
    """Refuse what does not go together. Raises UsageError."""
    if options.protocol == "openai" and options.url is None:
        raise click.UsageError("-i openai needs --url: the embedded pipeline speaks Triton's protocols (-i grpc, -i http)")
    if options.protocol != "openai":
        for name, given in (("--endpoint", options.endpoint), ("--extra_body", options.extra_body)):
            if given:
                raise click.UsageError(f"{name} goes with -i openai")
    if options.protocol != "grpc" and options.connections is not None:
        raise click.UsageError("--connections goes with -i grpc: over HTTP/1.1 each request in flight has one of its own")
    if options.protocol == "grpc" and options.header:
        raise click.UsageError("--header goes with -i http and -i openai")


def reach(options: MeasureOptions, embedded: ServerAddresses | None) -> Reached:
    """Find the model that the options name, at ``embedded`` or else at --url. Raises TargetError and UsageError."""
    match options.protocol:
        case "grpc":
            return _reach_triton_by_grpc(options, grpc_address(options.url or "") if embedded is None else embedded.grpc)
        case "http":
            return _reach_triton_by_http(options, options.url or "" if embedded is None else embedded.http)
        case _:
            return _reach_openai(options, options.url or "")


def _reach_triton_by_grpc(options: MeasureOptions, address: str) -> Reached:
    inspect = partial(triton_grpc.inspect_model, address)
    model = inspect(options.model or DEFAULT_TRITON_MODEL)
    streaming = _streams(options, model)

    def make_client(end_id: int | None, pad_id: int | None) -> KnownClient:
        return TritonGrpcClient(address, model, streaming, end_id, pad_id, connection_limits(options.connections))

    return _triton(address, model, streaming, make_client, deployed_tokenizer_dir(model, inspect))


def _reach_triton_by_http(options: MeasureOptions, url: str) -> Reached:
    origin = http_origin(url)
    headers = {header.name: header.value for header in options.header}

    def inspect(name: str) -> TritonModel:
        return triton_http.inspect_model(origin, name, headers)

    model = inspect(options.model or DEFAULT_TRITON_MODEL)
    streaming = _streams(options, model)

    def make_client(end_id: int | None, pad_id: int | None) -> KnownClient:
        return TritonHttpClient(origin, model, streaming, end_id, pad_id, headers)

    return _triton(str(origin), model, streaming, make_client, deployed_tokenizer_dir(model, inspect))


def _triton(address: str, model: TritonModel, streaming: bool, make_client: MakeClient, tokenizer_dir: Path | None) -> Reached:
    served = ServedModel(model.name, model.takes_token_ids, True, model.decoupled, model.parameters)
    return Reached(address, served, streaming, make_client, tokenizer_dir)


def _streams(options: MeasureOptions, model: TritonModel) -> bool:
    """Whether answers come token by token, where the model is one that we can drive."""
    if not model.inputs & {"input_ids", "text_input"}:
        raise TargetError(
            f"--model {model.name}: takes neither input_ids nor text_input, so it is no model that bench can drive"
        )
    streaming = model.decoupled if options.streaming is None else options.streaming
    if streaming and not model.decoupled:
        raise TargetError(f"--streaming: the model {model.name} is not decoupled, so it cannot stream")
    return streaming


def _reach_openai(options: MeasureOptions, url: str) -> Reached:
    origin, path = http_origin(url), options.endpoint or DEFAULT_PATH
    headers = {header.name: header.value for header in options.header}
    model = choose_model(options.model, served_models(origin, path, headers))
    streaming = options.streaming is not False

    def make_client(end_id: int | None, pad_id: int | None) -> KnownClient:
        return OpenAIChatClient(origin, model, streaming, path, headers, options.extra_body)

    served = ServedModel(model, takes_token_ids=False, surely_ignores_eos=False)
    return Reached(str(origin), served, streaming, make_client, None)


def connection_limits(asked: int | None) -> ConnectionLimits:
    """As many as were asked for, no more and no less; unasked, what measured best, and more where that is too few."""
    return DEFAULT_LIMITS if asked is None else ConnectionLimits(asked, asked)
