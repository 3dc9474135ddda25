from __future__ import annotations

import multiprocessing

import pytest

from harness.clients.protocol import ConnectionUsage
from harness.run.shared_state import Control, Phase


def test_phase_only_ever_grows() -> None:
    control = Control(multiprocessing.get_context("spawn"), workers=1)
    assert control.phase is Phase.RUN
    control.advance(Phase.ABORT)
    control.advance(Phase.DRAIN)
    assert control.phase is Phase.ABORT


def test_sent_is_the_sum_over_workers() -> None:
    control = Control(multiprocessing.get_context("spawn"), workers=3)
    assert control.sent == 0
    for worker in (0, 2, 2):
        control.count_sent(worker)
    assert control.sent == 3


@pytest.mark.parametrize("usage", [ConnectionUsage(2, 5, 7, 2**40, 2**39, 2**38), ConnectionUsage(1, 1)])
def test_what_a_worker_tells_of_its_connections_is_what_the_parent_hears(usage: ConnectionUsage) -> None:
    control = Control(multiprocessing.get_context("spawn"), workers=3)
    control.tell_usage(1, usage)
    assert [control.usage_of(worker) for worker in range(3)] == [None, usage, None]
