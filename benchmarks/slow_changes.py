"""Simulated targets whose load or services change more slowly than a run is long, for checks of comparisons.

The load by day and night is part of a schedule, so that two runs can share it; slow spells are the server's own, and come in
every run at other times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.serving_processes import GAP_S, Process, Times, Work, queue
from reports.statistics.arrays import FloatArray

_SETTLE = 1_000  # requests


@dataclass(frozen=True)
class Spells:
    """Alternating spells of a server, geometric with these means in requests; in the ``slow`` ones it takes ``factor`` times as
    long.
    """

    fast: float
    slow: float
    factor: float

    def levels(self, requests: int, rng: np.random.Generator) -> FloatArray:
        """The level of each request, 1 or ``factor``, shape [requests], from a random time on."""
        rounds = int(3 * requests / (self.fast + self.slow)) + 50
        lengths = np.stack([rng.geometric(1.0 / mean, rounds) for mean in (self.fast, self.slow)], axis=1).ravel()
        start = int(rng.integers(0, int(10 * (self.fast + self.slow))))
        levels: FloatArray = np.repeat(np.tile([1.0, self.factor], rounds), lengths)[start : start + requests]
        return levels

    def opposite_throughout(self, requests: int) -> float:
        """How probable it is that each of two runs sees one spell alone, and not the same kind."""
        in_slow = self.slow / (self.fast + self.slow)
        alone_fast, alone_slow = ((1.0 - 1.0 / mean) ** (requests - 1) for mean in (self.fast, self.slow))
        return 2.0 * (1.0 - in_slow) * alone_fast * in_slow * alone_slow


def day_and_night(name: str, load: float, day_requests: float, depth: float = 0.5) -> Process:
    """M/M/1 at ``load`` on average, whose rate of arrivals is a sine of this many requests, ``depth`` of the mean high."""
    still = queue(name, load)

    def draw(n: int, rng: np.random.Generator) -> Work:
        due = np.cumsum(rng.exponential(1.0, n))  # in mean gaps, of a Poisson process of rate 1
        phase = rng.uniform(0.0, 2.0 * np.pi)
        times = np.linspace(0.0, 2.0 * due[-1] + day_requests, 100_001)
        swing = depth * day_requests / (2.0 * np.pi)
        expected = times + swing * (np.cos(phase) - np.cos(2.0 * np.pi * times / day_requests + phase))
        return Work(GAP_S * np.interp(due, expected, times), *_lengths(n), load * GAP_S * rng.exponential(1.0, n))

    return Process(name, draw, still.latencies, _SETTLE)


def slow_services(name: str, load: float, spells: Spells) -> Process:
    """M/M/1 at ``load`` in fast spells, whose services take longer in slow ones."""
    still = queue(name, load)

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        slowed = work.demand * spells.levels(work.demand.size, rng)
        return still.latencies(Work(work.arrivals_s, work.input_tokens, work.output_tokens, slowed), rng)

    return Process(name, still.draw, latencies, _SETTLE)


def slow_answers(name: str, spells: Spells, noise: float = 0.4) -> Process:
    """Independent latencies, which are longer in slow spells: no queue shows that the server is slow."""
    still = queue("", 0.5)

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        n = work.demand.size
        ttft_ms = 20.0 * spells.levels(n, rng) * rng.lognormal(0.0, noise, n)
        return Times(work.arrivals_s, ttft_ms, ttft_ms + 50.0 * rng.lognormal(0.0, noise, n))

    return Process(name, still.draw, latencies)


def _lengths(n: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Input and output tokens, the same of every request."""
    return np.full(n, 8, dtype=np.int64), np.full(n, 8, dtype=np.int64)


_SHORT, _LONG, _LONGEST = Spells(200, 50, 4.0), Spells(500, 500, 1.5), Spells(2_000, 2_000, 1.3)
SPELLS = {"200 and 50, × 4": _SHORT, "500 and 500, × 1.5": _LONG, "2,000 and 2,000, × 1.3": _LONGEST}

SLOW_CHANGES = (
    day_and_night("day of 700, M/M/1 at 60 %", 0.6, 700.0),
    day_and_night("day of 1,400, M/M/1 at 60 %", 0.6, 1_400.0),
    day_and_night("day of 3,000, M/M/1 at 60 %", 0.6, 3_000.0),
    *(slow_services(f"services in spells of {name}", 0.5, spells) for name, spells in SPELLS.items()),
    *(slow_answers(f"answers in spells of {name}", spells) for name, spells in SPELLS.items()),
)
