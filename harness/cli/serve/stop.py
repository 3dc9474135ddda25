"""``bench serve stop``: end what runs in the background."""

from __future__ import annotations

import click
import cloup

from bench_errors import ExitStatus


@cloup.command(name="stop", short_help="Stop a server in the background.", epilog="Example: bench serve stop mine")
@cloup.argument("name", required=False, help="Its name; not needed where only one runs.")
@cloup.option("--all", "every", is_flag=True, help="Stop all of them.")
def command(name: str | None, every: bool) -> int:
    """Stop a server that 'bench serve --background' started, with all its processes, and wait until they are gone.

    Requests in flight have the --exit_timeout that the server was started with.
    """
    from serving.launch.background import list_servers, stop

    if name is not None and every:
        raise click.UsageError("--all stops every server; leave the name out")
    servers = [server for server in list_servers() if name is None or server.name == name]
    if not servers:
        click.echo(
            "No server runs in the background." if name is None else f"No server {name} runs in the background.", err=True
        )
        return ExitStatus.VALID if every else ExitStatus.FAILED
    if len(servers) > 1 and not every:
        names = ", ".join(server.name for server in servers)
        raise click.UsageError(f"several servers run: {names}; name one, or give --all")
    for server in servers:
        was_alive = server.is_alive()
        stop(server)
        click.echo(f"{server.name}: {'stopped' if was_alive else 'had ended already'}")
    return ExitStatus.VALID
