"""Plans whose server is behind the proxy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.errors import LaunchError
from serving.launch import behind_proxy
from serving.launch.addresses import ServerAddresses, choose_addresses
from serving.launch.behind_proxy import loopback_addresses, with_proxy
from serving.launch.plan import LaunchPlan
from serving.proxy.settings import PortPair, ProxyBounds

_PUBLIC = ServerAddresses("10.0.0.1", 8000, 8001, 8002, ("trace",))
_OWN = ServerAddresses("127.0.0.1", 9000, 9001, 9002, ("trace",))
_PLAN = LaunchPlan(("tritonserver",), _OWN, "/repository", ("ensemble",), "log")


def test_server_gets_ports_of_loopback_that_are_none_of_the_proxys(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = replace(choose_addresses(), grpc_port=_PUBLIC.http_port)
    free = choose_addresses()
    offered = [taken, free]
    monkeypatch.setattr(behind_proxy, "choose_addresses", lambda: offered.pop(0))
    assert loopback_addresses(_PUBLIC) == replace(free, restricted_apis=("trace",))


def test_plan_with_a_proxy_is_reached_at_the_proxys_addresses() -> None:
    plan = with_proxy(_PLAN, _PUBLIC, ProxyBounds(connections=3))
    assert plan.addresses == _PUBLIC
    assert plan.proxy is not None
    assert (plan.proxy.host, plan.proxy.server_host, plan.proxy.bounds.connections) == ("10.0.0.1", "127.0.0.1", 3)
    assert (plan.proxy.http, plan.proxy.grpc, plan.proxy.metrics) == (
        PortPair(8000, 9000),
        PortPair(8001, 9001),
        PortPair(8002, 9002),
    )


def test_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind_proxy, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"the proxy needs aiohttp; install it with: pip install 'inflight-bench\[proxy\]'"):
        with_proxy(_PLAN, _PUBLIC, ProxyBounds())
