"""The proxy's process: its limit of files, and its end where it cannot listen."""

from __future__ import annotations

import resource
import socket
import subprocess

import pytest

from serving.proxy import __main__ as program
from serving.proxy.settings import PortPair, ProxySettings, proxy_command
from tests.free_port import free_addresses


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "raised"),
    [
        (100_000, 100_000, 4096, None),
        (1024, 100_000, 4096, 5 * 4096 + 256),
        (1024, resource.RLIM_INFINITY, 4096, 5 * 4096 + 256),
        (1024, 4096, (4096 - 256) // 5, 4096),
        (64, 64, 1, 64),
    ],
)
def test_connections_are_as_many_as_the_limit_of_files_allows(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, connections: int, raised: int | None
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: limits.append(limit))
    assert program._raise_file_limit(4096) == connections
    assert limits == ([] if raised is None else [(raised, hard)])


@pytest.mark.parametrize("port", ["http", "grpc", "metrics"])
def test_port_in_use_ends_the_proxy_with_a_sentence(port: str) -> None:
    own, free = free_addresses(), free_addresses()
    pairs = {
        name: PortPair(getattr(free, f"{name}_port"), getattr(own, f"{name}_port")) for name in ("http", "grpc", "metrics")
    }
    with socket.create_server((free.host, pairs[port].listen)):
        ended = subprocess.run(proxy_command(ProxySettings(free.host, **pairs)), capture_output=True, text=True, timeout=200)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("The proxy cannot listen: ")
    assert "Traceback" not in ended.stderr
