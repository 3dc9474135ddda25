from __future__ import annotations

import multiprocessing

import pytest

from harness.clients.protocol import ConnectionUsage
from harness.run.shared_state import Command, Control


def test_command_only_ever_grows() -> None:
    control = Control(multiprocessing.get_context("spawn"), workers=1)
    assert control.command is Command.RUN
    control.advance(Command.ABORT)
    control.advance(Command.DRAIN)
    assert control.command is Command.ABORT


def test_sent_is_the_sum_over_workers() -> None:
    control = Control(multiprocessing.get_context("spawn"), workers=3)
    assert control.sent == 0
    for worker in (0, 2, 2):
        control.of_worker(worker).count_sent()
    assert control.sent == 3


@pytest.mark.parametrize("usage", [ConnectionUsage(2, 5, 7, 2**40, 2**39, 2**38), ConnectionUsage(1, 1)])
def test_usage_set_by_a_worker_is_read_by_the_parent(usage: ConnectionUsage) -> None:
    control = Control(multiprocessing.get_context("spawn"), workers=3)
    control.of_worker(1).set_usage(usage)
    assert [control.usage_of(worker) for worker in range(3)] == [None, usage, None]
