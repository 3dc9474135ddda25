"""Programs that a test interrupts."""

from __future__ import annotations

import signal


def default_sigint() -> None:
    """``preexec_fn`` of a program that gets SIGINT: where a shell runs the tests in the background (``make test &``), SIGINT is
    ignored, and a program inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
