"""What SIGINT and SIGTERM mean to a verb."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType

_MAKES_EXTENSION = (ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__)
_AGAIN_S = 0.01
_to_come: object = None  # the one signal that is to be sent again: pressed twice, it must not break off a clean-up


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler: raise KeyboardInterrupt; while an extension module is made, as soon as that is done.

    Such a module may import others meanwhile; it loses an exception that comes out of there, or says ImportError in its place.
    """
    while frame is not None:
        if frame.f_code in _MAKES_EXTENSION:
            _send_again(number)
            return
        frame = frame.f_back
    global _to_come
    _to_come = None
    raise KeyboardInterrupt


def interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """What Python calls for an exception that nobody can catch, in a finalizer say: KeyboardInterrupt comes once more."""
    if lost.exc_type is KeyboardInterrupt:
        _send_again(signal.SIGINT)
    else:
        sys.__unraisablehook__(lost)


def _send_again(number: int) -> None:
    """No lock is taken, for a handler may be interrupted by the next signal's."""
    global _to_come
    mine = _to_come = object()

    def send() -> None:
        if _to_come is mine:
            os.kill(os.getpid(), number)

    later = threading.Timer(_AGAIN_S, send)
    later.daemon = True
    later.start()


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Both raise KeyboardInterrupt, so that everything is put away; also where a shell's `&` had SIGINT ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
