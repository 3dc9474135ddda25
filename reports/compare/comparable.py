"""Comparability of runs, from their manifests: the requested work must be equal, the target may differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np

from reports.findings.target import MachineShared, TargetPaused
from reports.run_report import RunReport


class Weight(StrEnum):
    """What a disagreement does to a comparison."""

    REFUSE = "refuse"  # the work was different, or a run is invalid
    WARN = "warn"  # part of the difference may come from here
    CHANGED = "changed"  # of the target: most likely the subject of the comparison
    NOTE = "note"  # a result of the runs, not a setting


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A key of the manifests in which runs differ; ``values`` in the order of the runs, as text ("–": absent)."""

    what: str
    weight: Weight
    values: tuple[str, ...]
    advice: str

    @property
    def values_text(self) -> str:
        """The values in their order; equal ones that follow each other once, with their number."""
        runs = [(value, len(list(equal))) for value, equal in groupby(self.values)]
        return " | ".join(value if count == 1 else f"{value} (× {count})" for value, count in runs)


# The weight of each section of a manifest; the longest prefix of a key counts. None is not compared: a target's address does
# not affect its results, bench verify has the engine's files, repeated prefixes follow from workload and seed (their order of
# sending is random), as do the numbers of probes and cancelled requests, objectives do not change what is sent, and the law,
# its rate and its stages are in "arrivals", too.
_WEIGHTS: Mapping[str, Weight | None] = {
    "workload": Weight.REFUSE,
    "workload.repeated_prefix": None,
    "workload.shared_prefix_limit": None,
    "workload.shared_prefix_limit_unscaled": None,
    "workload.shared_prefix_common": None,
    "workload.whole_dataset": None,
    "mixture": Weight.REFUSE,
    "mixture.cancellation.requests": None,
    "mixture.objectives": None,
    "mixture.probe.requests": None,
    "arrivals": Weight.REFUSE,
    "load": Weight.REFUSE,
    "load.asked_arrivals": None,
    "load.law": None,
    "load.ran_out": Weight.NOTE,
    "load.stages": None,
    "target.streaming": Weight.REFUSE,
    "target.protocol": Weight.WARN,
    "target": Weight.CHANGED,
    "target.continuous_usage": Weight.WARN,
    "target.sends_finish_reason": None,
    "target.template_tokens": None,
    "target.server_timings": Weight.WARN,
    "target.retokenised_ratio": None,
    "target.address": None,
    "target.embedded": None,
    "simulation": Weight.CHANGED,
    "simulation.model": None,
    "simulation.draws": None,
    "simulation.ranges": None,
    "simulation.beyond": None,
    "server": Weight.CHANGED,
    "server.engine_files": None,
    "schedule": Weight.WARN,
    "warm_up.requests": Weight.WARN,
    "prefix_cache_reset": Weight.WARN,
    "options.workers": Weight.WARN,
    "workers.count": Weight.NOTE,
    "environment": Weight.WARN,
    "bench_version": Weight.WARN,
}
_ADVICE = {
    Weight.REFUSE: "Runs of different work cannot be compared: measure both alike, or use --allow_different.",
    Weight.WARN: "Part of the difference may come from here; keep it equal.",
    Weight.CHANGED: "If all else is equal, this is the change that the comparison measures.",
    Weight.NOTE: "A result of the runs, not a setting.",
}
_ADVICE_FOR = {
    "schedule.digest": "Part of the difference may come from here: measure both sides with the same seeds, by one release.",
    "load.ran_out": "A run whose requests ran out ended before --duration: raise --num_requests for both.",
    "workers.count": "Chosen by load and machine; set it with --workers.",
}
_SAME_START_S = 2.0  # by which two readings of when a process began may differ: the clock was set meanwhile
SIMULATION = "simulation"
_ABSENT = "–"
_MEASURED = "measured"
_ONE_SIDE = (
    "A simulated run beside a measured one shows how wrong the model is: 'bench simulate validate' does that, or "
    "--allow_simulated compares them all the same."
)
_ALL_SIMULATED = "No server was measured: the differences are those of a model, and as wrong as it is."
# Findings about a run's surroundings, which part of any difference may come from.
_DISTURBED = {
    MachineShared.code: "Other programs took CPU time from the target: part of the difference may come from them.",
    TargetPaused.code: "The target stopped for a time: part of the difference, of tails above all, may come from that.",
}


def disagreements(runs: Sequence[RunReport]) -> tuple[Disagreement, ...]:
    """All differences between ``runs``, and all faults of one of them, the most serious first."""
    unsorted = [*_credibility(runs), *_simulations(runs), *_requests(runs), *_settings(runs)]
    return tuple(sorted(unsorted, key=lambda disagreement: list(Weight).index(disagreement.weight)))


def refused(disagreements: Sequence[Disagreement]) -> bool:
    """Whether a disagreement rules out a comparison."""
    return any(disagreement.weight is Weight.REFUSE for disagreement in disagreements)


def without_refusals(
    found: Sequence[Disagreement], *, allow_different: bool, allow_simulated: bool
) -> tuple[Disagreement, ...]:
    """The disagreements, those that rule out a comparison left out where they are allowed: that one side alone was simulated by
    ``allow_simulated``, all others by ``allow_different``.
    """
    return tuple(
        each
        for each in found
        if each.weight is not Weight.REFUSE or not (allow_simulated if each.what == SIMULATION else allow_different)
    )


def same_requests(runs: Sequence[RunReport]) -> bool:
    """Whether all runs sent the same requests of the same schedule in the same order, so that these can be paired.

    In a closed loop the server's answers decide the order and, where it ends by the clock, the number.
    """
    first, *others = runs
    return _same_schedule(runs) and all(np.array_equal(first.requests.index, run.requests.index) for run in others)


def _same_schedule(runs: Sequence[RunReport]) -> bool:
    return len({run.schedule.digest for run in runs}) == 1


def schedules_apart(a: Sequence[RunReport], b: Sequence[RunReport]) -> bool:
    """Whether the runs of a side repeat a schedule that the other side has not as often, in proportion.

    The spread of such repeats lacks what one schedule differs from another, and the difference of the sides has it. Where every
    run of both sides has a schedule of its own, their spread has it, too; single runs estimate it within the run.
    """
    shares = (_shares_of_schedules(a), _shares_of_schedules(b))
    repeated = any(len(side) < len(runs) for side, runs in zip(shares, (a, b), strict=True))
    return shares[0] != shares[1] and repeated


def same_schedules(a: Sequence[RunReport], b: Sequence[RunReport]) -> bool:
    """Whether both sides have the same schedules, each as often in proportion: then no difference of sides comes from these."""
    return _shares_of_schedules(a) == _shares_of_schedules(b)


def one_start(runs: Sequence[RunReport]) -> bool:
    """Whether all ``runs`` are known to come from one start of one server."""
    began_at = [run.manifest.server_began_at for run in runs]
    known = [at for at in began_at if at is not None]
    addresses = {run.manifest.target.address for run in runs}
    return len(known) == len(runs) and len(addresses) == 1 and max(known) - min(known) <= _SAME_START_S


def _shares_of_schedules(runs: Sequence[RunReport]) -> dict[str, Fraction]:
    counts = Counter(run.schedule.digest for run in runs)
    return {digest: Fraction(count, len(runs)) for digest, count in counts.items()}


def _credibility(runs: Sequence[RunReport]) -> Iterator[Disagreement]:
    if not all(run.valid for run in runs):
        codes = [", ".join(f.code for f in run.findings if f.severity.value == "invalid") or "valid" for run in runs]
        yield Disagreement(
            "validity", Weight.REFUSE, tuple(codes), "An invalid run cannot be compared; see its report, and measure again."
        )
    for code, advice in _DISTURBED.items():
        found = [next((finding.sentence for finding in run.findings if finding.code == code), None) for run in runs]
        if any(found):
            yield Disagreement(
                code, Weight.WARN, tuple(_ABSENT if sentence is None else sentence for sentence in found), advice
            )
    stopped = [bool(run.manifest.interrupted) for run in runs]
    if any(stopped):
        values = tuple("interrupted" if is_cut else "whole" for is_cut in stopped)
        yield Disagreement("interrupted", Weight.WARN, values, "An interrupted run is shorter than requested.")


def _simulations(runs: Sequence[RunReport]) -> Iterator[Disagreement]:
    simulations = [run.manifest.simulation for run in runs]
    if not any(simulations):
        return
    values = tuple(_MEASURED if each is None else str(each) for each in simulations)
    weight, advice = (Weight.WARN, _ALL_SIMULATED) if all(simulations) else (Weight.REFUSE, _ONE_SIDE)
    yield Disagreement(SIMULATION, weight, values, advice)


def _requests(runs: Sequence[RunReport]) -> Iterator[Disagreement]:
    counts = [run.requests.index.size for run in runs]
    if _same_schedule(runs) and len(set(counts)) > 1:
        values = tuple(f"{count:,} sent" for count in counts)
        yield Disagreement("requests", Weight.WARN, values, "Some runs sent more of one schedule, so requests are not paired.")


def _settings(runs: Sequence[RunReport]) -> Iterator[Disagreement]:
    flat = [dict(_flattened(run.document)) for run in runs]
    one_side = len({run.manifest.simulation is None for run in runs}) > 1  # then its keys are absent on the other
    for key in sorted({key for settings in flat for key in settings}):
        weight = _weight_of(key)
        values = tuple(settings.get(key, _ABSENT) for settings in flat)
        if one_side and key.startswith(SIMULATION):
            continue
        if weight is not None and len(set(values)) > 1:
            yield Disagreement(key, weight, values, _ADVICE_FOR.get(key, _ADVICE[weight]))


def _weight_of(key: str) -> Weight | None:
    prefixes = [prefix for prefix in _WEIGHTS if key == prefix or key.startswith(f"{prefix}.")]
    return _WEIGHTS[max(prefixes, key=len)] if prefixes else None


def _flattened(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a document as (dotted key, text). Null counts as absent, since older versions lack some keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, _ABSENT if value is None else str(value)
