"""The process that runs Locust's master, in a process of its own: Locust would replace the sockets and threads of this one."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")

_ADMITTED_WHILE_COUNTS_ARE_PASSED_ON = """
import locust
from types import SimpleNamespace
import gevent
from harness.distribution import locust_master
from locust.runners import STATE_INIT

runner = SimpleNamespace(clients={}, peers={})

class Bad:
    def pass_on(self):
        if "w" in runner.peers:
            raise gevent.GreenletExit
        runner.peers["w"], runner.clients["w"] = None, SimpleNamespace(state=STATE_INIT)

master = object.__new__(locust_master._Master)
master._runner, master._bad, master._silent, master._left = runner, Bad(), set(), set()
master._frames = SimpleNamespace(send_if_open=print)
gevent.spawn(master._watch).join()
"""


def test_a_worker_that_connects_while_dropped_messages_are_reported_has_not_left() -> None:
    command = [sys.executable, "-c", _ADMITTED_WHILE_COUNTS_ARE_PASSED_ON]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
