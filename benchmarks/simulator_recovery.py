"""How often the engine of a simulated server is recovered from the records of its clients alone: law and structure.

Each fit has a server of its own, with constants drawn from wide ranges and a structure by turns: plain, with a batch limit,
with chunks, with prompts first, or with steps that are launched while the one before runs. It is fitted to two runs, at about
0.35 and 0.6 of the load that it can take, or at 0.6 and 1.1 where there is a batch limit. Requirement: the intervals of 95 %
contain the constants of the step in 90 to 99 % of all fits, and the structure is right in 90 %.

Run: python -m benchmarks.simulator_recovery [--fits 40] [--seed 1] [--requests 800] [--known_structure]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
from tabulate import tabulate

from simulator.arrays import IntArray
from simulator.fit import fit_engine, fit_structure
from simulator.recorded import simulated_run
from simulator.server import Admission, FrontEnd, Order, Server, StepLaw
from simulator.simulation import simulate
from simulator.step_law import FittedLaw
from simulator.steps import recover_steps
from simulator.structure import known_structure
from simulator.traffic import Traffic

_LOADS = (0.35, 0.6)
_LOADS_TO_THE_LIMIT = (0.6, 1.1)  # else no run shows a batch limit
_INTERVAL = (2.5, 97.5)  # per cent
_CONSTANTS = ("step", "prefill", "sequence")
_STRUCTURES = (
    Admission(),
    Admission(max_sequences=16),
    Admission(token_budget=256),
    Admission(order=Order.PREFILL_FIRST),
    Admission(lookahead=1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=800, help="of each of the two runs")
    parser.add_argument("--known_structure", action="store_true", help="fit the law alone, which is ten times as fast")
    options = parser.parse_args()
    start, right, inside, errors = time.monotonic(), [], [], []
    for number in range(options.fits):
        random = np.random.default_rng([options.seed, number])
        server = _server(random, _STRUCTURES[number % len(_STRUCTURES)])
        capacity = _capacity(server, options.requests, random)
        runs = [
            simulated_run(server, _traffic(random, options.requests, load * capacity), number, f"at {load}")
            for load in (_LOADS if server.admission.max_sequences is None else _LOADS_TO_THE_LIMIT)
        ]
        steps = [recover_steps(run) for run in runs]
        if options.known_structure:
            structure = known_structure(steps, server.admission)
            law = fit_structure(structure, number)
        else:
            structure, law = fit_engine(steps, [run.name for run in runs], number)
        found = structure.admission
        right.append(found == server.admission)
        inside.append([_is_inside(law, server, name) for name in _CONSTANTS])
        errors.append([_relative_error(law, server, name) for name in _CONSTANTS])
        print(
            f"{time.monotonic() - start:.0f} s, {server.admission} fitted as {found}: {inside[-1]} {np.round(errors[-1], 3)}",
            flush=True,
        )
    rows = [
        (
            name,
            f"{np.mean([each[column] for each in inside]):.0%}",
            f"{np.median(np.abs([each[column] for each in errors])):.1%}",
        )
        for column, name in enumerate(_CONSTANTS)
    ]
    print(tabulate(rows, headers=("constant", "in its interval", "median error"), disable_numparse=True))
    print(f"Structure right: {np.mean(right):.0%} of {options.fits}.")


def _server(random: np.random.Generator, admission: Admission) -> Server:
    step = random.uniform(4e-3, 20e-3)
    launch = step * random.uniform(1.2, 2) if admission.lookahead else 0.0
    noise = random.standard_normal(2_000) * step * random.uniform(0.01, 0.04)
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


def _traffic(random: np.random.Generator, requests: int, rate: float, users: int | None = None) -> Traffic:
    prompts: IntArray = 8 + random.geometric(1 / 200, requests)
    outputs: IntArray = random.geometric(1 / 32, requests)
    return Traffic(np.cumsum(random.exponential(1 / rate, requests)), prompts, prompts, outputs, users)


def _capacity(server: Server, requests: int, random: np.random.Generator) -> float:
    """About how many requests a second the server can take: the throughput of a closed loop of 24 users."""
    answers = simulate(replace(server, noise=(0.0,)), _traffic(random, requests, 1e6, 24), 0)
    return float(requests / (answers.last_s.max() - answers.sent_s[0]))


def _is_inside(law: FittedLaw, server: Server, name: str) -> bool:
    low, high = np.percentile(law.draws[:, law.terms.index(name)], _INTERVAL)
    return bool(low <= getattr(server.law, name) <= high)


def _relative_error(law: FittedLaw, server: Server, name: str) -> float:
    return float(law.coefficients[law.terms.index(name)] / getattr(server.law, name) - 1)


if __name__ == "__main__":
    main()
