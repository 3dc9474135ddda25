"""``bench serve status`` and ``bench serve stop``: the servers in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, takes
from bench_errors import ExitStatus

_LOG_LINES = 5  # of each server

if TYPE_CHECKING:
    from serving.launch.background import BackgroundServer


@cloup.command(name="status", short_help="List the servers in the background.", epilog="Example: bench serve status")
@cloup.argument("name", required=False, help="List only this server.")
def status(name: str | None) -> int:
    """List the servers that 'bench serve --background' started: name, process, addresses, whether every model is ready, and
    the log with its last lines.

    A server that has ended without being stopped is reported once, with the first errors and the last lines of its log, and
    then removed from the list; the log stays. Exits with 1 when NAME does not run, or a listed server is not ready.
    """
    from pathlib import Path

    from tabulate import tabulate

    from serving.launch.background import forget
    from serving.launch.log import explain_end, last_lines

    servers = _servers(name)
    alive = [server for server in servers if server.is_alive()]
    ended = [server for server in servers if server not in alive]
    for server in ended:
        explanation = explain_end(Path(server.log), server.log_start)
        click.echo(f"{server.name}: process {server.keeper.pid} ended unexpectedly. {explanation}", err=True)
        forget(server)
    ready = {server.name: server.is_ready() for server in alive}
    if alive:
        rows = [
            (server.name, server.keeper.pid, "yes" if ready[server.name] else "no", *_addresses(server), server.log)
            for server in alive
        ]
        click.echo(tabulate(rows, ("name", "pid", "ready", "http", "grpc", "metrics", "openai", "log"), tablefmt="plain"))
        for server in alive:
            click.echo(
                "\n".join([f"\n{server.name}: {server.log}", *last_lines(Path(server.log), server.log_start, _LOG_LINES)])
            )
    elif not ended:
        _print_none(name)
    healthy = all(ready.values()) and not ended and (name is None or bool(alive))
    return ExitStatus.VALID if healthy else ExitStatus.FAILED


@dataclass(frozen=True)
class StopOptions(Concern):
    """The options of ``bench serve stop``."""

    stop_all: bool = option(False, "--all", help="Stop every server.")


@cloup.command(name="stop", short_help="Stop a server in the background.", epilog="Example: bench serve stop mine")
@cloup.argument("name", required=False, help="Name of the server; optional where only one runs.")
@takes(StopOptions)
def stop(options: StopOptions, name: str | None) -> int:
    """Stop a server that 'bench serve --background' started, with all its processes, and wait until they are gone.

    Requests in flight have the --exit_timeout that the server was started with.
    """
    from serving.launch.background import stop as stop_server

    stop_all = options.stop_all
    if name is not None and stop_all:
        raise click.UsageError("--all stops every server; omit the name")
    servers = _servers(name)
    if not servers:
        _print_none(name)
        return ExitStatus.VALID if stop_all else ExitStatus.FAILED
    if len(servers) > 1 and not stop_all:
        names = ", ".join(server.name for server in servers)
        raise click.UsageError(f"several servers run: {names}; name one of them, or use --all")
    for server in servers:
        was_alive = server.is_alive()
        stop_server(server)
        click.echo(f"{server.name}: {'stopped' if was_alive else 'had already ended'}")
    return ExitStatus.VALID


def _servers(name: str | None) -> list[BackgroundServer]:
    from serving.launch.background import list_servers

    return [server for server in list_servers() if name is None or server.name == name]


def _print_none(name: str | None) -> None:
    click.echo("No server runs in the background." if name is None else f"No server {name} runs in the background.", err=True)


def _addresses(server: BackgroundServer) -> tuple[str, str, str, str]:
    addresses = server.addresses
    return addresses.http, addresses.grpc, f"{addresses.metrics}/metrics", addresses.openai or "–"
