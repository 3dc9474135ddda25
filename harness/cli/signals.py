"""What SIGINT and SIGTERM mean to a verb that has something running."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Both raise KeyboardInterrupt, so that everything is put away; also where a shell's `&` had SIGINT ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
