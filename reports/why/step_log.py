"""The step log of the embedded engine (docs/reference/step-log.md), joined with the requests of a run.

A token comes with the end of its step. So the steps of a request's decode are those that end after its first token and not
after its last one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench_records.step_log import LoggedSteps, StepLogFileError, no_times, read_step_log, why_none
from reports.metrics.catalogue import E2E
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray, finite

_GROUP, _MOST_GROUPS = 9, 16  # steps of about as many sequences without prompts, and groups of them


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What the steps with requests of the run did that began from ``start_s`` to ``end_s`` on the run's clock.

    ``known`` is how many of them have known contents; the following counts and means cover these. ``alone_ms`` is the mean
    duration of those with decode and no prompt, ``beside_ms`` that of the ``beside`` ones with prompts, during which a request
    of the run was in decode; ``compared`` of these took ``added_ms`` more on average than steps of about as many sequences
    without prompts. ``sequences`` and ``waiting`` are means of requests over all steps. None where unknown.
    """

    start_s: float
    end_s: float
    steps: int
    known: int
    beside: int | None
    alone_ms: float | None
    beside_ms: float | None
    compared: int
    added_ms: float | None
    sequences: float | None
    waiting: float | None
    most_kv_blocks: int | None


@dataclass(frozen=True)
class LoggedRun:
    """A run whose engine logged its steps. Where ``divided`` of the ``timed`` requests are all of them, the decode of each is
    divided, and of no request otherwise: what belongs beside prefill and what to the rest would be unknown of some.

    ``steps`` are those with a request of the run, ``in_decode`` whether one was in decode meanwhile, shape [n]; ``start_ns`` is
    the run's start on the clock of the steps, late by what a request takes to the engine.
    """

    report: RunReport
    steps: LoggedSteps
    in_decode: NDArray[np.bool_]
    start_ns: float
    timed: int
    divided: int

    def facts(self, edges_ns: FloatArray | None = None) -> tuple[StepFacts, ...]:
        """What the steps did between each two of these times on the run's clock, shape [k + 1], those before and after all of
        them in the first and the last part; of the time of all steps without ``edges_ns``.
        """
        steps = self.steps
        if not steps.start_ns.size:
            return ()
        if edges_ns is None:
            edges_ns = np.array([steps.start_ns[0], steps.end_ns[-1]]) - self.start_ns
        added, parts = added_ns(steps), edges_ns.size - 1
        part = np.clip(np.searchsorted(edges_ns, steps.start_ns - self.start_ns, side="right") - 1, 0, parts - 1)
        return tuple(
            _facts(steps.only(part == k), self.in_decode[part == k], added[part == k], (edges_ns[k], edges_ns[k + 1]))
            for k in range(parts)
        )


def with_step_log(report: RunReport, path: Path) -> LoggedRun:
    """The run with the step log at ``path`` of its server.

    Raises StepLogFileError, and OSError.
    """
    clock = report.manifest.clock
    offset_ns = None if clock is None or clock.before is None else clock.before.realtime_minus_monotonic_ns
    steps = read_step_log(path, offset_ns)
    requests = report.all_requests
    arrival_ns = requests.server_arrival_ns
    first_ns = arrival_ns + requests.server_queue_ns + requests.server_prefill_ns
    assert E2E.ends_ns is not None
    last_ns = np.where(np.isnan(E2E.ends_ns(requests)), np.nan, first_ns + requests.server_decode_ns)
    timed = ~np.isnan(last_ns)
    if not timed.any():
        raise no_times(path, "the run")
    found = timed & steps.ends_at(first_ns) & steps.ends_at(last_ns)
    if not found.any():
        raise StepLogFileError(f"--step_log {path}: {why_none(steps, first_ns[timed], last_ns[timed])}")
    beside_ns = np.full(timed.size, np.nan)
    beside = np.where(steps.prefill_tokens > 0, steps.duration_ns, np.where(np.isnan(steps.prefill_tokens), np.nan, 0.0))
    beside_ns[found] = _sums(beside, steps, first_ns[found], last_ns[found])
    divided = int(np.count_nonzero(~np.isnan(beside_ns)))
    if divided == np.count_nonzero(timed):
        report = replace(report, all_requests=replace(requests, server_beside_prefill_ns=beside_ns))
    of_run = steps.covered(arrival_ns[timed], last_ns[timed])
    in_decode = steps.covered(first_ns[timed], last_ns[timed])
    start_ns = float(np.median(arrival_ns[timed] - requests.sent_ns[timed]))
    return LoggedRun(report, steps.only(of_run), in_decode[of_run], start_ns, int(timed.sum()), divided)


def added_ns(steps: LoggedSteps) -> FloatArray:
    """How much longer each step took than steps of about as many sequences in decode without prompts, shape [n]: the medians of
    groups of these, and between them a line. 0 of a step without prompts, all of one with prompts alone, and NaN of one with
    more or fewer sequences than any of these, or whose contents are unknown.
    """
    alone = (steps.prefill_tokens == 0) & (steps.decode_tokens > 0)
    counts, durations_ns = steps.decode_tokens[alone], steps.duration_ns[alone]
    usual_ns = np.full(len(steps), np.nan)
    if counts.size >= _GROUP:
        groups = np.array_split(np.argsort(counts, kind="stable"), min(_MOST_GROUPS, counts.size // _GROUP))
        middle = np.concatenate([np.full(group.size, np.median(counts[group])) for group in groups])
        ordered = durations_ns[np.concatenate(groups)]
        different = np.unique(middle)  # several groups may have the same number of sequences, and then count as one
        medians = np.array([np.median(ordered[middle == count]) for count in different])
        usual_ns = np.interp(steps.decode_tokens, different, medians)
        usual_ns[(steps.decode_tokens < counts.min()) | (steps.decode_tokens > counts.max())] = np.nan
    added = np.where(steps.decode_tokens == 0, steps.duration_ns, steps.duration_ns - usual_ns)
    return np.where(steps.prefill_tokens == 0, 0.0, added)


def _facts(steps: LoggedSteps, in_decode: NDArray[np.bool_], added: FloatArray, between_ns: tuple[float, float]) -> StepFacts:
    known = int(np.count_nonzero(~np.isnan(steps.prefill_tokens + steps.decode_tokens)))
    beside = (steps.prefill_tokens > 0) & in_decode
    alone = (steps.prefill_tokens == 0) & (steps.decode_tokens > 0)
    compared = beside & ~np.isnan(added)
    blocks = steps.kv_blocks[~np.isnan(steps.kv_blocks)]
    return StepFacts(
        start_s=float(between_ns[0]) / 1e9,
        end_s=float(between_ns[1]) / 1e9,
        steps=steps.start_ns.size,
        known=known,
        beside=int(np.count_nonzero(beside)) if known or not steps.start_ns.size else None,
        alone_ms=_mean(steps.duration_ns[alone] / 1e6),
        beside_ms=_mean(steps.duration_ns[beside] / 1e6),
        compared=added[compared].size,
        added_ms=_mean(added[compared] / 1e6),
        sequences=_mean(steps.sequences),
        waiting=_mean(steps.waiting),
        most_kv_blocks=int(blocks.max()) if blocks.size else None,
    )


def _mean(values: FloatArray) -> float | None:
    """The mean; None of no values, and where one is unknown."""
    return finite(float(values.mean())) if values.size else None


def _sums(values: FloatArray, steps: LoggedSteps, first_ns: FloatArray, last_ns: FloatArray) -> FloatArray:
    """The sum of the steps' ``values`` after each first token up to the last one, shape [m]; NaN where one is unknown."""
    low, high = steps.first_after(first_ns), steps.first_after(last_ns)
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values))])
    unknown = np.concatenate([[0], np.cumsum(np.isnan(values))])
    return np.where(unknown[high] > unknown[low], np.nan, total[high] - total[low])
