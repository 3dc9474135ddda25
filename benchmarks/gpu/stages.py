"""What a sitting measures, in the order of its worth. Its machine's speed changes, so what is compared is measured in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LOAD = ("token_norm_dist", "--isl", "128±5", "--osl", "20±2")
_SHARES = (0.5, 0.8, 0.95)  # of the rate at which a server answers everything at once
_REPEAT_SHARES = (0.5, 0.8)  # of the lower of those rates
_TURNS = _REPEATS = 5
_TIMED_S, _REPEAT_S = 80.0, 15.0  # the steady window of the first, in which energy is compared, lasts 60 s at least
_LOADS = (0.5, 0.8, 0.3, 0.65, 0.9)  # a model is fitted to the first two and judged on all other runs
_LOAD_S, _LOAD_SEEDS = 20.0, (1, 2)
_AROUND_S = 15.0  # a command's own start and end
_LEAST_REQUESTS = 100
WIRE, ENERGY = "wire", "energy"
OFFLINE, TRITON, OPENAI = "offline", "triton", "openai"  # vLLM alone, the pipeline, vLLM's own server


@dataclass(frozen=True)
class Stage:
    """A run of ``bench`` on ``server``, or a load of vLLM alone.

    ``name`` is its folder, ``witness`` its watcher, ``expected_s`` the longest time.
    """

    name: str
    server: str
    arguments: tuple[str, ...]
    expected_s: float
    witness: str | None = None


def all_stages(requests: int, rates_per_s: Mapping[str, float]) -> Iterator[Stage]:
    """Those that are known before the others ran. ``requests`` is the number sent at once."""
    at_once = (*_LOAD, "--num_requests", str(requests))
    for turn in range(_TURNS):
        yield Stage(f"{OFFLINE}-{turn}", OFFLINE, (), 60.0)
        yield Stage(f"triton-unstreamed-{turn}", TRITON, (*at_once, "--no_streaming"), 60.0)
        yield Stage(f"triton-streamed-{turn}", TRITON, at_once, 60.0)
    yield Stage("openai-streamed-0", OPENAI, at_once, 90.0)
    for server, rate in rates_per_s.items():
        for share, witness in zip(_SHARES, (WIRE, ENERGY, None), strict=True):
            watched = witness if server == TRITON else None
            yield Stage(
                f"{server}-{share:.0%}".strip("%"), server, _timed(share * rate, _TIMED_S), _TIMED_S + _AROUND_S, watched
            )
    if len(rates_per_s) < 2:
        return
    for share in _REPEAT_SHARES:
        for repeat in range(_REPEATS):
            for server in rates_per_s:
                load = (*_timed(share * min(rates_per_s.values()), _REPEAT_S), "--seed", str(100 + repeat))
                yield Stage(f"{server}-repeat-{100 * share:.0f}-{repeat}", server, load, _REPEAT_S + _AROUND_S)
    for server in rates_per_s:
        yield Stage(f"{server}-capacity", server, ("capacity", "--slo", "p99_ttft<=250ms", "--budget", "4m", *_LOAD), 260.0)
    for seed in _LOAD_SEEDS:
        for server, rate in rates_per_s.items():
            timings = ("--server_timings",) if server == TRITON else ()
            for share in _LOADS:
                load = (*_timed(share * rate, _LOAD_S), "--seed", str(seed), *timings)
                yield Stage(f"{server}-load-{100 * share:.0f}-{seed}", server, load, _LOAD_S + _AROUND_S)


def _timed(rate_per_s: float, seconds: float) -> tuple[str, ...]:
    requests = max(_LEAST_REQUESTS, round(seconds * rate_per_s))
    return (*_LOAD, "--request_rate", f"{rate_per_s:.3f}", "--num_requests", str(requests))
