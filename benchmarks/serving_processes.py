"""Simulated serving processes: latencies of requests that share queues and an engine's steps, for checks of the statistics.

A schedule (arrivals, lengths, and what the requests ask of the target) is drawn apart from the noise of a run, so that two
runs can share one. The loops are compiled by numba: queues simulate some million requests per second, engines some 100,000.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.signal import lfilter

from reports.statistics.arrays import FloatArray

GAP_S = 0.01  # mean gap between arrivals, except with engines
PARTS = 8  # of an answer, whose times are known
_STEP_NOISES = 40_009
_ACCEPTANCES = 1_000_003  # of tokens speculated: each sequence has its own in each step, for thousands of steps
_FOR_CAPACITY = 20_000  # requests


@dataclass(frozen=True, eq=False)
class Work:
    """A schedule: shape [n] each. ``demand`` is what a process draws for each request that two runs of a schedule share."""

    arrivals_s: FloatArray
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    demand: FloatArray


@dataclass(frozen=True, eq=False)
class Run:
    """What a run recorded: shape [requests] each. ``progress``, shape [requests, PARTS], is the share of the time from first to
    last token after which each of this many equal parts of the answer had come; None: evenly. ``session`` is the number of the
    conversation of each request, shape [requests]; None: of none.
    """

    arrivals_s: FloatArray
    ttft_ms: FloatArray
    e2e_ms: FloatArray
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    progress: FloatArray | None = None
    session: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Times:
    """When the requests of a work arrived, and how long they took: shape [n] each; the rest is as of ``Run``."""

    arrivals_s: FloatArray
    ttft_ms: FloatArray
    e2e_ms: FloatArray
    progress: FloatArray | None = None
    session: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Process:
    """A target under a load. ``settle`` requests are simulated first, and left out. ``lengths_matter``: they explain latencies;
    ``infinite_variance``: no interval of a mean can be had.
    """

    name: str
    draw: Callable[[int, np.random.Generator], Work]
    latencies: Callable[[Work, np.random.Generator], Times]
    settle: int = 0
    lengths_matter: bool = False
    infinite_variance: bool = False

    def work(self, requests: int, rng: np.random.Generator) -> Work:
        return self.draw(requests + self.settle, rng)

    def run(self, work: Work, rng: np.random.Generator) -> Run:
        times = self.latencies(work, rng)
        kept = slice(self.settle, None)
        first_s = times.arrivals_s[kept][0] if self.settle else 0.0
        return Run(
            times.arrivals_s[kept] - first_s,
            times.ttft_ms[kept],
            times.e2e_ms[kept],
            work.input_tokens[kept],
            work.output_tokens[kept],
            None if times.progress is None else times.progress[kept],
            None if times.session is None else times.session[kept],
        )


# ---- independent and correlated latencies, without a server


def plain(arrivals_s: FloatArray, demand: FloatArray) -> Work:
    lengths = np.full(arrivals_s.size, 8, dtype=np.int64)
    return Work(arrivals_s, lengths, lengths, demand)


def poisson(n: int, rng: np.random.Generator) -> FloatArray:
    return np.cumsum(rng.exponential(GAP_S, n))


def _noisy(
    noise: float, level: Callable[[FloatArray], FloatArray], slow_share: float = 0.0, slow: float = 1.0
) -> Callable[[Work, np.random.Generator], Times]:
    """Latencies at a level that the schedule fixed, with lognormal noise; a share of them takes ``slow`` times as long."""

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        n = work.arrivals_s.size
        ttft_ms = 20.0 * level(work.demand) * rng.lognormal(0.0, noise, n)
        ttft_ms *= np.where(rng.random(n) < slow_share, slow, 1.0)
        return Times(work.arrivals_s, ttft_ms, ttft_ms + 2.0 * rng.lognormal(0.0, 0.1, n))

    return latencies


def _autoregression(correlation: float, n: int, rng: np.random.Generator) -> FloatArray:
    settle = int(10 / max(1e-3, 1.0 - correlation))
    noise = rng.normal(size=n + settle) * np.sqrt(1.0 - correlation**2)
    values: FloatArray = lfilter([1.0], [1.0, -correlation], noise)[settle:]
    return values


def autoregressive(name: str, correlation: float, noise: float = 0.1, deviation: float = 0.6, spikes: float = 0.0) -> Process:
    """Logarithms of latencies are a first-order autoregression of the schedule, with noise of the run."""
    return Process(
        name,
        lambda n, rng: plain(poisson(n, rng), _autoregression(correlation, n, rng)),
        _noisy(noise, lambda z: np.exp(deviation * z), spikes, 5.0),
    )


def stragglers() -> Process:
    """One request in a hundred takes ten times as long, so that p99 lies on a jump of the distribution."""
    return Process(
        "1 % stragglers",
        lambda n, rng: plain(poisson(n, rng), np.zeros(n)),
        _noisy(0.3, lambda z: np.ones(z.size), 0.01, 10.0),
    )


def spells() -> Process:
    """Alternating spells: 200 requests on average, then 50 with four times the latency, and so on."""

    def draw(n: int, rng: np.random.Generator) -> Work:
        rounds = n // 100 + 100
        lengths = np.stack([rng.geometric(1 / 200, rounds), rng.geometric(1 / 50, rounds)], axis=1).ravel()
        start = int(rng.integers(0, 5_000))
        return plain(poisson(n, rng), np.repeat(np.tile([1.0, 4.0], rounds), lengths)[start : start + n])

    return Process("slow spells", draw, _noisy(0.4, lambda z: z))


# ---- queues


def _services(variation: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Services of mean 1 with this squared coefficient of variation: lognormal, at 1 exponential, at infinity Pareto 2.5."""
    if variation == 0.0:
        return np.ones(n)
    if variation == 1.0:
        return rng.exponential(1.0, n)
    if np.isinf(variation):
        return (rng.pareto(2.5, n) + 1.0) * 0.6
    sigma = np.sqrt(np.log(1.0 + variation))
    return rng.lognormal(-sigma * sigma / 2, sigma, n)


def queue(name: str, load: float, variation: float = 1.0, shape: float = 1.0) -> Process:
    """One server, first come first served: gaps are gamma with ``shape`` (1: Poisson arrivals)."""
    settle = int(min(20_000, max(1_000, 60 / (1.0 - load) ** 2))) if load < 1.0 else 0

    def draw(n: int, rng: np.random.Generator) -> Work:
        return plain(np.cumsum(rng.gamma(shape, GAP_S / shape, n)), load * GAP_S * _services(variation, n, rng))

    return Process(name, draw, first_come(1), settle, infinite_variance=bool(np.isinf(variation)))


def modulated_arrivals() -> Process:
    """Eight servers at 60 % of capacity, whose arrivals alternate between 40 % and 160 % of the mean rate."""

    def draw(n: int, rng: np.random.Generator) -> Work:
        spell_lengths = rng.geometric(1 / 200, n // 100 + 100)
        rates = np.where((np.arange(spell_lengths.size) + rng.integers(2)) % 2, 1.6, 0.4)
        gaps_s = rng.exponential(GAP_S, n) / np.repeat(rates, spell_lengths)[:n]
        return plain(np.cumsum(gaps_s), rng.exponential(0.6 * GAP_S * 8, n))

    return Process("modulated arrivals", draw, first_come(8), settle=3_000)


def first_come(servers: int) -> Callable[[Work, np.random.Generator], Times]:
    def latencies(work: Work, rng: np.random.Generator) -> Times:
        services_s = work.demand * rng.lognormal(0.0, 0.05, work.demand.size)
        ttft_ms = time_in_system(work.arrivals_s, services_s, servers) * 1e3
        return Times(work.arrivals_s, ttft_ms, ttft_ms + 2.0 * rng.lognormal(0.0, 0.1, ttft_ms.size))

    return latencies


@njit(cache=True)  # type: ignore[untyped-decorator]
def time_in_system(arrivals_s: FloatArray, services_s: FloatArray, servers: int) -> FloatArray:
    """The time of each request at several servers, first come first served (Kiefer and Wolfowitz 1955)."""
    free_s, times_s = np.zeros(servers), np.empty(arrivals_s.size)
    for i in range(arrivals_s.size):
        k = np.argmin(free_s)
        free_s[k] = max(arrivals_s[i], free_s[k]) + services_s[i]
        times_s[i] = free_s[k] - arrivals_s[i]
    return times_s


# ---- engines


@dataclass(frozen=True)
class Engine:
    """An engine with in-flight batching: each step advances every sequence of its batch, and new ones enter between steps.

    A step takes ``step_s``, ``sequence_s`` more for each sequence and ``prompt_token_s`` for each prompt token, times lognormal
    noise. A step takes at most ``prompt_tokens_a_step`` prompt tokens (chunked prefill). Sequences beyond ``cache_tokens`` are
    evicted, the newest first, and computed again (preemption). ``cached_share`` of the requests have nine tenths of their
    prompt in the prefix cache. Each step yields up to ``speculated`` tokens a sequence (speculative decoding). Every
    ``stall_every_s`` all steps wait for ``stall_s``. ``users`` > 0 make a closed loop.
    """

    slots: int = 64
    step_s: float = 0.008
    sequence_s: float = 0.0002
    prompt_token_s: float = 2e-5
    noise: float = 0.05
    mean_output_tokens: int = 100
    mean_input_tokens: int = 100
    input_deviation: float = 0.8  # of the logarithm
    prompt_tokens_a_step: int = 1 << 30
    cache_tokens: int = 1 << 30
    cached_share: float = 0.0
    speculated: int = 1
    stall_every_s: float = 0.0
    stall_s: float = 0.0
    users: int = 0

    @property
    def capacity_per_s(self) -> float:
        """Requests per second while others always wait, evictions and stalls included."""
        return _capacity_per_s(self)

    def at(self, name: str, load: float, lengths_matter: bool = False) -> Process:
        """The engine with Poisson arrivals at ``load`` of its capacity, lognormal inputs and geometric outputs."""

        def draw(n: int, rng: np.random.Generator) -> Work:
            gaps_s = np.zeros(n) if self.users else rng.exponential(1.0 / (load * self.capacity_per_s), n)
            return self.work_at(np.cumsum(gaps_s), rng)

        settle = 0 if load >= 1.0 else max(1_500, 4 * self.users)
        return Process(name, draw, self.latencies, settle, lengths_matter)

    def work_at(self, arrivals_s: FloatArray, rng: np.random.Generator) -> Work:
        """Requests at these times, shape [n]."""
        n, sigma = arrivals_s.size, self.input_deviation
        inputs = self.mean_input_tokens * rng.lognormal(-sigma * sigma / 2, sigma, n)
        return Work(
            arrivals_s,
            np.maximum(1, inputs).astype(np.int64),
            rng.geometric(1.0 / self.mean_output_tokens, n),
            np.where(rng.random(n) < self.cached_share, 0.1, 1.0),
        )

    def latencies(self, work: Work, rng: np.random.Generator) -> Times:
        prompts = np.maximum(1, work.input_tokens * work.demand).astype(np.int64)
        arrivals_s, ttft_s, e2e_s, parts_s = _steps(
            work.arrivals_s,
            prompts,
            work.output_tokens,
            rng.lognormal(0.0, self.noise, _STEP_NOISES),
            rng.integers(1, self.speculated + 1, _ACCEPTANCES if self.speculated > 1 else 1),
            (self.slots, self.prompt_tokens_a_step, self.cache_tokens, self.users),
            (self.step_s, self.sequence_s, self.prompt_token_s, self.stall_every_s, self.stall_s),
        )
        decoding_s = np.maximum(e2e_s - ttft_s, 1e-9)
        return Times(arrivals_s, ttft_s * 1e3, e2e_s * 1e3, (parts_s - ttft_s[:, None]) / decoding_s[:, None])


@lru_cache
def _capacity_per_s(engine: Engine) -> float:
    """The middle of a simulation in which all requests are due at once."""
    rng = np.random.default_rng(2**30)
    work = engine.work_at(np.zeros(_FOR_CAPACITY), rng)
    first_s, last_s = np.quantile(engine.latencies(work, rng).e2e_ms / 1e3, [0.1, 0.9])
    return 0.8 * _FOR_CAPACITY / float(last_s - first_s)


# One compiled loop: numba cannot pass the state on without making it slow.
@njit(cache=True)
def _steps(arrivals_s, prompts, outputs, noises, accepted, counts, times):  # type: ignore[no-untyped-def]  # noqa: C901
    slots, most_prompt_tokens, most_cached, users = counts
    step_s, sequence_s, prompt_token_s, stall_every_s, stall_s = times
    n = outputs.size
    due_s, ttft_s, e2e_s, parts_s = arrivals_s.copy(), np.full(n, -1.0), np.empty(n), np.empty((n, PARTS))
    part = np.zeros(n, np.int64)
    batch, to_prefill, to_decode = np.empty(slots, np.int64), np.empty(slots, np.int64), np.empty(slots, np.int64)
    left, context = outputs.copy(), prompts.copy()
    evicted = np.empty(n, np.int64)
    size, cached, entered, ended, waiting_again, steps, now_s = 0, 0, 0, 0, 0, 0, 0.0
    released = min(users, n) if users > 0 else n
    next_stall_s = stall_every_s
    while ended < n:
        if size == 0 and waiting_again == 0 and entered < released and due_s[entered] > now_s:
            now_s = due_s[entered]
        while size < slots:
            if waiting_again > 0:
                request = evicted[waiting_again - 1]
            elif entered < released and due_s[entered] <= now_s:
                request = entered
            else:
                break
            if size > 0 and cached + context[request] > most_cached:
                break
            if waiting_again > 0:
                waiting_again -= 1
            else:
                entered += 1
            batch[size], to_prefill[size], to_decode[size] = request, context[request], left[request]
            cached += context[request]
            size += 1
        prompt_tokens = 0
        for k in range(size):
            taken = min(to_prefill[k], most_prompt_tokens - prompt_tokens)
            to_prefill[k] -= taken
            prompt_tokens += taken
        took_s = (step_s + sequence_s * size + prompt_token_s * prompt_tokens) * noises[steps % noises.size]
        now_s += took_s
        if stall_every_s > 0.0 and now_s > next_stall_s:
            now_s += stall_s
            next_stall_s += stall_every_s
        now_s = np.round(now_s * 1e9) / 1e9  # whole ns, as in records: a user's next request is due when the last one ended
        kept = 0
        for k in range(size):
            request = batch[k]
            if to_prefill[k] == 0:
                if ttft_s[request] < 0.0:
                    ttft_s[request] = now_s - due_s[request]
                tokens = min(accepted[(steps * slots + k) % accepted.size], to_decode[k])
                to_decode[k] -= tokens
                context[request] += tokens
                cached += tokens
                left[request] = to_decode[k]
                while (
                    part[request] < PARTS
                    and (outputs[request] - to_decode[k]) * PARTS >= (part[request] + 1) * outputs[request]
                ):
                    parts_s[request, part[request]] = now_s - due_s[request]
                    part[request] += 1
            if to_decode[k] == 0:
                e2e_s[request] = now_s - due_s[request]
                cached -= context[request]
                ended += 1
                if users > 0 and released < n:
                    due_s[released] = now_s
                    released += 1
            else:
                batch[kept], to_prefill[kept], to_decode[kept] = batch[k], to_prefill[k], to_decode[k]
                kept += 1
        size = kept
        while size > 1 and cached > most_cached:
            size -= 1
            cached -= context[batch[size]]
            evicted[waiting_again] = batch[size]
            waiting_again += 1
        steps += 1
    return due_s, ttft_s, e2e_s, parts_s


def independent_closed_loop(name: str, users: int) -> Process:
    """A closed loop whose answers take a lognormal time each, as at a proxy before many replicas: none waits for another."""

    def draw(n: int, rng: np.random.Generator) -> Work:
        lengths = np.maximum(3, 50.0 * rng.lognormal(-0.125, 0.5, n)).astype(np.int64)
        return Work(np.zeros(n), np.full(n, 8, dtype=np.int64), lengths, 0.002 * lengths)

    def latencies(work: Work, rng: np.random.Generator) -> Times:
        n = work.demand.size
        ttft_s = np.round(0.02 * rng.lognormal(0.0, 0.2, n), 9)
        e2e_s = ttft_s + np.round(work.demand * rng.lognormal(0.0, 0.05, n), 9)
        return Times(_due_in_turn(e2e_s, users), ttft_s * 1e3, e2e_s * 1e3)

    return Process(name, draw, latencies)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _due_in_turn(times_s: FloatArray, users: int) -> FloatArray:
    """When each request is due, of users that send the next one when their last one ended; whole ns."""
    free_s, due_s = np.zeros(users), np.empty(times_s.size)
    for i in range(times_s.size):
        k = np.argmin(free_s)
        due_s[i] = free_s[k]
        free_s[k] = np.round((free_s[k] + times_s[i]) * 1e9) / 1e9
    return due_s


# ---- the processes


def _named() -> tuple[Process, ...]:
    engine = Engine()
    return (
        autoregressive("independent", 0.0),
        autoregressive("autoregressive 0.9", 0.9),
        autoregressive("autoregressive 0.98", 0.98),
        autoregressive("autoregressive 0.98, spikes", 0.98, spikes=0.01),
        autoregressive("slow load, noise", 0.995, noise=0.4, deviation=0.3),
        stragglers(),
        spells(),
        queue("M/M/1 at 50 %", 0.5),
        queue("M/M/1 at 80 %", 0.8),
        queue("M/M/1 at 90 %", 0.9),
        queue("M/D/1 at 80 %", 0.8, 0.0),
        queue("M/lognormal/1 at 50 %", 0.5, 4.0),
        queue("M/lognormal/1 at 80 %", 0.8, 4.0),
        queue("M/Pareto 2.5/1 at 70 %", 0.7, np.inf),
        queue("G/M/1 at 70 %", 0.7, shape=0.25),
        modulated_arrivals(),
        engine.at("in-flight batching at 60 %", 0.6),
        engine.at("in-flight batching at 85 %", 0.85),
        replace(engine, users=50).at("closed loop of 50", 0.5),
        replace(engine, mean_input_tokens=500, prompt_token_s=2e-4, mean_output_tokens=20).at("prefill at 50 %", 0.5, True),
        replace(engine, slots=512, mean_input_tokens=500, prompt_token_s=2e-4, mean_output_tokens=20).at(
            "prefill at 5 %", 0.05, True
        ),
    )


_LONG_PROMPTS = Engine(mean_input_tokens=400, prompt_token_s=5e-5)
ENGINES = (  # of which ``drawn`` makes families of processes
    ("chunked prefill", replace(_LONG_PROMPTS, prompt_tokens_a_step=256)),
    ("preemption", replace(_LONG_PROMPTS, cache_tokens=16_000)),
    ("prefix-cache hits", replace(_LONG_PROMPTS, cached_share=0.7)),
    ("speculative decoding", replace(_LONG_PROMPTS, speculated=4)),
    ("periodic stall", replace(_LONG_PROMPTS, stall_every_s=20.0, stall_s=0.3)),
)


def drawn(seed: int) -> tuple[Process, ...]:
    """An engine of each family, whose parameters and load come from ``seed``: processes that no choice was made on."""
    rng = np.random.default_rng([2**31, seed])
    found = []
    for name, engine in ENGINES:
        load = float(rng.uniform(0.4, 0.85))
        one = replace(
            engine,
            slots=int(rng.integers(16, 129)),
            noise=float(rng.uniform(0.02, 0.3)),
            mean_output_tokens=int(rng.integers(30, 200)),
            mean_input_tokens=int(rng.integers(100, 800)),
            input_deviation=float(rng.uniform(0.3, 1.2)),
            stall_every_s=engine.stall_every_s * float(rng.uniform(0.3, 2.0)),
        )
        found.append(one.at(f"{name} at {load:.0%}", load, lengths_matter=True))
    return tuple(found)


PROCESSES = (
    *_named(),
    *(engine.at(f"{name} at 60 %", 0.6, lengths_matter=True) for name, engine in ENGINES),
    independent_closed_loop("closed loop of 40, independent answers", 40),
)
