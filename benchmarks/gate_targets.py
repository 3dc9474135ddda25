"""Targets whose runs the gates judge: the processes of benchmarks/serving_processes.py, and loads and servers that change
slowly or rarely; and targets in overload.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from benchmarks.load_findings import TARGETS, Target, queue_target
from benchmarks.serving_processes import GAP_S, PROCESSES, Process, Times, Work, first_come, plain, poisson, queue
from reports.statistics.arrays import FloatArray

_RUN = 20_000  # requests for which sessions last


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


def replicas_in_turns(name: str, replicas: int, slow: int | None = None) -> Process:
    """Replicas that take requests in turns, each, or ``slow`` of them alone, with slow spells of its own: what is slow comes
    ``replicas`` apart.
    """

    def draw(n: int, rng: np.random.Generator) -> Work:
        levels = np.ones(n)
        for replica in range(replicas if slow is None else slow):
            own = levels[replica::replicas]
            rounds = own.size // 100 + 20
            lengths = np.stack([rng.geometric(1 / 200, rounds), rng.geometric(1 / 20, rounds)], axis=1).ravel()
            start = int(rng.integers(0, 2_000))
            levels[replica::replicas] = np.repeat(np.tile([1.0, 4.0], rounds), lengths)[start : start + own.size]
        return plain(poisson(n, rng), levels)

    return Process(name, draw, _at_level)


def _at_level(work: Work, rng: np.random.Generator) -> Times:
    ttft_ms: FloatArray = 20.0 * work.demand * rng.lognormal(0.0, 0.4, work.demand.size)
    return Times(work.arrivals_s, ttft_ms, ttft_ms + 2.0)


def sessions_of_own_speed(name: str, sessions: int) -> Process:
    """Conversations whose requests come in a random order, each as fast as its own replica, as long as the run lasts: a run
    of more than _RUN requests, which gives the true numbers, has others from each such part on.
    """

    def draw(n: int, rng: np.random.Generator) -> Work:
        return plain(poisson(n, rng), np.zeros(n))

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        n = work.arrivals_s.size
        session = rng.integers(0, sessions, n) + np.arange(n) // _RUN * sessions
        speeds = rng.lognormal(0.0, 0.5, sessions * (n // _RUN + 1))
        ttft_ms: FloatArray = 20.0 * speeds[session] * rng.lognormal(0.0, 0.3, n)
        return Times(work.arrivals_s, ttft_ms, ttft_ms + 2.0, session=session)

    return Process(name, draw, latencies)


def users_who_think(name: str, users: int, load: float) -> Process:
    """A closed loop of users at one server, who think for an exponential time before they ask again: ``load`` is the time that
    the server would be busy, did none wait.
    """

    def draw(n: int, rng: np.random.Generator) -> Work:
        return plain(rng.exponential(users * GAP_S, n), load * GAP_S * rng.exponential(1.0, n))

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        due_s, e2e_s = _after_thinking(work.arrivals_s, work.demand, users)
        return Times(due_s, e2e_s * 1e3 - 1e-3, e2e_s * 1e3)

    return Process(name, draw, latencies, settle=2_000)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _after_thinking(thinks_s: FloatArray, services_s: FloatArray, users: int) -> tuple[FloatArray, FloatArray]:
    """When each request is due, and how long it takes at one server, first come first served."""
    free_s, due_s, times_s, server_s = thinks_s[:users].copy(), np.empty(thinks_s.size), np.empty(thinks_s.size), 0.0
    for i in range(thinks_s.size):
        k = np.argmin(free_s)
        due_s[i] = free_s[k]
        server_s = max(server_s, due_s[i]) + services_s[i]
        times_s[i] = server_s - due_s[i]
        free_s[k] = server_s + thinks_s[(i + users) % thinks_s.size]
    return due_s, times_s


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
    replicas_in_turns("4 replicas in turns, slow spells", 4),
    replicas_in_turns("20 replicas in turns, slow spells", 20),
    replicas_in_turns("8 replicas in turns, one with slow spells", 8, slow=1),
    sessions_of_own_speed("40 sessions, each of its own speed", 40),
    users_who_think("closed loop of 30 who think, at 80 %", 30, 0.8),
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
