from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from serving.errors import LaunchError
from serving.launch.addresses import ServerAddresses, choose_addresses, is_loopback
from serving.launch.server import Server
from tests.free_port import free_addresses
from tests.processes import words_of

_HTTP_SERVER = """
import http.server, os, signal, sys
port, ready_after = int(sys.argv[1]), int(sys.argv[2])
requests = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global requests
        requests += 1
        known = self.path in ("/v2/health/ready", "/v2/models/ensemble/ready", "/v2/models/tensorrt_llm/ready")
        self.send_response(200 if known and requests > ready_after else 400)
        self.end_headers()
signal.signal(signal.SIGINT, lambda *_: os._exit(0))
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@contextmanager
def _listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a socket in TIME_WAIT does not listen
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


# ---- addresses


def test_chosen_ports_are_free_and_differ() -> None:
    addresses = choose_addresses()
    ports = {addresses.http_port, addresses.grpc_port, addresses.metrics_port}
    assert len(ports) == 3
    assert all(_can_listen(port) for port in ports)


def test_addresses_print_as_host_and_port() -> None:
    addresses = ServerAddresses("127.0.0.1", 8000, 8001, 8002)
    assert (addresses.http, addresses.grpc, addresses.metrics) == ("127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:8002")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_given_port_is_kept(position: int) -> None:
    port = choose_addresses().http_port
    ports: list[int | None] = [None, None, None]
    ports[position] = port
    addresses = choose_addresses(*ports)
    assert (addresses.http_port, addresses.grpc_port, addresses.metrics_port)[position] == port


@pytest.mark.parametrize(("position", "option"), [(0, "--http_port"), (1, "--grpc_port"), (2, "--metrics_port")])
def test_port_in_use_names_its_option(position: int, option: str) -> None:
    with _listening() as port:
        ports: list[int | None] = [None, None, None]
        ports[position] = port
        with pytest.raises(LaunchError, match=f"{option} {port}: cannot listen on 127.0.0.1:{port}"):
            choose_addresses(*ports)


def test_port_of_a_server_that_has_just_ended_can_be_used_again() -> None:
    with _listening() as port:
        client = socket.create_connection(("127.0.0.1", port))
    client.close()  # leaves the pair in TIME_WAIT
    assert choose_addresses(grpc_port=port).grpc_port == port


def test_port_beyond_the_range_names_its_option() -> None:
    with pytest.raises(LaunchError, match="--http_port 70000"):
        choose_addresses(http_port=70_000)


def test_port_given_twice_is_refused() -> None:
    port = choose_addresses().http_port
    with pytest.raises(LaunchError, match=f"--grpc_port {port}"):
        choose_addresses(http_port=port, grpc_port=port)


def test_host_of_another_machine_names_its_option() -> None:
    with pytest.raises(LaunchError, match=r"--host 192\.0\.2\.1: not an IPv4 address of this machine"):
        choose_addresses(host="192.0.2.1")


def test_empty_host_does_not_mean_every_address() -> None:
    with pytest.raises(LaunchError, match="--host: give an address"):
        choose_addresses(host="")


def test_host_name_is_resolved() -> None:
    assert choose_addresses(host="localhost").host == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False), ("192.168.1.5", False), ("gpu1", False)],
)
def test_only_loopback_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


# ---- start and stop, with a small HTTP server in Triton's place


@contextmanager
def _server(tmp_path: Path, script: str, *arguments: str) -> Iterator[Server]:
    addresses = free_addresses()
    path = tmp_path / "server.py"
    path.write_text(script)
    command = [sys.executable, str(path), str(addresses.http_port), *arguments]
    with Server(command, dict(os.environ), addresses, tmp_path / "log") as server:
        yield server


def test_waits_until_the_server_and_every_model_are_ready(tmp_path: Path) -> None:
    waits: list[float] = []
    with _server(tmp_path, _HTTP_SERVER, "3") as server:
        server.wait_until_ready(["ensemble", "tensorrt_llm"], 120.0, waits.append)
        assert server.is_running()
    assert len(waits) >= 3
    assert waits == sorted(waits)
    assert not server.is_running()
    assert _can_listen(server.addresses.http_port)


def test_model_that_is_not_ready_in_time_is_named(tmp_path: Path) -> None:
    with _server(tmp_path, _HTTP_SERVER, "0") as server:
        server.wait_until_ready(["ensemble"], 120.0)
        with pytest.raises(LaunchError, match=r"not ready after 1 s .*nosuch"):
            server.wait_until_ready(["ensemble", "nosuch"], 1.0)


def test_failed_start_quotes_the_log(tmp_path: Path) -> None:
    script = "raise SystemExit('no such backend')"
    with _server(tmp_path, script) as server, pytest.raises(LaunchError, match="ended while starting") as caught:
        server.wait_until_ready(["ensemble"], 120.0)
    assert "no such backend" in str(caught.value)
    assert str(tmp_path / "log") in str(caught.value)


def test_first_errors_of_a_long_log_are_in_the_message(tmp_path: Path) -> None:
    log = ["I1121 18:00:00 starting", "E1121 18:00:01 the first error", "E1121 18:00:02 the second"] + ["I1121 noise"] * 50
    with _server(tmp_path, f"print({chr(10).join(log)!r})") as server, pytest.raises(LaunchError) as caught:
        server.wait_until_ready(["ensemble"], 120.0)
    message = str(caught.value)
    assert "the first error" in message
    assert "the second" in message
    assert len(message.splitlines()) < 30


def test_ctrl_c_of_the_terminal_does_not_reach_the_server(tmp_path: Path) -> None:
    with _server(tmp_path, _HTTP_SERVER, "0") as server:
        server.wait_until_ready([], 120.0)
        family = [child for child in psutil.Process().children(recursive=True) if str(tmp_path) in " ".join(words_of(child))]
        assert len(family) == 2  # supervisor and server
        assert os.getpgrp() not in {os.getpgid(member.pid) for member in family}
        assert {os.getsid(member.pid) for member in family} == {os.getsid(0)}  # Linux schedules sessions as groups


def test_stop_ends_the_process_and_is_idempotent(tmp_path: Path) -> None:
    before = psutil.Process().children(recursive=True)  # servers that other tests share
    with _server(tmp_path, _HTTP_SERVER, "0") as server:
        server.wait_until_ready([], 120.0)
        children = [child for child in psutil.Process().children(recursive=True) if child not in before]
        assert any("serving.launch.supervisor" in words_of(child) for child in children)
        server.stop()
        server.stop()
        assert [child for child in children if "serving.launch.supervisor" in words_of(child)] == []
