"""Options of a running server of ``bench serve``: addresses, time limits, log, background."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option

if TYPE_CHECKING:
    from serving.launch.addresses import ServerAddresses
    from serving.launch.options import Supervision

_PORT = click.IntRange(1, 65535)


def _read_apis(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """Callback of --restricted_apis. Raises BadParameter."""
    from serving.launch.admin_key import RESTRICTABLE

    apis = tuple(dict.fromkeys(filter(None, text.split(","))))
    unknown = [api for api in apis if api not in RESTRICTABLE]
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: use {', '.join(RESTRICTABLE)}", ctx, parameter)
    return apis


@dataclass(frozen=True)
class AddressOptions(Concern, title="Addresses"):
    """The addresses to listen on. A port of None is a free one, or Triton's default.

    ``restricted_apis``: Triton's protocols that need its admin key beyond the administrative ones.
    """

    host: str = option(
        "127.0.0.1",
        common=True,
        help="Address to listen on; any address but loopback opens inference to the network, since Triton has no users. "
        "There a proxy listens, and Triton on loopback only.",
    )
    http_port: int | None = option(
        None, type=_PORT, show_default="embedded: a free port; else 8000", common=True, help="HTTP port."
    )
    grpc_port: int | None = option(
        None, type=_PORT, show_default="embedded: a free port; else 8001", common=True, help="gRPC port."
    )
    metrics_port: int | None = option(
        None, type=_PORT, show_default="embedded: a free port; else 8002", common=True, help="Port of /metrics."
    )
    restricted_apis: tuple[str, ...] = option(
        (),
        default="",
        callback=_read_apis,
        show_default="none",
        help="Triton's protocols that need its key, which is made anew at each start and shown once, separated by commas: "
        "model-repository, shared-memory, trace, logging, statistics. All but statistics always do.",
    )

    def choose(self, openai_port: int | None = None) -> ServerAddresses:
        """These addresses with free ports for None, and ``openai_port``.

        Raises LaunchError for a host of another machine, or a port in use.
        """
        from serving.launch.addresses import choose_addresses

        chosen = choose_addresses(self.http_port, self.grpc_port, self.metrics_port, self.host, openai_port)
        return replace(chosen, restricted_apis=self._restricted())

    def with_default_ports(self) -> ServerAddresses:
        """These addresses with Triton's ports for None; nothing is checked, since they may be those of another machine."""
        from serving.launch.addresses import ServerAddresses
        from serving.launch.options import DEFAULT_ADDRESSES

        return ServerAddresses(
            self.host,
            self.http_port or DEFAULT_ADDRESSES.http_port,
            self.grpc_port or DEFAULT_ADDRESSES.grpc_port,
            self.metrics_port or DEFAULT_ADDRESSES.metrics_port,
            self._restricted(),
        )

    def _restricted(self) -> tuple[str, ...]:
        from serving.launch.admin_key import restricted_apis

        return restricted_apis(self.restricted_apis)


@dataclass(frozen=True)
class RunningOptions(Concern, title="Running"):
    """Time limits, log and background of the server. ``ready_timeout`` None: the launcher's default.

    ``log_file`` None: triton_log.txt, or in the background the log that is kept under the server's name.
    """

    background: bool = option(
        False, common=True, help="Return when the server is ready; see 'bench serve status' and 'bench serve stop'."
    )
    name: str = option("default", common=True, help="Name for --background.")
    ready_timeout: float | None = option(
        None,
        type=click.FloatRange(min=1),
        show_default="embedded: 180, or 900 with another engine than openvino; else 600",
        common=True,
        help="Seconds to wait until the server is ready.",
    )
    exit_timeout: int = option(10, type=click.IntRange(1, 3600), help="Seconds for requests in flight when it stops.")
    log: bool = option(False, help="Verbose log (rank 0).")
    log_file: Path | None = option(
        None,
        type=click.Path(path_type=Path, dir_okay=False),
        show_default="triton_log.txt, or triton_log-2.txt … beside other servers there; with --background one for each "
        "--name, which 'bench serve status' shows",
        common=True,
        help="The server's log.",
    )

    def supervision(self, default_ready_timeout_s: float) -> Supervision:
        """Time limits and log level for the launch."""
        from serving.launch.options import Supervision

        return Supervision(self.ready_timeout or default_ready_timeout_s, self.exit_timeout, self.log)

    @property
    def log_path(self) -> Path:
        """The log; absolute where it is read from other folders later, in the background, and where Triton opens it."""
        from serving.launch.background import default_log
        from serving.launch.log_file import free_log

        if self.log_file is None and self.background:
            return default_log(self.name)
        path = self.log_file or free_log(Path("triton_log.txt"))
        return path.resolve() if self.background or self.log else path
