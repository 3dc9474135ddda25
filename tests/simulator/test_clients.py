"""The clients of a simulation: when a turn that waits for several answers is sent."""

from __future__ import annotations

from simulator.clients import Turns


def test_a_turn_that_joins_others_is_sent_after_the_last_answer() -> None:
    turns = Turns([0.5, None, None, 20.0, None], [None, 0, 0, 0, 3], [0.0, 1.0, 2.0, 3.0, 0.0], [(), (), (), (1, 2), ()])
    assert turns.first() == [(0.5, 0)]
    assert turns.answered(1.0, 0) == [(2.0, 1), (3.0, 2)]
    assert turns.answered(19.0, 1) == []
    assert turns.answered(5.0, 2) == [(22.0, 3)]  # the later answer counts, whichever is reported first
    assert turns.answered(23.0, 3) == [(23.0, 4)]


def test_a_turn_is_not_sent_before_its_own_time() -> None:
    turns = Turns([0.0, None, 20.0], [None, 0, 0], [0.0, 1.0, 3.0], [(), (), (1,)])
    assert turns.answered(1.0, 0) == [(2.0, 1)]
    assert turns.answered(4.0, 1) == [(20.0, 2)]
