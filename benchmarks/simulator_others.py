"""Whether a server of another structure than the simulator's is fitted well or called unfit.

Each server, with constants as in ``benchmarks.simulator_recovery``, is fitted whole to two runs, and the model predicts a third
one at a load between them. A model counts as good where all figures of that run lie within the limits of
``bench simulate validate`` (``GOOD``). The fit *calls* a server where it refuses it or says that the model is unfit, and
*doubts* it where it says that steps lie far from the law or that residuals depend on the load.

- prefill first: prompts alone, before others decode on: the convoy that the simulator knows
- speculative decoding: a step gives a sequence 1 to 4 tokens, in one response, or in one response each
- pauses: every 400th step takes 30 times as long
- full KV cache: requests wait for blocks of the cache, of which a fit knows nothing
- padded batches: a step takes as long as one of the next power of two of sequences
- two engines: one address, and requests are dealt to two engines at random

Requirement: every server is either fitted well or called.

Run: python -m benchmarks.simulator_others [--each 10] [--seed 1] [--requests 600] [--kind "pauses"]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tabulate import tabulate

from benchmarks.simulator_recovery import USUAL, capacity_of
from simulator.answers import Deployment
from simulator.arrays import IntArray
from simulator.clients import clients_of
from simulator.errors import SimulatorError
from simulator.fit import fit
from simulator.observed import Observed
from simulator.recorded import Responses, observed_of, simulated_run
from simulator.routers import Router
from simulator.server import Admission, Order, Server, StepLaw
from simulator.simulation import simulate_deployment
from simulator.traffic import Traffic
from simulator.validation import GOOD, validate

_FITTED_LOADS, _LOAD = (0.35, 0.6), 0.5
_ACCEPTED = 4  # tokens of a sequence in a step at most, with speculative decoding
_PAUSE_EVERY, _PAUSE = 400, 30  # steps, and times a step
_BLOCKS = 128  # of the KV cache: about fifteen requests
_LONGEST = 1_000  # tokens of a prompt, so that every request fits there
_COST = (0.03, 0.08)  # of a sequence, relative to a step, where batches are padded
_DOUBTS = ("lie far from the law", "residuals depend on the load")

Measured = Callable[[Server, Traffic, int, str], Observed]


class _PaddedLaw(StepLaw):
    """As graphs for a few sizes of a batch."""

    def duration(self, prefill: int, with_context: int, sequences: int, context: int) -> float:
        return super().duration(prefill, with_context, 1 << max(0, sequences - 1).bit_length(), context)


@dataclass(frozen=True)
class _Kind:
    """How a server is made of a usual one, what its clients see, and how many engines it has."""

    changed: Callable[[Server, np.random.Generator], Server]
    measured: Measured = simulated_run
    engines: int = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=10, help="servers of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=600, help="of each run")
    parser.add_argument("--kind", choices=_KINDS, nargs="*", help="those to try; all where none is given")
    options = parser.parse_args()
    start, rows = time.monotonic(), []
    for name in options.kind or _KINDS:
        counts = {"good": 0, "good, and doubted": 0, "called": 0, "doubted": 0, "neither": 0}
        for number in range(options.each):
            random = np.random.default_rng([options.seed, list(_KINDS).index(name), number])
            outcome, said = _tried(_KINDS[name], options.requests, random, number)
            counts[outcome] += 1
            print(f"{time.monotonic() - start:.0f} s, {name} {number}: {outcome}; {said}", flush=True)
        rows.append((name, *counts.values()))
    print(tabulate(rows, headers=("server", *counts), disable_numparse=True))


def _tried(kind: _Kind, requests: int, random: np.random.Generator, seed: int) -> tuple[str, str]:
    """What becomes of one server, and what the fit says or how wrong the model is."""
    server = kind.changed(USUAL.server(random, Admission()), random)
    capacity = kind.engines * capacity_of(server, _lengths, requests, random)
    *fitted, judged = (
        kind.measured(server, _traffic(random, requests, load * capacity), int(random.integers(1 << 30)), f"at {load}")
        for load in (*_FITTED_LOADS, _LOAD)
    )
    try:
        model = fit(fitted, seed, lambda line: None)
    except SimulatorError as error:
        return "called", str(error)
    predictions = validate(model, judged, 0, seed).predictions
    errors = {each.key: each.error for each in predictions if each.key in GOOD}
    said = "; ".join(f"{' '.join(key)} {error:+.1%}" for key, error in errors.items()) + "; " + "; ".join(model.findings)
    is_good = all(abs(error) <= GOOD[key] for key, error in errors.items())
    if model.unfit:
        return "called", said
    is_doubted = any(doubt in finding for doubt in _DOUBTS for finding in model.findings)
    if is_good:
        return ("good, and doubted" if is_doubted else "good"), said
    return ("doubted" if is_doubted else "neither"), said


def _lengths(random: np.random.Generator, requests: int) -> tuple[IntArray, IntArray]:
    prompts, outputs = USUAL.lengths(random, requests)
    return np.minimum(prompts, _LONGEST), outputs


def _traffic(random: np.random.Generator, requests: int, rate: float) -> Traffic:
    prompts, outputs = _lengths(random, requests)
    return Traffic(np.cumsum(random.exponential(1 / rate, requests)), prompts, prompts, outputs)


def _with_pauses(server: Server, random: np.random.Generator) -> Server:
    noise = np.array(server.noise)
    noise[int(random.integers(_PAUSE_EVERY)) :: _PAUSE_EVERY] += _PAUSE * server.law.step
    return replace(server, noise=tuple(noise.tolist()))


def _padded(server: Server, random: np.random.Generator) -> Server:
    law = server.law
    padded = _PaddedLaw(step=law.step, prefill=law.prefill, sequence=law.step * random.uniform(*_COST))
    return replace(server, law=padded)


def _speculative(server: Server, traffic: Traffic, seed: int, name: str) -> Observed:
    """The outputs of ``traffic`` are steps, each of which gives several tokens in one response."""
    observed = simulated_run(server, traffic, seed, name)
    tokens = np.random.default_rng(seed).integers(1, _ACCEPTED + 1, len(observed.counts)) * observed.counts
    return replace(observed, counts=tokens, output_tokens=np.add.reduceat(tokens, observed.starts[:-1]))


def _speculative_token_by_token(server: Server, traffic: Traffic, seed: int, name: str) -> Observed:
    """As ``_speculative``, with a response for each token, right after each other."""
    observed = _speculative(server, traffic, seed, name)
    counts = observed.counts
    before = np.cumsum(counts) - counts
    place = np.arange(counts.sum()) - np.repeat(before, counts)
    starts = np.append(before, counts.sum())[observed.starts]
    times_s = np.repeat(observed.times_s, counts) + place * server.front_end.response
    return replace(observed, counts=np.ones(len(times_s), np.int64), times_s=times_s, starts=starts)


def _two_engines(server: Server, traffic: Traffic, seed: int, name: str) -> Observed:
    responses = Responses(len(traffic), server.front_end.response)
    deployment = Deployment(server, 2, Router.RANDOM)
    answers = simulate_deployment(deployment, traffic, clients_of(traffic), seed, responses.add)
    return observed_of(traffic, answers, responses, name)


_KINDS = {
    "prefill first": _Kind(lambda server, _: replace(server, admission=Admission(order=Order.PREFILL_FIRST))),
    "speculative decoding": _Kind(lambda server, _: server, _speculative),
    "the same, a response for each token": _Kind(lambda server, _: server, _speculative_token_by_token),
    "pauses": _Kind(_with_pauses),
    "full KV cache": _Kind(lambda server, _: replace(server, admission=Admission(kv_blocks=_BLOCKS))),
    "padded batches": _Kind(_padded),
    "two engines": _Kind(lambda server, _: server, _two_engines, engines=2),
}


if __name__ == "__main__":
    main()
