"""Handling of SIGINT and SIGTERM: both raise KeyboardInterrupt, also where Python would lose it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType

_EXTENSION_LOADING = (ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__)
_RESEND_DELAY_S = 0.01
# The signal to send again; one per process, as handlers are. A second Ctrl-C replaces it, so that no clean-up is interrupted.
_pending: object = None


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler: raise KeyboardInterrupt; during the loading of an extension module, as soon as that is done.

    An extension module that imports others while it is loaded drops an exception from there, or raises ImportError instead.
    """
    while frame is not None:
        if frame.f_code in _EXTENSION_LOADING:
            _send_again(number)
            return
        frame = frame.f_back
    global _pending
    _pending = None
    raise KeyboardInterrupt


def interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """``sys.unraisablehook``: raise a KeyboardInterrupt that cannot be caught, as in a finalizer, once more."""
    if lost.exc_type is KeyboardInterrupt:
        _send_again(signal.SIGINT)
    else:
        sys.__unraisablehook__(lost)


def _send_again(number: int) -> None:
    """Takes no lock, since a handler may be interrupted by the next signal's handler."""
    global _pending
    own = _pending = object()

    def send() -> None:
        if _pending is own:
            os.kill(os.getpid(), number)

    timer = threading.Timer(_RESEND_DELAY_S, send)
    timer.daemon = True
    timer.start()


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, so that every clean-up runs; also where a shell's `&` ignored SIGINT."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
