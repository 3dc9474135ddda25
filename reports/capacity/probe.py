"""What a search for capacity measured at one load: the requests beyond each limit.

A limit on a percentile is a limit on a share: p99 TTFT is at most 500 ms where at most 1 % of the requests take longer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violations:
    """The requests of a probe beyond one limit: ``above`` of ``n``, without the ramp. A failed request is beyond every limit.

    ``effect`` is their design effect within the probe (Kish), at least 1; None where the requests are too few to show it.
    """

    n: int
    above: int
    effect: float | None

    @property
    def share(self) -> float | None:
        """From 0 to 1; None without a request."""
        return self.above / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class Probe:
    """A run of a search at one ``load``: requests/s that arrive, or users in a closed loop.

    ``violations`` are in the order of the search's limits. ``requests`` were sent, the ramp included: the cost. ``overloaded``
    says that the queue grew, or that the probe ended early since a limit could not be met any more; its shares are then
    no points of a curve, but the load is too high.
    """

    load: float
    requests: int
    violations: tuple[Violations, ...]
    overloaded: bool
