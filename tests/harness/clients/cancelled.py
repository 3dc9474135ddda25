"""What a request that its caller cancels leaves to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from harness.clients.protocol import AnswerEnd, OnResponses, end_at_cancellation


async def end_when_cancelled(call: Callable[[OnResponses], Awaitable[object]]) -> AnswerEnd | None:
    """Cancel ``call`` at its first response; returns what it then leaves, None where it ended before or left nothing."""
    try:
        async with asyncio.timeout(None) as scope:
            now = asyncio.get_running_loop().time
            await call(lambda times_ns, bodies: scope.reschedule(now()))
    except TimeoutError as expired:
        return end_at_cancellation(expired)
    return None


def assert_has_times(end: AnswerEnd | None) -> None:
    assert end is not None
    assert end.written_ns is not None
    assert end.head_ns is not None
    assert end.written_ns <= end.head_ns
