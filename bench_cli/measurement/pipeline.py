"""The embedded pipeline of a run: deployed for its length, or one that several runs share, which the process that starts them
deploys once, and names in their environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from harness.protocols.protocol import EmbeddedPort
from serving.launch.addresses import ServerAddresses, choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec

_VARIABLE = "INFLIGHT_BENCH_PIPELINE"


@contextmanager
def open_pipeline(repository: RepositorySpec, server_log: Path, port: EmbeddedPort | None = None) -> Iterator[ServerAddresses]:
    """The shared pipeline where the environment names one, which serves ``repository`` already; else one that is deployed, and
    logs to ``server_log``; it has the OpenAI front end where that is the ``port`` to be measured. Raises ServingError.
    """
    shared = shared_pipeline()
    if shared is not None:
        yield shared
        return
    click.echo("Deploying the embedded pipeline …", err=True)
    chosen = choose_addresses(openai_port=0 if port == "openai" else None)
    with deploy(repository, chosen, server_log) as server:
        addresses = server.addresses
        openai = "" if addresses.openai is None else f", OpenAI {addresses.openai}"
        click.echo(f"Ready: gRPC {addresses.grpc}, HTTP {addresses.http}, metrics {addresses.metrics}{openai}", err=True)
        yield addresses


def environment_of(addresses: ServerAddresses) -> dict[str, str]:
    """The variable by which runs share the pipeline at ``addresses``."""
    ports = (addresses.http_port, addresses.grpc_port, addresses.metrics_port, addresses.openai_port or 0)
    return {_VARIABLE: " ".join((addresses.host, *map(str, ports)))}


def shared_pipeline() -> ServerAddresses | None:
    """The pipeline that the environment names."""
    named = os.environ.get(_VARIABLE)
    if named is None:
        return None
    host, *ports = named.split()
    http_port, grpc_port, metrics_port, openai_port = map(int, ports)
    return ServerAddresses(host, http_port, grpc_port, metrics_port, openai_port=openai_port or None)
