from __future__ import annotations

import getpass
import os
import socket
from importlib.metadata import version
from pathlib import Path

import msgspec

from harness.run.environment import describe_environment


def test_description_is_json_and_has_the_versions_that_are_installed() -> None:
    described = msgspec.to_builtins(describe_environment())
    assert described["packages"]["grpcio"] == version("grpcio")
    assert "vllm-that-does-not-exist" not in described["packages"]
    assert described["event_reader"] in ("compiled", "interpreted")
    assert described["cores"] == len(os.sched_getaffinity(0))
    assert 2**28 < described["memory_bytes"] < 2**50


def test_description_names_neither_the_machine_nor_its_user() -> None:
    words = set(msgspec.json.encode(describe_environment()).decode().replace('"', " ").replace(",", " ").split())
    assert not {socket.gethostname(), getpass.getuser(), str(Path.home())} & words
