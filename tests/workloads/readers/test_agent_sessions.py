"""What a recorded request of an agent waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.readers.agent_sessions import Span, waits_of


def _waits(*spans: tuple[str, int, int] | tuple[str, int, int, str]) -> list[tuple[int, ...]]:
    return waits_of([Span(span[0], span[3] if len(span) > 3 else None, span[1], span[2]) for span in spans])


@pytest.mark.parametrize(
    ("spans", "waits"),
    [
        ([("a", 0, 5), ("a", 7, 9), ("a", 9, 12)], [(), (0,), (1,)]),
        ([("a", 0, 5), ("b", 6, 8), ("a", 9, 10)], [(), (), (0,)]),  # sessions without a parent are apart
        ([("a", 0, 5), ("a", 3, 9), ("a", 4, 6)], [(), (), ()]),  # none had ended
        # two parallel sub-turns, which ended in the other order, and the turn after both
        ([("a", 0, 5), ("a", 6, 20), ("a", 7, 9), ("a", 21, 22)], [(), (0,), (0,), (1, 2)]),
        # a long one beside a chain of two: what comes after both waits for it, and for the chain's last
        ([("a", 0, 5), ("a", 6, 40), ("a", 7, 9), ("a", 12, 15), ("a", 41, 42)], [(), (0,), (0,), (2,), (1, 3)]),
        # a sub-agent of two turns: it waits for what began it, and the parent's next turn for its end
        (
            [("p", 0, 5), ("c", 6, 8, "p"), ("c", 9, 12, "p"), ("p", 13, 15), ("p", 16, 17)],
            [(), (0,), (1,), (0, 2), (3,)],
        ),
        # the parent goes on while the sub-agent works: only its first turn after the end joins
        (
            [("p", 0, 5), ("c", 6, 30, "p"), ("p", 7, 9), ("p", 31, 35), ("p", 36, 40)],
            [(), (0,), (0,), (2, 1), (3,)],
        ),
        # parallel turns of one sub-agent
        ([("p", 0, 5), ("c", 6, 20, "p"), ("c", 7, 9, "p"), ("p", 22, 23)], [(), (0,), (0,), (0, 1, 2)]),
        # the sub-agent began while its parent's answer still came, and so waited for none
        ([("p", 0, 9), ("c", 6, 12, "p"), ("p", 13, 15)], [(), (), (0, 1)]),
        # its parent is not in the trace, or is itself
        ([("c", 6, 12, "p"), ("d", 13, 15, "d")], [(), ()]),
        # a turn of no length, and one that begins as it ends
        ([("a", 3, 3), ("a", 3, 3), ("a", 3, 4)], [(), (0,), (1,)]),
    ],
)
def test_a_request_waits_for_what_had_ended_last(spans: list[tuple[str, int, int]], waits: list[tuple[int, ...]]) -> None:
    assert _waits(*spans) == waits


_SPANS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 30), st.integers(0, 12), st.sampled_from("abcd") | st.none()), max_size=14
)


@given(_SPANS)
def test_a_request_waits_for_earlier_ones_that_had_ended_and_for_each_of_its_session(
    drawn: list[tuple[str, int, int, str | None]],
) -> None:
    spans = sorted(
        (Span(session, parent, begin, begin + lasted) for session, begin, lasted, parent in drawn),
        key=lambda span: (span.begin_ns, span.end_ns),
    )
    waits = waits_of(spans)
    behind: list[set[int]] = []  # all that a request waits for, over others, too
    for number, others in enumerate(waits):
        assert len(set(others)) == len(others)
        assert all(other < number and spans[other].end_ns <= spans[number].begin_ns for other in others)
        behind.append(set(others).union(*(behind[other] for other in others)))
        own = {
            other
            for other in range(number)
            if spans[other].session == spans[number].session and spans[other].end_ns <= spans[number].begin_ns
        }
        assert own <= behind[number]
