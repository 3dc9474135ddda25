"""The file that a server logs to."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.log_file import free_log, open_log
from serving.launch.server import Server

_SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def _server(log: Path) -> Server:
    return Server(_SLEEP, dict(os.environ), choose_addresses(), log)


def test_two_servers_have_logs_of_their_own_and_a_name_is_free_when_its_server_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "triton_log.txt"
    assert free_log(log) == log
    with _server(free_log(log)):
        assert free_log(log) == tmp_path / "triton_log-2.txt"
        with _server(free_log(log)):
            assert free_log(log) == tmp_path / "triton_log-3.txt"
        with pytest.raises(LaunchError, match="another server logs to it; name another file"):
            _server(log)
    assert free_log(log) == log
    assert stat.S_IMODE(log.stat().st_mode) & 0o077 == 0


def test_a_log_continues_that_of_an_earlier_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\n")
    with _server(log) as server:
        assert server.log_start == len("earlier\n")
    assert log.read_text().startswith("earlier\n")


def test_a_symbolic_link_is_not_written_through(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("as it was")
    (tmp_path / "triton_log.txt").symlink_to(target)
    with pytest.raises(LaunchError, match="it is a symbolic link"):
        _server(tmp_path / "triton_log.txt")
    assert target.read_text() == "as it was"


def test_a_device_may_be_the_log_and_a_folder_that_is_absent_is_named(tmp_path: Path) -> None:
    open_log(Path("/dev/null")).close()
    with pytest.raises(LaunchError, match="No such file or directory"):
        open_log(tmp_path / "absent" / "log")
