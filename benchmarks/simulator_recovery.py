"""How often the engine of a simulated server is recovered from the records of its clients alone: law and structure.

Each fit has a server of its own, with constants drawn from wide ranges and a structure by turns: plain, with a batch limit,
with chunks, with prompts first, or with steps that are launched while the one before runs. It is fitted to two runs, at about
0.35 and 0.6 of the load that it can take, or at 0.6 and 1.1 where there is a batch limit. ``--structure`` names some of these.

``--servers other`` are not those that the fit was written for: the noise of a step is heavy-tailed (t of 4 degrees of freedom)
and correlated (up to 0.8 with the step before), a token costs the front end up to 20 µs, a request is taken in within up to
five rounds, arrivals come in bursts (gamma gaps, cv 2), and lengths are log-normal.

Requirement: the intervals of 95 % contain the constants of the step in 90 to 99 % of all fits, and the structure, with its
integers, and the constants that are zero are right in 90 %. With ``--further`` each server has one more constant, by turns: a
cost for a step with a prompt, for a token in the KV cache, or for a prompt token and token of its context.

With ``--step_log`` the fit reads the log that the engine writes, as the embedded one does; no server launches steps ahead then.

Run: python -m benchmarks.simulator_recovery [--fits 40] [--seed 1] [--requests 800] [--known_structure] [--servers other]
    [--structure ahead] [--further] [--step_log]
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from benchmarks.logging_engine import logged_run
from simulator.arrays import IntArray
from simulator.fit import fit_engine, fit_structure
from simulator.logged import logged_steps
from simulator.recorded import simulated_run
from simulator.server import Admission, FrontEnd, Order, Server, StepLaw
from simulator.simulation import simulate
from simulator.step_law import FURTHER, FittedLaw
from simulator.steps import Steps, recover_steps
from simulator.structure import known_structure
from simulator.traffic import Traffic

_LOADS = (0.35, 0.6)
_LOADS_TO_THE_LIMIT = (0.6, 1.1)  # else no run shows a batch limit
_INTERVAL = (2.5, 97.5)  # per cent
_CONSTANTS = ("step", "prefill", "sequence", "launch", *FURTHER)  # "launch" of servers that launch steps ahead
_NOISE, _OTHER_NOISE = 50_000, 4_000  # values: no run uses the first up, so that its steps are independent
_STRUCTURES = {
    "plain": Admission(),
    "limit": Admission(max_sequences=16),
    "chunks": Admission(token_budget=256),
    "prefill_first": Admission(order=Order.PREFILL_FIRST),
    "ahead": Admission(lookahead=1),
}
_FURTHER_OF_STEP = {"prefill_step": (0.1, 0.6), "context": (5e-6, 5e-5), "prefill_context": (5e-7, 5e-6)}  # of its constant

Lengths = Callable[[np.random.Generator, int], tuple[IntArray, IntArray]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=800, help="of each of the two runs")
    parser.add_argument("--known_structure", action="store_true", help="fit the law alone, which is ten times as fast")
    parser.add_argument("--servers", choices=_SERVERS, default="usual")
    parser.add_argument("--structure", choices=_STRUCTURES, nargs="*", help="those that servers have by turns")
    parser.add_argument("--further", action="store_true", help="one more constant for each server")
    parser.add_argument("--step_log", action="store_true", help="fit the rows of the engine's log")
    options = parser.parse_args()
    servers = _SERVERS[options.servers]
    structures = [_STRUCTURES[name] for name in options.structure or _STRUCTURES]
    structures = [each for each in structures if not (each.lookahead and (options.step_log or options.further))]
    made = _with_log if options.step_log else _without_log
    start, right, zeros, inside, errors = time.monotonic(), [], [], [], []
    for number in range(options.fits):
        random = np.random.default_rng([options.seed, number])
        server = servers.server(random, structures[number % len(structures)])
        if options.further:
            server = _with_further(random, server, FURTHER[number // len(structures) % len(FURTHER)])
        capacity = capacity_of(server, servers.lengths, options.requests, random)
        loads = _LOADS if server.admission.max_sequences is None else _LOADS_TO_THE_LIMIT
        names = [f"at {load}" for load in loads]
        traffics = [servers.traffic(random, options.requests, load * capacity) for load in loads]
        steps = [made(server, traffic, number, name) for traffic, name in zip(traffics, names, strict=True)]
        if options.known_structure:
            structure = known_structure(steps, server.admission)
            law = fit_structure(structure, number)
        else:
            structure, law = fit_engine(steps, names, number)
        found = structure.admission
        right.append(found == server.admission)
        zeros.append(_zeros_are_right(law, server))
        inside.append([_is_inside(law, server, name) for name in _CONSTANTS])
        errors.append([_relative_error(law, server, name) for name in _CONSTANTS])
        print(
            f"{time.monotonic() - start:.0f} s, {server.admission} fitted as {found} {law.terms}: {inside[-1]} "
            f"{np.round(errors[-1], 4).tolist()}",
            flush=True,
        )
    rows = [_row(name, column, inside, errors) for column, name in enumerate(_CONSTANTS)]
    headers = ("constant", "in its interval", "median error", "nine in ten at most")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    print(f"Structure right: {sum(right)} of {options.fits}. Zeros right: {sum(zeros)}.")


def _zeros_are_right(law: FittedLaw, server: Server) -> bool:
    """Whether the law has no constant and no threshold that the server does not have."""
    has_none = all(getattr(server.law, term) > 0 for term in law.terms)
    return has_none and law.base.free_prefill == 0 and law.base.large_step is None


def _row(name: str, column: int, inside: Sequence[Sequence[bool | None]], errors: Sequence[Sequence[float]]) -> tuple[str, ...]:
    """What the fits whose server has the constant say."""
    own = [each[column] for each in inside if each[column] is not None]
    if not own:
        return (name, "–", "–", "–")
    size = np.abs([each[column] for each in errors])
    size = size[np.isfinite(size)]
    worst = f"{np.percentile(size, 90):.2%}" if size.size else "–"
    middle = f"{np.median(size):.2%}" if size.size else "–"
    return name, f"{sum(map(bool, own))} of {len(own)}", middle, worst


def _without_log(server: Server, traffic: Traffic, seed: int, name: str) -> Steps:
    """The steps of a run that the arrivals of tokens show."""
    return recover_steps(simulated_run(server, traffic, seed, name))


def _with_log(server: Server, traffic: Traffic, seed: int, name: str) -> Steps:
    """The steps of a run by the log of its engine."""
    run = logged_run(server, traffic, seed, name)
    with tempfile.TemporaryDirectory() as folder:
        [steps] = logged_steps([run.observed], [run.write(Path(folder) / "steps.csv")])
    return steps


def _server(random: np.random.Generator, admission: Admission) -> Server:
    step = random.uniform(4e-3, 20e-3)
    launch = step * random.uniform(1.2, 2) if admission.lookahead else 0.0
    noise = random.standard_normal(_NOISE) * step * random.uniform(0.01, 0.04)
    return Server(
        StepLaw(
            step=step, prefill=step * random.uniform(1e-3, 5e-3), sequence=step * random.uniform(4e-3, 2e-2), launch=launch
        ),
        admission,
        FrontEnd(
            delay=random.uniform(0, 4e-3), intake=random.uniform(2e-4, 2e-3), token=2e-6, response=random.uniform(1e-5, 5e-5)
        ),
        noise=tuple((noise - noise.mean()).tolist()),  # else its mean is a part of each step
    )


def _other_server(random: np.random.Generator, admission: Admission) -> Server:
    server = _server(random, admission)
    correlation, white, noise = random.uniform(0, 0.8), random.standard_t(4, _OTHER_NOISE), np.empty(_OTHER_NOISE)
    before = 0.0
    for number, value in enumerate(white.tolist()):
        noise[number] = before = correlation * before + value
    noise *= server.law.step * random.uniform(0.01, 0.04) / noise.std()
    front_end = replace(server.front_end, token=random.uniform(1e-6, 2e-5), intake_rounds=int(random.integers(1, 6)))
    return replace(server, front_end=front_end, noise=tuple((noise - noise.mean()).tolist()))


def _with_further(random: np.random.Generator, server: Server, term: str) -> Server:
    further: dict[str, Any] = {term: server.law.step * random.uniform(*_FURTHER_OF_STEP[term])}
    return replace(server, law=replace(server.law, **further))


def _lengths(random: np.random.Generator, requests: int) -> tuple[IntArray, IntArray]:
    return 8 + random.geometric(1 / 200, requests), random.geometric(1 / 32, requests)


def _other_lengths(random: np.random.Generator, requests: int) -> tuple[IntArray, IntArray]:
    prompts, outputs = random.lognormal(math.log(120), 0.9, requests), random.lognormal(math.log(25), 0.7, requests)
    return 8 + prompts.astype(np.int64), np.maximum(1, outputs).astype(np.int64)


@dataclass(frozen=True)
class _Servers:
    """How servers, and the prompt and output lengths of their requests, are drawn, and the coefficient of variation of the
    gaps between requests.
    """

    server: Callable[[np.random.Generator, Admission], Server]
    lengths: Lengths
    cv: float

    def traffic(self, random: np.random.Generator, requests: int, rate: float) -> Traffic:
        """So many requests a second."""
        prompts, outputs = self.lengths(random, requests)
        gaps = random.gamma(1 / self.cv**2, self.cv**2 / rate, requests)
        return Traffic(np.cumsum(gaps), prompts, prompts, outputs)


USUAL = _Servers(_server, _lengths, 1.0)
_SERVERS = {"usual": USUAL, "other": _Servers(_other_server, _other_lengths, 2.0)}


def capacity_of(server: Server, lengths: Lengths, requests: int, random: np.random.Generator) -> float:
    """About how many requests a second the server can take: the throughput of a closed loop of 24 users."""
    prompts, outputs = lengths(random, requests)
    traffic = Traffic(np.zeros(requests), prompts, prompts, outputs, 24)
    answers = simulate(replace(server, noise=(0.0,)), traffic, 0)
    return float(requests / (answers.last_s.max() - answers.sent_s[0]))


def _is_inside(law: FittedLaw, server: Server, name: str) -> bool | None:
    """None where the server does not have the constant; a law that lacks it is wrong."""
    if not getattr(server.law, name):
        return None
    if name not in law.terms:
        return False
    low, high = np.percentile(law.draws[:, law.terms.index(name)], _INTERVAL)
    return bool(low <= getattr(server.law, name) <= high)


def _relative_error(law: FittedLaw, server: Server, name: str) -> float:
    """Not a number where the server or the law does not have the constant."""
    if name not in law.terms or not (truth := getattr(server.law, name)):
        return math.nan
    return float(law.coefficients[law.terms.index(name)] / truth - 1)


if __name__ == "__main__":
    main()
