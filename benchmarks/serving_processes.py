"""Simulated serving engines: latencies of requests that share an engine's steps, for checks of the statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import FloatArray


@dataclass(frozen=True)
class Work:
    """A schedule: arrivals (s) and output lengths (tokens), shape [requests] each."""

    arrivals_s: FloatArray
    output_tokens: NDArray[np.int64]


@dataclass(frozen=True)
class InFlightBatching:
    """An engine that advances every sequence of its batch by a token in each step, and lets new ones in between steps.

    A step takes ``step_s``, ``sequence_s`` more for each sequence and ``prefill_s`` for each new one, times lognormal noise of
    the standard deviation ``noise``. At most ``slots`` sequences run; the others wait in order.
    """

    slots: int = 64
    step_s: float = 0.008
    sequence_s: float = 0.0002
    prefill_s: float = 0.002
    noise: float = 0.05
    mean_tokens: int = 100

    @property
    def capacity_per_s(self) -> float:
        """Requests per second of a full batch, but for prefills."""
        return self.slots / (self.mean_tokens * (self.step_s + self.sequence_s * self.slots))

    def work(self, requests: int, load: float, rng: np.random.Generator) -> Work:
        """Poisson arrivals at ``load`` of the capacity, and geometric output lengths."""
        gaps_s = rng.exponential(1.0 / (load * self.capacity_per_s), requests)
        return Work(np.cumsum(gaps_s), rng.geometric(1.0 / self.mean_tokens, requests))

    def latencies_ms(self, work: Work, rng: np.random.Generator) -> FloatArray:
        """E2E latency of each request, shape [requests]."""
        arrivals_s, total = work.arrivals_s, work.arrivals_s.size
        latencies_s = np.empty(total)
        running, remaining = np.zeros(0, np.int64), np.zeros(0, np.int64)
        now_s, admitted, ended = 0.0, 0, 0
        while ended < total:
            if not running.size and arrivals_s[admitted] > now_s:
                now_s = float(arrivals_s[admitted])
            waiting = int(np.searchsorted(arrivals_s, now_s, "right")) - admitted
            new = min(waiting, self.slots - running.size)
            running = np.concatenate([running, np.arange(admitted, admitted + new)])
            remaining = np.concatenate([remaining, work.output_tokens[admitted : admitted + new]])
            admitted += new
            took_s = self.step_s + self.sequence_s * running.size + self.prefill_s * new
            now_s += took_s * rng.lognormal(0.0, self.noise)
            remaining -= 1
            finished = remaining == 0
            latencies_s[running[finished]] = now_s - arrivals_s[running[finished]]
            ended += int(finished.sum())
            running, remaining = running[~finished], remaining[~finished]
        return latencies_s * 1e3
