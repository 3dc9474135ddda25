"""Connecting to the model to measure, one function per protocol: model inspection before the run, and the client for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from bench_cli.measurement.client_options import ClientOptions
from bench_cli.measurement.set_up_deadline import SetUpDeadline
from bench_cli.measurement.target_options import DEFAULT_TRITON_MODEL, TargetOptions, grpc_origin, http_origin, openai_url
from bench_cli.tokenizers import deployed_tokenizer_dir
from harness.clients.openai_chat import OpenAIChatClient, choose_model, served_models, unlisted_model
from harness.clients.registry import KnownClient
from harness.clients.transport.http2_pool import DEFAULT_LIMITS, ConnectionLimits
from harness.clients.transport.url import Origin
from harness.clients.triton import grpc as triton_grpc
from harness.clients.triton import http as triton_http
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient
from harness.clients.triton.model import LORA_INPUT, TritonModel, check_inputs
from harness.errors import TargetError
from serving.launch.addresses import ServerAddresses
from workloads.elements.request import Variant

MakeClient = Callable[[int | None, int | None], KnownClient]
CheckVariant = Callable[[Variant], None]
"""Raises TargetError for requests of a class that the model cannot serve."""


def takes_no_variant(variant: Variant) -> None:
    """The check of a target that serves its one model alone."""
    if variant != Variant():
        raise TargetError("the target serves its own model alone")


@dataclass(frozen=True)
class MeasuredModel:
    """A model as far as a measurement depends on it, whatever the protocol.

    ``supports_ignore_eos``: every server of this kind can generate beyond the end of the sequence. ``takes_messages``: it takes
    the messages of a chat, and makes the prompt of them. ``decoupled`` is None and
    ``parameters`` is empty where the protocol has no such information.
    """

    name: str
    takes_token_ids: bool
    supports_ignore_eos: bool
    decoupled: bool | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    takes_messages: bool = False


@dataclass(frozen=True)
class ConnectedModel:
    """A model that answered. ``make_client`` takes the ids of the end and the padding token, None where unknown.

    ``tokenizer_dir`` is the folder that the deployment itself uses, None where it is unknown or not on this machine.
    """

    origin: Origin
    model: MeasuredModel
    streaming: bool
    make_client: MakeClient
    tokenizer_dir: Path | None = None
    check_variant: CheckVariant = takes_no_variant


def connect(
    options: TargetOptions, sending: ClientOptions, deadline: SetUpDeadline, embedded: ServerAddresses | None
) -> ConnectedModel:
    """Inspect the model at ``embedded`` or else at --url, until ``deadline``.

    Raises TargetError and UsageError.
    """
    match options.protocol:
        case "grpc":
            origin = grpc_origin((options.url or "") if embedded is None else embedded.grpc)
            return _connect_triton_grpc(options, origin, sending, deadline)
        case "http":
            origin = http_origin((options.url or "") if embedded is None else embedded.http)
            return _connect_triton_http(options, origin, sending, deadline)
        case _:
            return _connect_openai(options, sending, deadline)


def _connect_triton_grpc(
    options: TargetOptions, origin: Origin, sending: ClientOptions, deadline: SetUpDeadline
) -> ConnectedModel:
    address = origin.address
    limits = connection_limits(sending.connections)

    def inspect(name: str) -> TritonModel:
        return deadline.call(lambda left_s: triton_grpc.inspect_model(address, name, left_s))

    model = inspect(options.model or DEFAULT_TRITON_MODEL)
    streaming = _streaming(options, model)

    def make_client(end_id: int | None, pad_id: int | None) -> KnownClient:
        return TritonGrpcClient(address, model, streaming, end_id, pad_id, limits, sending.answer_limits)

    check = partial(_check_triton_variant, model, inspect)
    return ConnectedModel(origin, _measured(model), streaming, make_client, deployed_tokenizer_dir(model, inspect), check)


def _connect_triton_http(
    options: TargetOptions, origin: Origin, sending: ClientOptions, deadline: SetUpDeadline
) -> ConnectedModel:
    headers, secrets = options.headers, options.secrets

    def inspect(name: str) -> TritonModel:
        return deadline.call(lambda left_s: triton_http.inspect_model(origin, name, headers, left_s))

    model = inspect(options.model or DEFAULT_TRITON_MODEL)
    streaming = _streaming(options, model)

    def make_client(end_id: int | None, pad_id: int | None) -> KnownClient:
        return TritonHttpClient(origin, model, streaming, end_id, pad_id, headers, sending.answer_limits, secrets)

    check = partial(_check_triton_variant, model, inspect)
    return ConnectedModel(origin, _measured(model), streaming, make_client, deployed_tokenizer_dir(model, inspect), check)


def _connect_openai(options: TargetOptions, sending: ClientOptions, deadline: SetUpDeadline) -> ConnectedModel:
    url = openai_url(options)
    origin, path, headers, secrets = url.origin, url.path, options.headers, options.secrets
    served = deadline.call(lambda left_s: served_models(origin, path, headers, left_s))
    name = choose_model(options.model, served)
    unlisted = unlisted_model(name, served)
    if unlisted is not None:
        click.echo(f"Warning: {unlisted}", err=True)
    streaming = options.streaming is not False

    def make_client(end_id: int | None, pad_id: int | None) -> KnownClient:
        body, limits = options.extra_body, sending.answer_limits
        return OpenAIChatClient(origin, name, streaming, path, headers, body, limits=limits, secrets=secrets)

    model = MeasuredModel(name, takes_token_ids=False, supports_ignore_eos=False, takes_messages=True)
    return ConnectedModel(origin, model, streaming, make_client, check_variant=partial(_check_served_variant, served))


def _check_triton_variant(model: TritonModel, inspect: Callable[[str], TritonModel], variant: Variant) -> None:
    """Raises TargetError."""
    if variant.lora_task_id is not None and LORA_INPUT not in model.inputs:
        raise TargetError(f"the model {model.name} has no input {LORA_INPUT}")
    if variant.model is None:
        return
    other = inspect(variant.model)
    if (other.decoupled, other.inputs, other.outputs) != (model.decoupled, model.inputs, model.outputs):
        raise TargetError(f"the model {variant.model} has other inputs and outputs than {model.name}; measure it by itself")


def _check_served_variant(served: tuple[str, ...] | None, variant: Variant) -> None:
    """Raises TargetError for a model that is not among the ``served`` ones, where the server lists any."""
    if variant.model is not None and served and variant.model not in served:
        raise TargetError(f"the server has no such model as {variant.model}; it lists {', '.join(served)}")


def _measured(model: TritonModel) -> MeasuredModel:
    return MeasuredModel(model.name, model.takes_token_ids, True, model.decoupled, model.parameters)


def _streaming(options: TargetOptions, model: TritonModel) -> bool:
    """Whether to stream. Raises TargetError for a model that cannot be driven, or cannot stream where --streaming is given."""
    check_inputs(model)
    streaming = model.decoupled if options.streaming is None else options.streaming
    if streaming and not model.decoupled:
        raise TargetError(f"--streaming: the model {model.name} is not decoupled, so it cannot stream")
    return streaming


def connection_limits(connections: int | None) -> ConnectionLimits:
    """Exactly ``connections``; None: the number that measured best, and more where the server's stream limit is reached."""
    return DEFAULT_LIMITS if connections is None else ConnectionLimits(connections, connections)
