from __future__ import annotations

import multiprocessing

from harness.control import Control, Phase


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
