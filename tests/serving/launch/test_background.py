"""Background servers, with a small HTTP server in Triton's place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses, held_ports
from serving.launch.admin_key import restriction_arguments
from serving.launch.background import (
    BackgroundServer,
    ProcessIdentity,
    forget,
    identify,
    list_servers,
    start,
    state_dir,
    stop,
    this_process,
    write_state,
)
from serving.launch.options import Supervision
from serving.launch.plan import LaunchPlan
from serving.launch.tritonserver import TritonServer, rank_command
from tests.processes import is_at_work, words_of
from tests.serving.launch.conftest import make_program


@pytest.fixture(autouse=True)
def _separate_state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    for server in list_servers():
        stop(server)


@pytest.fixture
def plan(tmp_path: Path, fake_triton: Path, repository: Path) -> Iterator[LaunchPlan]:
    addresses = choose_addresses()
    command = rank_command(TritonServer(str(fake_triton), str(repository), addresses, exit_timeout_s=2), 0)
    (tmp_path / "temporary").mkdir()
    with held_ports([(addresses.host, addresses.http_port)]):  # until a program of its own has loaded its modules
        yield LaunchPlan(
            command=command,
            addresses=addresses,
            repository=str(repository),
            models=("tensorrt_llm",),
            log=str(tmp_path / "log"),
            supervision=Supervision(ready_timeout_s=120.0, exit_timeout_s=2),
            temporary_dir=str(tmp_path / "temporary"),
        )


_START = (
    "import sys, msgspec\nfrom serving.launch.background import start\nfrom serving.launch.plan import LaunchPlan\n"
    "start(msgspec.json.decode(sys.argv[1], type=LaunchPlan), 'mine')"
)


def _family(server: BackgroundServer) -> list[psutil.Process]:
    keeper = psutil.Process(server.keeper.pid)
    return [keeper, *keeper.children(recursive=True)]


def _none_runs(family: list[psutil.Process]) -> bool:
    return not any(map(is_at_work, family))


@pytest.mark.usefixtures("careless_triton")
def test_started_server_is_listed_as_ready_and_stop_ends_its_whole_family(plan: LaunchPlan, tmp_path: Path) -> None:
    server = start(plan, "mine")
    assert list_servers() == [server]
    assert (server.name, server.addresses, server.is_alive(), server.is_ready()) == ("mine", plan.addresses, True, True)
    family = _family(server)
    assert len(family) == 4  # keeper, supervisor, server, the server's child
    assert (tmp_path / "temporary").exists()
    stop(server)
    assert _none_runs(family)
    assert list_servers() == []
    assert not (tmp_path / "temporary").exists()


def test_ports_are_held_before_the_keeper_runs(plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []

    def look_for_a_port(*_: object, **__: object) -> None:
        for port in (plan.addresses.grpc_port, plan.addresses.metrics_port):
            with socket.socket() as other:
                with pytest.raises(OSError, match="in use"):
                    other.bind((plan.addresses.host, port))
                ports.append(port)
        raise InterruptedError

    monkeypatch.setattr(subprocess, "Popen", look_for_a_port)
    with pytest.raises(InterruptedError):
        start(plan, "mine")
    assert len(ports) == 2


def test_server_outlives_the_process_that_started_it_and_a_hang_up(plan: LaunchPlan) -> None:
    subprocess.run([sys.executable, "-c", _START, msgspec.json.encode(plan).decode()], check=True, timeout=200)
    (server,) = list_servers()
    os.kill(server.keeper.pid, signal.SIGHUP)
    time.sleep(0.3)
    assert server.is_ready()
    assert os.getpgid(server.keeper.pid) != os.getpgrp()  # a terminal's Ctrl-C does not reach it


@pytest.mark.usefixtures("careless_triton")
def test_interrupt_while_waiting_leaves_nothing(plan: LaunchPlan, tmp_path: Path) -> None:
    never = replace(plan, models=("tensorrt_llm", "nosuch"), supervision=Supervision(ready_timeout_s=200.0, exit_timeout_s=2))
    starter = psutil.Popen(
        [sys.executable, "-c", _START, msgspec.json.encode(never).decode()],
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    while len(family := starter.children(recursive=True)) < 4:
        assert starter.poll() is None, starter.stderr.read().decode()
        assert time.monotonic() < deadline, (family, Path(plan.log).read_text())
        time.sleep(0.05)
    starter.send_signal(signal.SIGINT)
    assert starter.wait(120) != 0
    assert _none_runs(family)
    assert list_servers() == []
    assert not (tmp_path / "temporary").exists()


def test_second_server_of_a_name_continues_the_log_and_knows_its_own_part(plan: LaunchPlan) -> None:
    Path(plan.log).write_text("of an earlier server\n")
    server = start(replace(plan, temporary_dir=None), "mine")
    assert server.log_start == len("of an earlier server\n")


def test_key_reaches_the_server_and_no_file(plan: LaunchPlan, tmp_path: Path) -> None:
    restricted = replace(plan, command=(*plan.command, *restriction_arguments(["trace"])), admin_key="k3y-k3y")
    server = start(restricted, "mine")
    (triton,) = [process for process in _family(server) if "tritonserver" in " ".join(words_of(process)[:2])]
    assert "--http-restricted-api=trace:triton-admin-key=k3y-k3y" in words_of(triton)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert Path(server.log) in files
    assert not any(b"k3y-k3y" in path.read_bytes() for path in files)


def test_name_of_a_live_server_is_refused(plan: LaunchPlan) -> None:
    server = start(plan, "mine")
    with pytest.raises(LaunchError, match=rf"--name mine: a server of that name runs \(process {server.keeper.pid}\)"):
        start(plan, "mine")
    assert server.is_ready()


@pytest.mark.parametrize("name", ["", "../up", "a b", "a/b", "-x", "x" * 65])
def test_name_that_is_not_a_file_name_is_refused(plan: LaunchPlan, name: str) -> None:
    with pytest.raises(LaunchError, match="--name"):
        start(plan, name)


def test_failed_start_shows_the_log_and_leaves_nothing(plan: LaunchPlan, tmp_path: Path) -> None:
    broken = make_program(tmp_path, "broken", "#!/bin/sh\necho 'E1121 no GPU'\nexit 1\n")
    with pytest.raises(LaunchError, match="ended while starting") as caught:
        start(replace(plan, command=(str(broken),)), "mine")
    assert "no GPU" in str(caught.value)
    assert list_servers() == []
    assert not (tmp_path / "temporary").exists()


def test_server_that_ended_by_itself_is_listed_as_dead_until_forgotten(plan: LaunchPlan, tmp_path: Path) -> None:
    server = start(plan, "mine")
    family = _family(server)
    (triton,) = [process for process in family if "tritonserver" in " ".join(words_of(process)[:2])]
    triton.kill()
    psutil.wait_procs(family, timeout=120)
    assert list_servers() == [server]
    assert not server.is_alive()
    assert not server.is_ready()
    assert Path(server.log).read_text().endswith("The server ended by itself, killed by SIGKILL.\n")
    forget(server)
    assert list_servers() == []
    assert not (tmp_path / "temporary").exists()
    stop(start(replace(plan, temporary_dir=None), "mine"))  # the name is free again


def test_stop_after_the_keeper_was_killed_waits_for_its_server(plan: LaunchPlan) -> None:
    server = start(plan, "mine")
    family = _family(server)
    os.kill(server.keeper.pid, signal.SIGKILL)
    psutil.wait_procs(family, timeout=120)
    stop(server)
    assert _none_runs(family)
    assert list_servers() == []


def test_another_process_with_the_same_number_is_not_mistaken_for_the_server(plan: LaunchPlan) -> None:
    ours = this_process()
    stale = BackgroundServer(
        "old", replace(ours, start_ticks=ours.start_ticks - 1), None, plan.addresses, plan.log, 1.0, plan.command
    )
    write_state(stale, state_dir() / "old.json")
    assert not stale.is_alive()
    stop(stale)  # an error would end this process
    assert list_servers() == []


def test_file_that_is_not_a_state_file_is_ignored() -> None:
    state_dir().mkdir(parents=True)
    (state_dir() / "strange.json").write_text("{")
    assert list_servers() == []
    assert (state_dir() / "strange.json").exists()


# ---- process identity


def test_process_identity_is_alive_until_the_process_ends() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    identity = identify(child.pid)
    assert identity is not None
    assert identity.is_alive()
    assert not replace(identity, start_ticks=1).is_alive()
    assert not replace(identity, boot_id="another").is_alive()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    assert not identity.is_alive()
    child.wait()
    assert not identity.is_alive()


def test_start_time_is_read_behind_a_name_with_blanks_and_parentheses(tmp_path: Path) -> None:
    program = make_program(tmp_path, "a) R (b", "#!/bin/sh\nsleep 1000 & wait\n")
    booted_s = psutil.boot_time()  # which the child's time is made from; it moves where the wall clock is set
    child = psutil.Popen([str(program)])
    try:
        identity = identify(child.pid)
        assert identity is not None
        assert identity.start_ticks == pytest.approx(identify(os.getpid()).start_ticks, abs=1e9)  # type: ignore[union-attr]
        assert identity == ProcessIdentity(child.pid, identity.start_ticks, identity.boot_id)
        assert identity.start_ticks / os.sysconf("SC_CLK_TCK") == pytest.approx(child.create_time() - booted_s, abs=2)
    finally:
        for process in [*child.children(), child]:
            process.kill()
        child.wait()
