"""Coverage of predicted ranges where the speed of a server moves between runs, with and without what the fit finds of it.

Simulated servers as in ``benchmarks.simulator_recovery``, whose engine takes another time in each run: log-normal, with a
standard deviation of ``--moves``. Each is fitted to ``--runs`` runs, at 0.4 to 0.75 of the load that it can take, and predicts
four others. The ranges of 5 to 95 % should hold 90 % of their figures, and be no wider for a server of constant speed
(``--moves 0``).

Run: python -m benchmarks.simulator_moving [--servers 12] [--moves 0.03] [--runs 2] [--seed 78]
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, field, replace

import numpy as np
from tabulate import tabulate

from benchmarks.simulator_recovery import USUAL, capacity_of
from simulator.fit import fit
from simulator.latencies import THROUGHPUT
from simulator.model import BetweenRuns, Model
from simulator.observed import Observed
from simulator.recorded import simulated_run
from simulator.server import Admission, Server
from simulator.validation import Prediction, validate

_REQUESTS = 800  # of a run
_FITTED_LOADS = (0.4, 0.75)
_LOADS = (0.4, 0.5, 0.6, 0.7)
_DRAWS = 10


@dataclass
class _Ranges:
    """The predictions of latencies by one kind of model."""

    predictions: list[Prediction] = field(default_factory=list)

    def add(self, model: Model, runs: list[Observed]) -> None:
        for run in runs:
            found = validate(model, run, _DRAWS, 0).predictions
            self.predictions += [each for each in found if each.key[0] != THROUGHPUT]

    def row(self, name: str) -> tuple[str, str, str, str]:
        covered = [each.is_covered for each in self.predictions]
        width = np.median([each.high / each.low - 1 for each in self.predictions])
        return name, f"{sum(covered)} of {len(covered)}", f"{np.mean(covered):.0%}", f"{width:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=12)
    parser.add_argument("--moves", type=float, default=0.03, help="standard deviation of the logarithm of a run's step times")
    parser.add_argument("--runs", type=int, default=2, help="that a model is fitted to")
    parser.add_argument("--seed", type=int, default=78)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    without, with_it = _Ranges(), _Ranges()
    for number in range(options.first, options.servers):
        random = np.random.default_rng([options.seed, number])
        server = USUAL.server(random, Admission())
        capacity = capacity_of(server, USUAL.lengths, _REQUESTS, random)
        loads = [*np.linspace(*_FITTED_LOADS, options.runs), *_LOADS]
        runs = [_run(server, load * capacity, options.moves, random) for load in loads]
        model = fit(runs[: options.runs], number, lambda line: None)
        without.add(replace(model, between_runs=BetweenRuns()), runs[options.runs :])
        with_it.add(model, runs[options.runs :])
        print(f"{number}: {model.between_runs}, {without.row('without')[1]}, {with_it.row('with')[1]}", flush=True)
    rows = [without.row("draws, seeds and halves alone"), with_it.row("with the speeds between runs")]
    print(tabulate(rows, headers=("ranges", "hold", "", "median width"), disable_numparse=True))


def _run(server: Server, rate: float, moves: float, random: np.random.Generator) -> Observed:
    time = math.exp(moves * random.standard_normal())
    moved = replace(server, law=server.law.slower(time))
    traffic = USUAL.traffic(random, _REQUESTS, rate)
    return simulated_run(moved, traffic, int(random.integers(1 << 30)), f"at {rate:.3g}/s")


if __name__ == "__main__":
    main()
