"""Which calls the sweep ends: those that do not go on, and where memory is short, those whose message is long in coming."""

from __future__ import annotations

import asyncio

import pytest

from serving.proxy import call_sweep
from serving.proxy.call_sweep import CallProgress, CallSweep

_LONG_S = 30.0


def _ended(timeout_s: float, memory: int, *calls: tuple[bool, float | None, float | None]) -> list[str | None]:
    """Why each of ``calls`` was ended, of a process with ``memory`` bytes where 1,000 are the most.

    A call is whether it has received a message, and for how many s it has been receiving and sending.
    """

    async def wait(sweep: CallSweep, *call: float | None) -> str | None:
        scope = asyncio.timeout(None)
        with sweep.watching(scope) as progress:
            try:
                async with scope:
                    _set(progress, *call)
                    await asyncio.sleep(0.5)
            except TimeoutError:
                return progress.ended_because
        return None

    async def run() -> list[str | None]:
        sweep = CallSweep(timeout_s, 1000)
        task = asyncio.create_task(sweep.run())
        try:
            return await asyncio.gather(*(wait(sweep, *call) for call in calls))
        finally:
            task.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_sweep, "memory_bytes", lambda: memory)
        return asyncio.run(run())


def _set(progress: CallProgress, has_received: float | None, receiving_s: float | None, sending_s: float | None) -> None:
    now = asyncio.get_running_loop().time()
    progress.has_received = bool(has_received)
    progress.receiving_since = None if receiving_s is None else now - receiving_s
    progress.sending_since = None if sending_s is None else now - sending_s


def test_call_without_a_message_and_one_that_is_not_read_end_in_time() -> None:
    unread, silent = "the client read nothing for 20 s", "no whole message within 20 s"
    assert _ended(20, 1, (False, 10, None), (True, None, 10)) == [None, None]
    assert _ended(20, 1, (False, _LONG_S, None), (True, None, _LONG_S)) == [silent, unread]


def test_stream_may_wait_for_its_next_message_and_its_next_answer() -> None:
    assert _ended(20, 1, (True, _LONG_S, None), (True, None, None)) == [None, None]


def test_where_memory_is_short_calls_end_whose_message_is_long_in_coming() -> None:
    first, stream, fresh = _ended(1000, 1001, (False, _LONG_S, None), (True, _LONG_S, None), (False, -_LONG_S, None))
    assert (first, stream, fresh) == ("the proxy has too many long messages at a time; try again", None, None)
    assert _ended(1000, 1001, (True, _LONG_S, None), (True, None, None)) == [first, None]  # no others are left


def test_memory_that_is_not_given_back_ends_no_more_calls() -> None:
    """Else every stream that waits for an answer would end, forever."""

    async def run() -> str | None:
        sweep = CallSweep(1000, 1000)
        task = asyncio.create_task(sweep.run())
        await asyncio.sleep(0.3)
        scope = asyncio.timeout(None)
        with sweep.watching(scope) as progress:
            async with scope:
                _set(progress, False, _LONG_S, None)
                await asyncio.sleep(0.3)
        task.cancel()
        return progress.ended_because

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_sweep, "memory_bytes", lambda: 5000)
        assert asyncio.run(run()) is None
