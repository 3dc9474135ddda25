"""An event loop in a thread, whose tasks have all ended when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def running(loop: asyncio.AbstractEventLoop, stop_accepting: Callable[[], object]) -> Iterator[None]:
    """Run ``loop`` in a thread. At the end ``stop_accepting`` is called, all tasks are cancelled, and the loop is closed."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        stop_accepting()
        loop.run_until_complete(_end_all_tasks())
        loop.close()


async def _end_all_tasks() -> None:
    """Also those that begin meanwhile, for a connection that was accepted just before: each is started, then cancelled."""
    own = {asyncio.current_task()}
    await asyncio.sleep(0.0)
    while left := asyncio.all_tasks() - own:
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        await asyncio.sleep(0.0)
