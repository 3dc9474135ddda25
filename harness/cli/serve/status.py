"""``bench serve status``: what runs in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import cloup

from bench_errors import ExitStatus

if TYPE_CHECKING:
    from serving.launch.background import BackgroundServer


@cloup.command(name="status", short_help="List the servers in the background.", epilog="Example: bench serve status")
@cloup.argument("name", required=False, help="Only this one.")
def command(name: str | None) -> int:
    """List the servers that 'bench serve --background' started: name, process, addresses, whether every model is ready.

    One that has ended without being stopped is said once, with its log, and then forgotten. Exits with 1 when NAME does not
    run, or a listed server is not ready.
    """
    from tabulate import tabulate

    from serving.launch.background import forget, list_servers

    servers = [server for server in list_servers() if name is None or server.name == name]
    alive = [server for server in servers if server.is_alive()]
    ended = [server for server in servers if server not in alive]
    for server in ended:
        click.echo(f"{server.name}: process {server.keeper.pid} has ended unasked; its log: {server.log}", err=True)
        forget(server)
    ready = {server.name: server.is_ready() for server in alive}
    if alive:
        rows = [
            (server.name, server.keeper.pid, "yes" if ready[server.name] else "no", *_addresses(server), server.log)
            for server in alive
        ]
        click.echo(tabulate(rows, ("name", "pid", "ready", "http", "grpc", "metrics", "log"), tablefmt="plain"))
    elif not ended:
        click.echo(
            "No server runs in the background." if name is None else f"No server {name} runs in the background.", err=True
        )
    well = all(ready.values()) and not ended and (name is None or bool(alive))
    return ExitStatus.VALID if well else ExitStatus.FAILED


def _addresses(server: BackgroundServer) -> tuple[str, str, str]:
    addresses = server.addresses
    return addresses.http, addresses.grpc, f"{addresses.metrics}/metrics"
