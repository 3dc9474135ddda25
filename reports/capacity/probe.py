"""What a search for capacity measured at one load: the requests beyond each limit.

A limit on a percentile is a limit on a share: p99 TTFT is at most 500 ms where at most 1 % of the requests take longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.capacity.stability import falls_behind
from reports.metrics.in_flight import QueueCourse

ANSWERS = 8.0
"""The answers, one after the other, that a probe lasts for at least to show whether its queue grows: for one or two of them the
number in the system rises at any load.
"""

ONE_PROBE = 0.003
"""The probability that a probe at a load of capacity or less counts as overloaded."""


@dataclass(frozen=True, slots=True)
class Violations:
    """The requests of a probe beyond one limit: ``above`` of ``n``, without the ramp. A failed request is beyond every limit,
    except one on ITL, whose ``n`` are tokens.

    ``effect`` is their design effect within the probe (Kish), at least 1; None where the requests are too few to show it.
    ``none_at_capacity`` is at least the probability that a probe like this one has none of them at a load of capacity or more.
    ``remaining`` is the share of their variance that a control variate leaves, 1 without one; ``explained`` is the number that
    it took off ``above``. ``stalled`` says that after an answer within the limit, none came for longer while one waited.
    """

    n: int
    above: int
    effect: float | None
    none_at_capacity: float = 1.0
    remaining: float = 1.0
    explained: int = 0
    stalled: bool = False

    @property
    def share(self) -> float | None:
        """From 0 to 1; None without a request."""
        return self.above / self.n if self.n else None


@dataclass(frozen=True, slots=True)
class Control:
    """What a simulation of a probe's own schedule has beyond one limit, which the ``allowed`` share may exceed
    (reports/capacity/control.py).

    ``measured`` and ``simulated`` are requests beyond the limit in blocks of the same requests, shape [blocks] each. ``share``
    is the simulated share of the whole probe, ``expected`` its mean over schedules of other seeds at the same load.
    """

    allowed: float
    measured: tuple[int, ...]
    simulated: tuple[int, ...]
    share: float
    expected: float


@dataclass(frozen=True, slots=True)
class Probe:
    """A run of a search at one ``load``: requests/s that arrive, or users in a closed loop.

    ``violations`` are in the order of the search's limits. ``requests`` were sent, the ramp included: the cost. ``queue`` is
    how the number in the system moved; None for a closed loop, and where it is unknown. ``gave_up`` says that the probe ended
    early since a limit could not be met any more. ``needs`` is how many requests show whether the queue grows, where those of
    this probe are too few; else 0. ``controls`` are in the order of the limits, too; empty where nothing was simulated.
    """

    load: float
    requests: int
    violations: tuple[Violations, ...]
    queue: QueueCourse | None = None
    gave_up: bool = False
    needs: int = 0
    controls: tuple[Control, ...] = ()

    @property
    def overloaded(self) -> bool:
        """Whether its load is too high for the target to keep up with, by this probe alone. Its shares are then no points of a
        curve.
        """
        return self.gave_up or (self.queue is not None and falls_behind([self.queue], ONE_PROBE))
