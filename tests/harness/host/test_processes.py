"""Processes of this host: who listens, and what a tree of them used."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.host.processes import Process, began_at, called_by, listeners, read_processes, tree_of
from serving.front_end import settings as front_end
from serving.launch import supervisor
from serving.proxy import settings as proxy
from tests.free_port import closed_port

_LISTENER = """
import socket, sys
own = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print(own.getsockname()[1], flush=True)
sys.stdin.read()
"""


_ROUTER = """
import socket, sys
own = socket.create_server(("127.0.0.1", 0))
calls = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
print(own.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def _routing(*ports: int) -> Iterator[tuple[int, int]]:
    """The id of another process that is connected to these ports, and the port at which it listens."""
    command = [sys.executable, "-c", _ROUTER, *map(str, ports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


@contextmanager
def _listening(address: str, port: int = 0) -> Iterator[tuple[int, int]]:
    """The id of another process and the port at which it listens: one that is free where `port` is 0."""
    command = [sys.executable, "-c", _LISTENER, address, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


@pytest.mark.parametrize(("bound", "host"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("0.0.0.0", "127.0.0.1")])
def test_the_process_that_listens_is_found(bound: str, host: str) -> None:
    with _listening(bound) as (pid, port):
        assert listeners(host, port) == {pid}


def test_a_socket_of_another_address_is_another_server() -> None:
    with _listening("127.0.0.2", closed_port()) as (_, port):
        assert listeners("127.0.0.1", port) is None


def test_a_port_without_a_listener_and_a_host_elsewhere_have_no_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert listeners("127.0.0.1", port) == {os.getpid()}
        assert listeners("192.0.2.1", port) is None  # RFC 5737: of no machine
        assert listeners("no-such-host.invalid", port) is None
    assert listeners("127.0.0.1", closed_port()) is None


def test_a_router_calls_its_servers_and_what_these_call() -> None:
    with (
        _listening("127.0.0.1") as (server, port),
        _listening("0.0.0.0") as (other, other_port),
        _routing(port) as (inner, inner_port),
        _routing(inner_port, other_port) as (router, router_port),
        socket.create_connection(("127.0.0.1", router_port)),
    ):
        assert called_by({router}) == {inner, server, other}
        assert called_by({inner}) == {server}
        assert called_by({server}) == frozenset()


def test_what_is_called_is_not_this_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own, _routing(own.getsockname()[1]) as (router, _):
        assert called_by({router}) == frozenset()


@pytest.mark.parametrize(
    ("name", "parent", "expected"),
    [
        ("python", "bash", {7}),
        ("tritonserver", "mpirun", {6}),
        ("docker-proxy", "bash", None),
        ("ssh", "bash", None),
        ("rootlesskit", "systemd", None),
        ("pasta.avx2", "systemd", None),
        (front_end.PROCESS_NAME, supervisor.PROCESS_NAME, {6}),  # beside the server that computes
        (front_end.PROCESS_NAME, "bash", None),
        (proxy.PROCESS_NAME, supervisor.PROCESS_NAME, None),  # its server may be in a container
    ],
)
def test_ranks_are_their_launcher_s_and_a_forwarder_is_no_server(
    tmp_path: Path, name: str, parent: str, expected: set[int] | None
) -> None:
    for pid, (of_name, ppid) in {6: (parent, 1), 7: (name, 6)}.items():
        folder = tmp_path / str(pid) / "fd"
        folder.mkdir(parents=True)
        (folder.parent / "stat").write_text(f"{pid} ({of_name}) S {ppid} " + "0 " * 20)
    (tmp_path / "7" / "fd" / "3").symlink_to("socket:[99]")
    (tmp_path / "net").mkdir()
    loopback = 127 + (1 << 24) if sys.byteorder == "little" else (127 << 24) + 1
    (tmp_path / "net" / "tcp").write_text(f"head\n 0: {loopback:08X}:1F40 00000000:0000 0A 0:0 0:0 0 0 0 99 1\n")
    found = listeners("127.0.0.1", 8000, tmp_path)
    assert found == expected


def test_a_tree_is_its_root_and_all_below() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 2, 5: 1, 6: 5}
    processes = {pid: Process("p", parent, 0, 0) for pid, parent in parents.items()}
    assert tree_of(processes, [2]) == {2, 3, 4}
    assert tree_of(processes, [2, 5]) == {2, 3, 4, 5, 6}
    assert tree_of(processes, [99]) == set()


def test_the_cpu_time_of_children_that_have_ended_counts() -> None:
    before = read_processes()[os.getpid()]
    subprocess.run([sys.executable, "-c", "sum(range(20_000_000))"], check=True)
    after = read_processes()[os.getpid()]
    assert after.cpu_ns - before.cpu_ns > 0.1e9
    assert after.parent == os.getppid()


def test_a_name_may_have_any_character(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "stat").write_text("12 (a) (b c) S 3 " + "0 " * 9 + "1 2 3 4 " + "0 " * 4 + "50 0")
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert read_processes(tmp_path) == {12: Process("a) (b c", 3, 10 * tick_ns, 50 * tick_ns)}


def test_a_server_began_with_the_first_of_its_processes(tmp_path: Path) -> None:
    for pid, ticks in {12: 500, 13: 300, 14: 100}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (server) S 1 " + "0 " * 17 + f"{ticks} 0")
    (tmp_path / "stat").write_text("cpu  1 2 3\nbtime 1790000000\n")
    assert began_at([12, 13], tmp_path) == 1_790_000_000 + 300 / os.sysconf("SC_CLK_TCK")
    assert began_at([99], tmp_path) is None
    assert began_at([], tmp_path) is None
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    assert began_at([12], tmp_path) is None


def test_a_process_began_when_it_was_started() -> None:
    before_s = time.time()
    with _listening("127.0.0.1") as (pid, _):
        began_s = began_at([pid])
    assert began_s is not None
    assert before_s - 2.0 <= began_s <= time.time() + 2.0
