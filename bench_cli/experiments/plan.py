"""The plan of a series: a randomised block design, so that drift of the machine does not decide the comparison."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench_records.experiment import Experiment, PlannedArm, PlannedRun, UntilDecided


def plan_runs(
    kind: str,
    arguments: Sequence[str],
    arms: Sequence[PlannedArm],
    repeats: int,
    seed: int,
    until: UntilDecided | None = None,
) -> Experiment:
    """``repeats`` blocks, each with one run of every arm, in an order drawn anew for each block (randomised blocks: Fisher).

    With two arms, each is first in half the blocks (one more, where ``repeats`` is odd), so that neither gains from its place.
    With ``until`` that is so of every second block, since any may be the last. ``kind`` is "experiment" or "sweep".
    """
    runs: list[PlannedRun] = []
    orders = _orders(len(arms), repeats, seed) if until is None else _orders_to_any_end(len(arms), repeats, seed)
    for block, order in enumerate(orders):
        for arm in order:
            runs.append(PlannedRun(arm, block, f"{len(runs) + 1:03d}-{folder_name(arms[arm].name)}"))
    return Experiment(kind, tuple(arguments), tuple(arms), tuple(runs), seed, until)


def continued(recorded: Experiment, asked: Experiment) -> Experiment | None:
    """The plan ``recorded`` with the blocks that ``asked`` has beyond it; None where they differ in more than their number of
    blocks and a command before each run, or ``asked`` has fewer.

    The order within the blocks that are added is that of ``asked``, so of two arms one may go first more often than the other.
    """
    if replace(recorded, runs=()) != replace(asked, runs=(), before_each=recorded.before_each) or len(asked.runs) < len(
        recorded.runs
    ):
        return None
    return replace(recorded, runs=recorded.runs + asked.runs[len(recorded.runs) :])


def block_seed(experiment: Experiment, run: PlannedRun) -> int:
    """The seed of a run's traffic: one for all arms of a block, another for each block."""
    return experiment.seed + run.block


def _orders(arms: int, blocks: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng([seed, arms, blocks])
    if arms != 2:
        return [rng.permutation(arms).tolist() for _ in range(blocks)]
    first = rng.permutation([block % 2 for block in range(blocks)])
    return [[int(arm), 1 - int(arm)] for arm in first]


def _orders_to_any_end(arms: int, blocks: int, seed: int) -> list[list[int]]:
    """Orders that do not depend on the number of ``blocks``; of two arms either goes first in one of every two blocks."""
    rng = np.random.default_rng([seed, arms])
    if arms != 2:
        return [rng.permutation(arms).tolist() for _ in range(blocks)]
    pairs = [first for _ in range(0, blocks, 2) for first in rng.permutation(2).tolist()]
    return [[first, 1 - first] for first in pairs[:blocks]]


def folder_name(name: str) -> str:
    """A name of an arm or a setting as a part of the name of its folder."""
    return re.sub(r"[^A-Za-z0-9_.=-]+", "_", name)[:80] or "arm"
