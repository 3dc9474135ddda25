"""Whether the target runs on this machine, which decides how many cores the client may use."""

from __future__ import annotations

import socket

import pytest

from bench_cli.measurement.client_size import is_this_machine


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", socket.gethostname()])
def test_names_of_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "203.0.113.7", "nosuch.invalid", "", "\x00", "a" * 300])
def test_names_of_other_machines_and_of_none(host: str) -> None:
    assert not is_this_machine(host)
