"""What tests do while a run goes on."""

from __future__ import annotations

from collections.abc import Callable

from harness.run.live_statistics import Snapshot


def quiet(snapshot: Snapshot) -> None:
    """Look on."""


def once(condition: Callable[[Snapshot], bool], action: Callable[[], None]) -> Callable[[Snapshot], None]:
    """Do ``action`` when ``condition`` first holds."""
    pending = [action]

    def on_progress(snapshot: Snapshot) -> None:
        if pending and condition(snapshot):
            pending.pop()()

    return on_progress
