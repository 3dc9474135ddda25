"""When a user of a closed loop is free to send again."""

from __future__ import annotations

from harness.records.record import Outcome

_WAIT_NS = 100_000_000


def free_again_ns(done_ns: int, outcome: Outcome | None) -> int:
    """When a user is free whose request ended at ``done_ns`` with ``outcome`` (None: as it should): at once, as a rule.

    Who finds nobody listening tries again after 0.1 s: users who did so at once would send all that was prepared, in
    seconds, to a server that is about to be there again, and take the machine from it.
    """
    return done_ns + _WAIT_NS if outcome is Outcome.CONNECT else done_ns
