"""Targets whose runs the gates judge: the processes of benchmarks/serving_processes.py, and loads and servers that change
slowly or rarely; and targets in overload.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.load_findings import TARGETS, Target, queue_target
from benchmarks.serving_processes import GAP_S, PROCESSES, Process, Times, Work, first_come, plain, poisson, queue
from reports.statistics.arrays import FloatArray


def drifting_load(name: str, load: float, swing: float, period: int) -> Process:
    """One server whose arrivals come at a rate that swings by ± ``swing`` once in ``period`` requests, as day and night do."""

    def draw(n: int, rng: np.random.Generator) -> Work:
        rates = 1.0 + swing * np.sin(2.0 * np.pi * (np.arange(n) / period + rng.random()))
        return plain(np.cumsum(rng.exponential(GAP_S, n) / rates), load * GAP_S * rng.exponential(1.0, n))

    return Process(name, draw, first_come(1), settle=2_000 if load < 1.0 else 0)


def pauses(name: str, every_s: float, lasts_s: float) -> Process:
    """A fast target that stops at random times, once in ``every_s`` on average: what arrives meanwhile waits for its end."""

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        arrivals_s = work.arrivals_s
        starts_s = np.cumsum(rng.exponential(every_s, int(2.0 * arrivals_s[-1] / every_s) + 20))
        last = np.searchsorted(starts_s, arrivals_s) - 1
        left_s = np.where(last >= 0, starts_s[np.maximum(last, 0)] + lasts_s - arrivals_s, 0.0)
        ttft_ms: FloatArray = 20.0 * rng.lognormal(0.0, 0.3, arrivals_s.size) + 1e3 * np.maximum(left_s, 0.0)
        return Times(arrivals_s, ttft_ms, ttft_ms + 2.0)

    return Process(name, lambda n, rng: plain(poisson(n, rng), np.zeros(n)), latencies)


def long_answers(name: str, median_s: float) -> Process:
    """A target without a queue whose answers take ``median_s`` (lognormal, σ = 1): longer than 300 requests take to send."""

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        n = work.arrivals_s.size
        ttft_ms: FloatArray = 20.0 * rng.lognormal(0.0, 0.5, n)
        return Times(work.arrivals_s, ttft_ms, ttft_ms + 1e3 * median_s * rng.lognormal(0.0, 1.0, n))

    return Process(name, lambda n, rng: plain(poisson(n, rng), np.zeros(n)), latencies)


def _modulated(load: float) -> Process:
    """Eight servers whose arrivals alternate between 40 % and 160 % of the mean rate."""

    def draw(n: int, rng: np.random.Generator) -> Work:
        lengths = rng.geometric(1 / 200, n // 100 + 100)
        rates = np.where((np.arange(lengths.size) + rng.integers(2)) % 2, 1.6, 0.4)
        arrivals_s = np.cumsum(rng.exponential(GAP_S, n) / np.repeat(rates, lengths)[:n])
        return plain(arrivals_s, rng.exponential(load * GAP_S * 8, n))

    return Process("", draw, first_come(8))


def _pausing(load: float) -> Process:
    """One server, of which one service in 4,000 takes 2 s longer."""

    def draw(n: int, rng: np.random.Generator) -> Work:
        services_s = load * GAP_S * rng.exponential(1.0, n) + np.where(rng.random(n) < 1 / 4_000, 2.0, 0.0)
        return plain(poisson(n, rng), services_s)

    return Process("", draw, first_come(1))


STATIONARY = (
    *PROCESSES,
    drifting_load("drifting load, M/M/1 at 50 %", 0.5, 0.5, 1_500),
    drifting_load("slowly drifting load, M/M/1 at 40 %", 0.4, 0.9, 8_000),
    pauses("pauses of 1 s every 40 s", 40.0, 1.0),
    pauses("pauses of 0.3 s every 8 s", 8.0, 0.3),
    long_answers("answers of 6 s", 6.0),
)

OVERLOADED = (
    *TARGETS,
    queue_target("M/lognormal 4/1", 4.0),
    queue_target("M/Pareto 2.5/1", np.inf),
    Target("G/M/1", lambda load: replace(queue("", load, shape=0.25), settle=0), lambda _: 1.0 / GAP_S),
    Target("modulated arrivals", _modulated, lambda _: 1.0 / GAP_S),
    Target("drifting load", lambda load: drifting_load("", load, 0.5, 1_500), lambda _: 1.0 / GAP_S),
    Target("slowly drifting load", lambda load: drifting_load("", load, 0.5, 8_000), lambda _: 1.0 / GAP_S),
    Target("pauses", _pausing, lambda _: 1.0 / GAP_S),
)
