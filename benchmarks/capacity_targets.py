"""Simulated servers whose capacity is known: the highest rate at which each limit is exceeded by at most its share of requests.

Services take 1 s on average, so that rates are shares of what the server can take. Capacity is
that of long simulations, except where theory has it.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numba import njit

from benchmarks.serving_processes import Engine, Times, time_in_system
from reports.capacity.limits import Limit, limit_set
from reports.metrics.catalogue import TTFT
from reports.statistics.arrays import FloatArray

_SEEDS, _BISECTIONS = 8, 12
_SETTLE = 0.02  # of a long simulation

Draw = Callable[[float, int, np.random.Generator], Times]


@dataclass(frozen=True)
class Truth:
    """The capacity with its standard error, 0 where it is exact."""

    capacity: float
    error: float


@dataclass(frozen=True)
class CapacityTarget:
    """A server: ``draw`` takes a load, in requests/s, and a number of requests, and gives when they arrive and how long they
    take, from an idle server on. ``slos`` are as for the command line. ``loads`` hold the capacity; a search starts at
    ``first_load``. ``heavy``: services have a heavy tail. ``long_run``: requests of a simulation that gives the capacity.
    """

    name: str
    draw: Draw
    slos: tuple[str, ...]
    first_load: float
    loads: tuple[float, float]
    heavy: bool = False
    long_run: int = 2_000_000
    exact: float | None = None

    @property
    def limits(self) -> tuple[Limit, ...]:
        return limit_set(None, self.slos).limits

    def values_ms(self, times: Times) -> FloatArray:
        """What each limit covers, shape [limits, requests]."""
        return np.stack([times.ttft_ms if limit.requirement.metric is TTFT else times.e2e_ms for limit in self.limits])

    def excess(self, values_ms: FloatArray) -> float:
        """The largest share beyond a limit, over the allowed one, of values of shape [limits, requests]."""
        return max(
            float((each > limit.requirement.limit).mean()) / limit.allowed
            for each, limit in zip(values_ms, self.limits, strict=True)
        )

    def truth(self) -> Truth:
        """From theory, or from simulations, of which the result is kept in a file of the temporary folder."""
        if self.exact is not None:
            return Truth(self.exact, 0.0)
        path = Path(tempfile.gettempdir()) / "capacity_targets.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        key = f"{self.name} {self.slos} {self.loads} {self.long_run}"
        if key not in known:
            found = np.array([self._crossing(seed) for seed in range(_SEEDS)])
            known[key] = [float(found.mean()), float(found.std(ddof=1)) / math.sqrt(_SEEDS)]
            path.write_text(json.dumps(known))
        return Truth(*known[key])

    def _crossing(self, seed: int) -> float:
        """By bisection with the same random numbers at each load."""
        low, high = self.loads
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2.0
            values = self.values_ms(self.draw(middle, self.long_run, np.random.default_rng([2**34, seed])))
            exceeded = self.excess(values[:, int(_SETTLE * self.long_run) :]) > 1.0
            low, high = (low, middle) if exceeded else (middle, high)
        return (low + high) / 2.0


def _queue(services: Callable[[int, np.random.Generator], FloatArray], servers: int = 1, bursts: bool = False) -> Draw:
    """First come, first served. ``bursts``: gaps have a squared coefficient of variation of 3."""

    def draw(load: float, n: int, rng: np.random.Generator) -> Times:
        gaps = rng.exponential(1.0, n)
        if bursts:
            gaps = np.where(rng.random(n) < 0.2, 3.0, 0.5) * gaps
        arrivals_s = np.cumsum(gaps) / load
        return _unstreamed(arrivals_s, time_in_system(arrivals_s, servers * services(n, rng), servers))

    return draw


def _unstreamed(arrivals_s: FloatArray, times_s: FloatArray) -> Times:
    return Times(arrivals_s, times_s * 1e3, times_s * 1e3)


def _exponential(n: int, rng: np.random.Generator) -> FloatArray:
    return rng.exponential(1.0, n)


def _constant(n: int, rng: np.random.Generator) -> FloatArray:
    return np.ones(n)


def _pareto(n: int, rng: np.random.Generator) -> FloatArray:
    services: FloatArray = (rng.pareto(2.5, n) + 1.0) * 0.6
    return services


def _lognormal(n: int, rng: np.random.Generator) -> FloatArray:
    """With a squared coefficient of variation of 4."""
    sigma = math.sqrt(math.log(5.0))
    return rng.lognormal(-sigma * sigma / 2.0, sigma, n)


def _two_classes(n: int, rng: np.random.Generator) -> FloatArray:
    services: FloatArray = np.where(rng.random(n) < 0.1, 5.5, 0.5) * rng.exponential(1.0, n)
    return services


def _batcher(largest: int, delay: float, fixed: float, each: float) -> Draw:
    """A dynamic batcher: a batch starts when it is full, or its oldest request has waited for ``delay``; it takes ``fixed``,
    and ``each`` for each request.
    """

    def draw(load: float, n: int, rng: np.random.Generator) -> Times:
        noise = rng.lognormal(0.0, 0.1, n)
        arrivals_s = np.cumsum(rng.exponential(1.0, n)) / load
        return _unstreamed(arrivals_s, _batched(arrivals_s, noise, (largest, delay, fixed, each)))

    return draw


@njit(cache=True)  # type: ignore[untyped-decorator]
def _batched(arrivals: FloatArray, noise: FloatArray, batcher: tuple[int, float, float, float]) -> FloatArray:
    largest, delay, fixed, each = batcher
    n = arrivals.size
    times = np.empty(n)
    first, free = 0, 0.0
    while first < n:
        full = arrivals[first + largest - 1] if first + largest <= n else np.inf
        start = max(free, min(full, arrivals[first] + delay))
        last = first
        while last < n and last < first + largest and arrivals[last] <= start:
            last += 1
        free = start + (fixed + each * (last - first)) * noise[first]
        for k in range(first, last):
            times[k] = free - arrivals[k]
        first = last
    return times


def _engine(engine: Engine, output_deviation: float | None = None) -> Draw:
    """In-flight batching; the lengths of answers are normal with this deviation, in tokens, or geometric."""

    def draw(load: float, n: int, rng: np.random.Generator) -> Times:
        work = engine.work_at(np.cumsum(rng.exponential(1.0, n)) / load, rng)
        if output_deviation is not None:
            lengths = np.rint(rng.normal(engine.mean_output_tokens, output_deviation, n))
            work = replace(work, output_tokens=np.maximum(1, lengths).astype(np.int64))
        return engine.latencies(work, rng)

    return draw


@dataclass(frozen=True)
class _Stalls:
    """A front end that stalls at random, ``per_s`` at a load of ``reference`` and more often above it, by this ``power``, for
    ``least_s`` to ``most_s``: requests that arrive meanwhile go on together at its end.
    """

    per_s: float
    reference: float
    power: float
    least_s: float = 0.3
    most_s: float = 2.0

    def passed_s(self, arrivals_s: FloatArray, load: float, rng: np.random.Generator) -> FloatArray:
        """When the requests of these arrivals are past the front end, shape [n]."""
        expected = self.per_s * (load / self.reference) ** self.power * arrivals_s[-1]
        starts_s = np.sort(rng.uniform(0.0, arrivals_s[-1], rng.poisson(expected)))
        ends_s = np.concatenate(([0.0], starts_s + rng.uniform(self.least_s, self.most_s, starts_s.size)))
        open_s = np.maximum.accumulate(ends_s)[np.searchsorted(starts_s, arrivals_s, side="right")]
        passed_s: FloatArray = np.maximum(arrivals_s, open_s)
        return passed_s


def _stalling(engine: Engine, output_deviation: float, stalls: _Stalls) -> Draw:
    """In-flight batching behind a front end that stalls."""

    def draw(load: float, n: int, rng: np.random.Generator) -> Times:
        arrivals_s = np.cumsum(rng.exponential(1.0, n)) / load
        passed_s = stalls.passed_s(arrivals_s, load, rng)
        lengths = np.rint(rng.normal(engine.mean_output_tokens, output_deviation, n))
        work = replace(engine.work_at(passed_s, rng), output_tokens=np.maximum(1, lengths).astype(np.int64))
        times, waited_ms = engine.latencies(work, rng), 1e3 * (passed_s - arrivals_s)
        return Times(arrivals_s, times.ttft_ms + waited_ms, times.e2e_ms + waited_ms)

    return draw


def engine_target(name: str, engine: Engine, limit_ms: float, loads: tuple[float, float]) -> CapacityTarget:
    """In-flight batching with this limit on p99 TTFT."""
    return CapacityTarget(name, _engine(engine), (f"p99_ttft<={limit_ms:g}ms",), loads[0], loads, long_run=_ENGINE_RUN)


def _faster(draw: Draw, factor: float) -> Draw:
    """The server ``draw`` with all times divided by ``factor``."""

    def faster(load: float, n: int, rng: np.random.Generator) -> Times:
        times = draw(load / factor, n, rng)
        return Times(times.arrivals_s / factor, times.ttft_ms / factor, times.e2e_ms / factor)

    return faster


BATCHING = Engine()
CONVOY = replace(BATCHING, mean_input_tokens=500, prompt_token_s=2e-4, mean_output_tokens=20)
_CHUNKED = replace(BATCHING, mean_input_tokens=400, prompt_token_s=5e-5, prompt_tokens_a_step=256)
_SHORT_ANSWERS = Engine(
    step_s=0.003,
    sequence_s=0.0004,
    prompt_token_s=3e-5,
    mean_output_tokens=16,
    mean_input_tokens=64,
    input_deviation=0.0,
)
_LARGE_MODEL = Engine(
    slots=512,
    step_s=0.0065,
    sequence_s=1e-5,
    prompt_token_s=2.6e-5,
    mean_output_tokens=20,
    mean_input_tokens=128,
    input_deviation=0.04,
)
"""About Llama-3.1-8B on an H200: 262 requests/s at most. An answer then takes 2 s, and 0.15 s at 100 requests/s."""
_QUEUE, _ENGINE = (0.3, 0.99), (12.0, 29.0)
_ENGINE_RUN, _HEAVY_RUN = 300_000, 4_000_000

_RARE_STALLS = CapacityTarget(
    "rare stalls",
    _stalling(_LARGE_MODEL, 2.0, _Stalls(per_s=1 / 75, reference=150.0, power=4.0)),
    ("p99_ttft<=250ms",),
    62.0,
    (50.0, 200.0),
    long_run=1_000_000,
)
"""About a vLLM on an H100 whose front end stalls: probes of 10 s at 152 requests/s had 0, 1.1 and 10.1 % beyond the limit."""

_PROPORTIONAL_STALLS = CapacityTarget(
    "stalls in proportion",
    _stalling(_LARGE_MODEL, 2.0, _Stalls(per_s=1 / 200, reference=100.0, power=1.0, least_s=0.5, most_s=4.0)),
    ("p99_ttft<=250ms",),
    62.0,
    (50.0, 200.0),
    long_run=1_000_000,
)
"""Stalls that come with the requests, so that their share hardly depends on the load: a flat curve of rare, large clusters."""

TARGETS = (
    CapacityTarget("M/M/1", _queue(_exponential), ("p99_e2e<=15350ms",), 0.4, _QUEUE, exact=1.0 - math.log(100.0) / 15.35),
    CapacityTarget("M/M/1, p95", _queue(_exponential), ("p95_e2e<=10s",), 0.4, _QUEUE, exact=1.0 - math.log(20.0) / 10.0),
    CapacityTarget("M/D/1", _queue(_constant), ("p99_e2e<=7s",), 0.4, _QUEUE),
    CapacityTarget("M/D/1, far limit", _queue(_constant), ("p99_e2e<=150s",), 0.4, (0.5, 1.0)),
    CapacityTarget("8 servers", _queue(_exponential, servers=8), ("p99_e2e<=50s",), 0.4, _QUEUE),
    CapacityTarget("bursts", _queue(_exponential, bursts=True), ("p99_e2e<=25s",), 0.4, _QUEUE),
    CapacityTarget("in-flight batching, 60 ms", _engine(BATCHING), ("p99_ttft<=60ms",), 14.0, _ENGINE, long_run=_ENGINE_RUN),
    CapacityTarget("in-flight batching, 500 ms", _engine(BATCHING), ("p99_ttft<=500ms",), 14.0, _ENGINE, long_run=_ENGINE_RUN),
    CapacityTarget(
        "in-flight batching, TTFT and E2E",
        _engine(BATCHING),
        ("p99_ttft<=300ms", "p95_e2e<=6500ms"),
        14.0,
        _ENGINE,
        long_run=_ENGINE_RUN,
    ),
    CapacityTarget("short answers", _engine(_SHORT_ANSWERS), ("p99_ttft<=500ms",), 75.0, (80.0, 200.0), long_run=_ENGINE_RUN),
    CapacityTarget("prefill convoy", _engine(CONVOY), ("p99_ttft<=2s",), 4.0, (3.0, 9.4), long_run=_ENGINE_RUN),
    CapacityTarget("chunked prefill", _engine(_CHUNKED), ("p99_ttft<=500ms",), 10.0, (3.0, 29.0), long_run=_ENGINE_RUN),
    CapacityTarget("dynamic batcher", _batcher(16, 0.5, 1.0, 0.05), ("p99_e2e<=6s",), 3.0, (2.0, 8.8)),
    CapacityTarget("two classes", _queue(_two_classes), ("p99_e2e<=60s",), 0.4, _QUEUE, long_run=_HEAVY_RUN),
    CapacityTarget("lognormal services", _queue(_lognormal), ("p99_e2e<=60s",), 0.4, _QUEUE, heavy=True, long_run=_HEAVY_RUN),
    CapacityTarget("Pareto services", _queue(_pareto), ("p99_e2e<=25s",), 0.4, _QUEUE, heavy=True, long_run=_HEAVY_RUN),
    _RARE_STALLS,
    _PROPORTIONAL_STALLS,
)

FAST_TARGETS = (
    CapacityTarget(
        "large model, TTFT 250 ms", _engine(_LARGE_MODEL, 2.0), ("p99_ttft<=250ms",), 66.0, (150.0, 290.0), long_run=_ENGINE_RUN
    ),
    CapacityTarget(
        "large model, TTFT 1 s", _engine(_LARGE_MODEL, 2.0), ("p99_ttft<=1s",), 66.0, (150.0, 290.0), long_run=_ENGINE_RUN
    ),
    CapacityTarget(
        "large model, E2E 1 s", _engine(_LARGE_MODEL, 2.0), ("p99_e2e<=1s",), 66.0, (150.0, 290.0), long_run=_ENGINE_RUN
    ),
    CapacityTarget(
        "short answers, TTFT 500 ms", _engine(_SHORT_ANSWERS), ("p99_ttft<=500ms",), 75.0, (80.0, 200.0), long_run=_ENGINE_RUN
    ),
    CapacityTarget(
        "M/M/1, 1,000/s",
        _faster(_queue(_exponential), 1e3),
        ("p99_e2e<=15.35ms",),
        400.0,
        (300.0, 990.0),
        exact=1e3 - 1e3 * math.log(100.0) / 15.35,
    ),
    CapacityTarget(
        "8 servers, 300/s", _faster(_queue(_exponential, servers=8), 300.0), ("p99_e2e<=166.6667ms",), 120.0, (90.0, 297.0)
    ),
    _RARE_STALLS,
    _PROPORTIONAL_STALLS,
)
"""In seconds, for searches with a budget of time (benchmarks/timed_search.py)."""


def _thousandfold(name: str, draw: Draw, limit_ms: float) -> CapacityTarget:
    """A server that takes 1,000 requests/s at most, with a limit on p99 E2E latency."""
    return CapacityTarget(name, _faster(draw, 1e3), (f"p99_e2e<={limit_ms:g}ms",), 400.0, (300.0, 990.0))


FORECAST_TARGETS = (
    (_thousandfold("M/M/1", _queue(_exponential), 15.35), (150.0, 300.0)),
    (_thousandfold("M/D/1", _queue(_constant), 7.0), (110.0, 240.0)),
    (_thousandfold("bursts", _queue(_exponential, bursts=True), 25.0), (150.0, 360.0)),
    (engine_target("in-flight batching, 60 ms", BATCHING, 60.0, (14.0, 29.0)), (1_800.0, 5_400.0)),
    (FAST_TARGETS[0], (240.0, 600.0)),
)
"""Each with a budget that is short, and one that mostly reaches ±10 %, in seconds (benchmarks/forecast_honesty.py)."""
