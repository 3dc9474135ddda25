"""The proxy's process, a child of the server's supervisor.

    python -m serving.proxy SETTINGS_JSON

On SIGINT, which the server gets with it, it takes no more requests, and closes its connections to the server with the last
one in flight: Triton waits for them. It ends on SIGTERM, or with status 1 and a sentence where it cannot listen.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import resource
import signal
import sys
from dataclasses import replace

import uvloop
from aiohttp import ClientSession

from serving.proxy import grpc_proxy, http_proxy
from serving.proxy.call_sweep import CallSweep
from serving.proxy.settings import PROCESS_NAME, ProxySettings, read_settings
from serving.proxy.short_log import ShortLog

_PR_SET_NAME = 15
_DESCRIPTORS_EACH = 5  # three ports, and over HTTP a connection to Triton for each of the client's
_SPARE_DESCRIPTORS = 256
_POLL_S = 0.05


def main() -> int:
    settings = read_settings(sys.argv[1])
    logging.basicConfig(handlers=[ShortLog()])
    ctypes.CDLL(None).prctl(_PR_SET_NAME, PROCESS_NAME.encode(), 0, 0, 0)
    connections = _raise_file_limit(settings.bounds.connections)
    try:
        uvloop.run(_serve(replace(settings, bounds=replace(settings.bounds, connections=connections))))
    except OSError as error:
        print(f"The proxy cannot listen: {error}", file=sys.stderr)  # noqa: T201  to the log
        return 1
    return 0


async def _serve(settings: ProxySettings) -> None:
    """Forward until SIGTERM."""
    loop, ending, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, ending.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    bounds, server = settings.bounds, settings.server_host
    async with (
        http_proxy.open_session(bounds) as session,
        grpc_proxy.open_channel(f"{server}:{settings.grpc.server}") as channel,
    ):
        proxies = []
        for ports, route in ((settings.http, http_proxy.INFERENCE), (settings.metrics, http_proxy.METRICS)):
            proxies.append(http_proxy.HttpProxy(f"http://{server}:{ports.server}", route, bounds, session))
            await http_proxy.listen(proxies[-1], settings.host, ports.listen, bounds)
        sweep = CallSweep(bounds.receive_timeout_s, bounds.memory_bytes)
        calls = await grpc_proxy.listen(grpc_proxy.GrpcProxy(channel, sweep), settings.host, settings.grpc.listen, bounds)
        draining, sweeping = asyncio.create_task(_drain(ending, proxies, session)), asyncio.create_task(sweep.run())
        sweeping.add_done_callback(lambda _: ended.set())  # it ends by an error alone
        await ended.wait()
        draining.cancel()
        await calls.stop(0)
        if sweeping.done():
            sweeping.result()
        sweeping.cancel()


async def _drain(ending: asyncio.Event, proxies: list[http_proxy.HttpProxy], session: ClientSession) -> None:
    """Once the server is ``ending``, close its idle connections with the last request in flight."""
    await ending.wait()
    for proxy in proxies:
        proxy.refuse_requests()
    while any(proxy.in_flight for proxy in proxies):
        await asyncio.sleep(_POLL_S)
    await session.close()


def _raise_file_limit(connections: int) -> int:
    """Raise this process's limit of files to what ``connections`` of each port need; the connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_EACH * connections + _SPARE_DESCRIPTORS
    if wanted <= soft:
        return connections
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return min(connections, max(1, (limit - _SPARE_DESCRIPTORS) // _DESCRIPTORS_EACH))


if __name__ == "__main__":
    sys.exit(main())
