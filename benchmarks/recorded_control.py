"""What a fitted model explains of the requests beyond a limit in recorded runs of a real server: how much their number varies
with the model as a control variate, beside without.

A model of ``bench simulate fit`` is simulated on the schedules of runs in an open loop. The limit of each run is the TTFT that
1 % of its requests exceed, and 5 %; requests beyond it are counted in blocks of equal numbers of requests, without the first
tenth. The coefficient of a run is that of all others. A ratio of 2 is worth twice the requests.

Run: python -m benchmarks.recorded_control --model model.json RUN RUN … [--blocks 16]
Each RUN is a folder, or its requests.parquet.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tabulate import tabulate

from reports.statistics.arrays import FloatArray
from simulator.arrays import BoolArray
from simulator.model import read_model
from simulator.observed import Observed, read_observed
from simulator.server import Server
from simulator.simulation import simulate

_SHARES = (0.01, 0.05)
_RAMP = 0.1
_SIMULATIONS = 10  # with noise of other seeds, whose mean is what the model says of a schedule


@dataclass(frozen=True)
class Counts:
    """Requests beyond a limit in blocks, shape [blocks] each, less their mean: of the run and of the model."""

    measured: FloatArray
    simulated: FloatArray

    @property
    def scale(self) -> float:
        return float(self.measured @ self.measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--blocks", type=int, default=16)
    options = parser.parse_args()
    model, runs = read_model(options.model).server, [read_observed(path) for path in options.runs]
    simulated = [_simulated(model, run) for run in runs]
    for share in _SHARES:
        counts = [_counts(run, of_model, share, options.blocks) for run, of_model in zip(runs, simulated, strict=True)]
        rows, left = [], []
        for number, (run, own) in enumerate(zip(runs, counts, strict=True)):
            beta = _coefficient([each for other, each in enumerate(counts) if other != number])
            left.append(_left(own, beta))
            rows.append((run.name, len(run), f"{_correlation(own):.2f}", f"{beta:.2f}", f"{1.0 / left[-1]:.2f}"))
        print(tabulate(rows, headers=(f"p{100 - 100 * share:g} TTFT", "requests", "correlation", "coefficient", "times")))
        print(
            f"All runs: the variance with the model is {np.mean(left):.2f} of that without, {1.0 / np.mean(left):.2f} times.\n"
        )


def _simulated(model: Server, run: Observed) -> list[FloatArray]:
    """TTFT in s on the run's own schedule, by seeds; shape [requests] each."""
    traffic = run.traffic(np.maximum.accumulate(run.scheduled_s))
    return [simulate(model, traffic, seed).first_s - traffic.arrivals_s for seed in range(_SIMULATIONS)]


def _counts(run: Observed, simulated: list[FloatArray], share: float, blocks: int) -> Counts:
    ttft_s, due_s = run.first_s - run.scheduled_s, run.scheduled_s
    kept = due_s >= due_s[0] + _RAMP * (due_s[-1] - due_s[0])
    limit_s = float(np.quantile(ttft_s[kept], 1.0 - share))
    measured = _in_blocks(ttft_s[kept] > limit_s, blocks)
    of_model = np.mean([_in_blocks(each[kept] > limit_s, blocks) for each in simulated], axis=0)
    return Counts(measured - measured.mean(), of_model - of_model.mean())


def _in_blocks(beyond: BoolArray, blocks: int) -> FloatArray:
    return np.array([part.sum() for part in np.array_split(beyond, blocks)], np.float64)


def _coefficient(runs: list[Counts]) -> float:
    """Each run counts alike, however many of its requests are beyond the limit."""
    products = sum(float(run.measured @ run.simulated) / run.scale for run in runs)
    squares = sum(float(run.simulated @ run.simulated) / run.scale for run in runs)
    return max(0.0, products / squares) if squares else 0.0


def _left(run: Counts, beta: float) -> float:
    residual = run.measured - beta * run.simulated
    return float(residual @ residual) / run.scale


def _correlation(run: Counts) -> float:
    squares = run.scale * float(run.simulated @ run.simulated)
    return float(run.measured @ run.simulated) / squares**0.5 if squares else 0.0


if __name__ == "__main__":
    main()
