"""Finding what is to be measured: a server that runs, or the embedded pipeline deployed for the length of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness.cli.engine_options import engine_options
from harness.cli.measurement.connect import Reached, ServedModel, reach
from harness.cli.measurement.options import MeasureOptions
from harness.cli.tokenizer import open_tokenizer
from harness.clients.registry import KnownClient
from harness.records.run_folder import RunFolder
from serving.engines.openvino.folder import DEMO_ENGINE_DIR, read_limits
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec


@dataclass(frozen=True)
class Target:
    """A model that is ready to be driven by ``client``.

    ``server`` is None where we did not start it; ``tokenizer`` where none is known.
    """

    address: str
    client: KnownClient
    model: ServedModel
    tokenizer: Any | None
    tokenizer_dir: Path | None
    context_tokens: int | None
    server: Server | None

    @property
    def streaming(self) -> bool:
        return self.client.streaming


@contextmanager
def open_target(options: MeasureOptions, folder: RunFolder) -> Iterator[Target]:
    """The target that the options name. Raises TargetError, or ServingError where we deploy it."""
    if options.url is not None:
        yield _target(options, reach(options, None), None, None, None)
        return
    engine_dir, settings = options.engine_dir or DEMO_ENGINE_DIR, options.engine_settings
    spec = RepositorySpec(
        engine_dir=engine_dir.resolve(),
        tokenizer_dir=(options.tokenizer_dir or engine_dir).resolve(),
        decoupled_mode=options.decoupled_mode,
        max_stream_interval=settings["max_stream_interval"],
        draft_engine_dir=None if settings["draft_engine_dir"] is None else settings["draft_engine_dir"].resolve(),
        engine_options=engine_options(settings),
    )
    limits = read_limits(spec.engine_dir)
    click.echo("Deploying the embedded pipeline …", err=True)
    with deploy(spec, choose_addresses(), folder.server_log) as server:
        addresses = server.addresses
        click.echo(f"Ready: gRPC {addresses.grpc}, HTTP {addresses.http}, metrics {addresses.metrics}", err=True)
        yield _target(options, reach(options, addresses), spec.tokenizer_dir, limits.context_tokens, server)


def _target(
    options: MeasureOptions, reached: Reached, tokenizer_dir: Path | None, context_tokens: int | None, server: Server | None
) -> Target:
    tokenizer_dir = options.tokenizer_dir or tokenizer_dir or reached.tokenizer_dir
    tokenizer = None if tokenizer_dir is None else open_tokenizer(tokenizer_dir)
    end_id, pad_id = (None, None) if tokenizer is None else (tokenizer.eos_token_id, tokenizer.pad_token_id)
    return Target(
        address=reached.address,
        client=reached.make_client(end_id, pad_id),
        model=reached.model,
        tokenizer=tokenizer,
        tokenizer_dir=tokenizer_dir,
        context_tokens=context_tokens,
        server=server,
    )


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """Counts the tokens of a generated text."""
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
