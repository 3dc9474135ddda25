"""Finding what is to be measured: a server that runs, or the embedded pipeline deployed for the length of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from harness.cli.options import MeasureOptions
from harness.clients.triton_grpc import inspect_model
from harness.clients.triton_model import TritonModel
from harness.errors import TargetError
from harness.records.run_folder import RunFolder
from serving.addresses import choose_addresses
from serving.detokenization import load_tokenizer
from serving.embedded import DEMO_ENGINE_DIR, deploy
from serving.engines.openvino_folder import read_limits
from serving.repository import RepositorySpec
from serving.server import Server

DEFAULT_GRPC_PORT = 8001


@dataclass(frozen=True)
class Target:
    """A model that is ready to be driven. ``server`` is None where we did not start it; ``tokenizer`` where none is known."""

    address: str
    model: TritonModel
    streaming: bool
    tokenizer: Any | None
    tokenizer_dir: Path | None
    context_tokens: int | None
    server: Server | None


@contextmanager
def open_target(options: MeasureOptions, folder: RunFolder) -> Iterator[Target]:
    """The target that the options name. Raises TargetError, or ServingError where we deploy it."""
    if options.url is not None:
        yield _inspect(options, grpc_address(options.url), None, None, None)
        return
    engine_dir = options.engine_dir or DEMO_ENGINE_DIR
    spec = RepositorySpec(
        engine_dir=engine_dir.resolve(),
        tokenizer_dir=(options.tokenizer_dir or engine_dir).resolve(),
        decoupled_mode=options.decoupled_mode,
    )
    limits = read_limits(spec.engine_dir)
    click.echo("Deploying the embedded pipeline …", err=True)
    with deploy(spec, choose_addresses(), folder.server_log) as server:
        addresses = server.addresses
        click.echo(f"Ready: gRPC {addresses.grpc}, HTTP {addresses.http}, metrics {addresses.metrics}", err=True)
        yield _inspect(options, addresses.grpc, spec.tokenizer_dir, limits.context_tokens, server)


def _inspect(
    options: MeasureOptions, address: str, tokenizer_dir: Path | None, context_tokens: int | None, server: Server | None
) -> Target:
    model = inspect_model(address, options.model)
    if not model.inputs & {"input_ids", "text_input"}:
        raise TargetError(
            f"--model {model.name}: takes neither input_ids nor text_input, so it is no model that bench can drive"
        )
    streaming = model.decoupled if options.streaming is None else options.streaming
    if streaming and not model.decoupled:
        raise TargetError(f"--streaming: the model {model.name} is not decoupled, so it cannot stream")
    tokenizer_dir = options.tokenizer_dir or tokenizer_dir or _tokenizer_dir_of_server(address, model)
    return Target(
        address=address,
        model=model,
        streaming=streaming,
        tokenizer=None if tokenizer_dir is None else _load_tokenizer(tokenizer_dir),
        tokenizer_dir=tokenizer_dir,
        context_tokens=context_tokens,
        server=server,
    )


def grpc_address(url: str) -> str:
    """host:port of what --url names; the port defaults to Triton's gRPC port."""
    problem = click.BadParameter(f"{url!r} is no gRPC address; give host:port", param_hint="--url")
    try:
        parts = urlsplit(url if "://" in url else f"grpc://{url}")
        port = parts.port
    except ValueError as error:
        raise problem from error
    if parts.scheme != "grpc" or not parts.hostname or port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
        raise problem
    if port is None and parts.netloc.endswith(":"):
        raise problem
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port or DEFAULT_GRPC_PORT}"


def _tokenizer_dir_of_server(address: str, model: TritonModel) -> Path | None:
    """The tokenizer folder that the deployment itself uses, if it lies on this machine."""
    for parameters in (model.parameters, _preprocessing_parameters(address)):
        named = dict(parameters).get("tokenizer_dir")
        if named and Path(named).is_dir():
            return Path(named)
    return None


def _preprocessing_parameters(address: str) -> tuple[tuple[str, str], ...]:
    try:
        return inspect_model(address, "preprocessing").parameters
    except TargetError:
        return ()


def _load_tokenizer(tokenizer_dir: Path) -> Any:
    try:
        return load_tokenizer(tokenizer_dir)
    except ValueError as error:
        raise TargetError(f"--tokenizer_dir: {error}") from error
