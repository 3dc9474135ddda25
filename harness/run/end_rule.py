"""The seam of an early end: a rule over the records that came so far, and the load's moment, may end a run.

What is due before the end is sent and awaited, and nothing is due afterwards: the run is that of a shorter --duration, so that
no request is left out since it took long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bench_records.record import Record


@dataclass(frozen=True, slots=True)
class RunMoment:
    """A moment of a run, ns since its start. All that ended before it by a second is recorded, unless records are ``behind``,
    as they may be where workers are on other hosts, or one has died.

    ``answered`` is the number of requests whose first response has come; None is unknown.
    """

    elapsed_ns: int
    answered: int | None
    behind: bool


class EndRule(Protocol):
    """Called in the coordinator's process alone. Neither method may take long: records wait meanwhile."""

    def add(self, record: Record) -> None:
        """Take the record of an exchange that has ended."""
        ...

    def reason(self, moment: RunMoment) -> str | None:
        """Why the run ends now; None where it goes on."""
        ...
