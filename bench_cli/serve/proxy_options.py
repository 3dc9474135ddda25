"""Options of the proxy before a server of ``bench serve``, and of a server that other machines reach without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, switch

if TYPE_CHECKING:
    from serving.proxy.settings import ProxyBounds

_DEFECTS = "any client can crash Triton 24.10 (CVE-2025-23310)"


def _read_hosts(ctx: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class ProxyOptions(Concern, title="Proxy (beyond loopback)"):
    """The proxy and its bounds. ``proxy`` None: for every host but loopback."""

    proxy: bool | None = switch(
        None,
        show_default="--proxy beyond loopback",
        help="Let a proxy listen, which bounds requests and refuses those of web pages, and Triton on loopback alone.",
    )
    accept_risk: bool = option(False, help=f"Listen beyond loopback without the proxy, although {_DEFECTS}.")
    allowed_hosts: tuple[str, ...] = option(
        (),
        default="",
        callback=_read_hosts,
        show_default="none",
        help="Names of this server in URLs, separated by commas. Numeric addresses and names without a dot are always allowed.",
    )
    proxy_body_mib: int = option(32, type=click.IntRange(1, 256), help="MiB of an HTTP body or a gRPC message.")
    proxy_connections: int = option(4096, type=click.IntRange(1, 65536), help="Connections of each port, and gRPC calls.")
    proxy_timeout: float = option(
        60.0, type=click.FloatRange(1, 3600), help="Seconds for a request to arrive, and until an idle connection is closed."
    )

    def is_used(self, host: str) -> bool:
        """Whether a server that is to listen at ``host`` has a proxy."""
        from serving.launch.addresses import is_loopback

        return not is_loopback(host) if self.proxy is None else self.proxy

    def check_used(self, host: str, has_front_end: bool) -> None:
        """Raises UsageError for bounds of a proxy where there is none; the OpenAI front end knows --allowed_hosts, too."""
        if self.is_used(host):
            return
        names = ("proxy_body_mib", "proxy_connections", "proxy_timeout", *(() if has_front_end else ("allowed_hosts",)))
        for name in self.given(*names):
            raise click.UsageError(f"--{name}: there is no proxy at --host {host}; add --proxy, or leave it out")

    def check_risk(self, host: str, can_have_proxy: bool) -> None:
        """Raises UsageError for a server that other machines reach without the proxy, unless the risk is accepted."""
        from serving.launch.addresses import is_loopback

        if is_loopback(host) or self.accept_risk or (can_have_proxy and self.is_used(host)):
            return
        if can_have_proxy:
            raise click.UsageError(f"--no_proxy: without the proxy {_DEFECTS}; omit it for --host {host}, or add --accept_risk")
        raise click.UsageError(f"--host {host}: a job of Slurm has no proxy, and {_DEFECTS}; add --accept_risk to open it")

    def bounds(self) -> ProxyBounds:
        """The bounds for the proxy's process."""
        from serving.proxy.settings import MIB, ProxyBounds

        return ProxyBounds(self.proxy_body_mib * MIB, self.proxy_connections, self.proxy_timeout, self.allowed_hosts)
