"""The embedded pipeline of a run: deployed for its length, or one that several runs share, which the process that starts them
deploys once, and names in their environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from serving.launch.addresses import ServerAddresses, choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec

_VARIABLE = "INFLIGHT_BENCH_PIPELINE"


@contextmanager
def open_pipeline(repository: RepositorySpec, server_log: Path) -> Iterator[ServerAddresses]:
    """The shared pipeline where the environment names one, which serves ``repository`` already; else one that is deployed, and
    logs to ``server_log``. Raises ServingError.
    """
    shared = shared_pipeline()
    if shared is not None:
        yield shared
        return
    click.echo("Deploying the embedded pipeline …", err=True)
    with deploy(repository, choose_addresses(), server_log) as server:
        addresses = server.addresses
        click.echo(f"Ready: gRPC {addresses.grpc}, HTTP {addresses.http}, metrics {addresses.metrics}", err=True)
        yield addresses


def environment_of(addresses: ServerAddresses) -> dict[str, str]:
    """The variable by which runs share the pipeline at ``addresses``."""
    return {_VARIABLE: f"{addresses.host} {addresses.http_port} {addresses.grpc_port} {addresses.metrics_port}"}


def shared_pipeline() -> ServerAddresses | None:
    """The pipeline that the environment names."""
    named = os.environ.get(_VARIABLE)
    if named is None:
        return None
    host, http_port, grpc_port, metrics_port = named.split()
    return ServerAddresses(host, int(http_port), int(grpc_port), int(metrics_port))
