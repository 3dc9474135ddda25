"""A plan whose server listens on loopback alone, with the proxy at the addresses that it was to have."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from serving.errors import LaunchError
from serving.launch.addresses import ServerAddresses, choose_addresses
from serving.launch.plan import LaunchPlan
from serving.proxy.settings import PortPair, ProxyBounds, ProxySettings


def loopback_addresses(public: ServerAddresses) -> ServerAddresses:
    """Free ports on loopback, none of them a port of ``public``, for the server behind a proxy there."""
    while True:
        inner = choose_addresses()
        if not _ports(inner) & _ports(public):
            return replace(inner, restricted_apis=public.restricted_apis)


def with_proxy(plan: LaunchPlan, public: ServerAddresses, bounds: ProxyBounds) -> LaunchPlan:
    """``plan``, of a server at ``loopback_addresses``, with a proxy at ``public``. Raises LaunchError without its library."""
    if find_spec("aiohttp") is None:
        raise LaunchError("--host: the proxy needs aiohttp; install it with: pip install 'inflight-bench[proxy]'")
    inner = plan.addresses
    proxy = ProxySettings(
        host=public.host,
        http=PortPair(public.http_port, inner.http_port),
        grpc=PortPair(public.grpc_port, inner.grpc_port),
        metrics=PortPair(public.metrics_port, inner.metrics_port),
        server_host=inner.host,
        bounds=bounds,
    )
    return replace(plan, addresses=public, proxy=proxy)


def _ports(addresses: ServerAddresses) -> set[int]:
    ports = {addresses.http_port, addresses.grpc_port, addresses.metrics_port}
    return ports if addresses.openai_port is None else ports | {addresses.openai_port}
