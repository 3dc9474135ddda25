"""The process that runs Locust's worker, in a process of its own: Locust would replace the sockets and threads of this one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from harness.distribution import link
from harness.distribution.link import LinkProcess
from tests.free_port import closed_port

pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")


def test_a_worker_that_is_given_up_while_it_waits_for_a_master_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_END_TIMEOUT_S", 60.0)  # after which it is killed
    waiting = LinkProcess("harness.distribution.locust_worker", ["127.0.0.1", str(closed_port())])
    waiting.close()
    assert waiting._process.returncode == 0
