"""Comparability of runs, from their manifests: the requested work must be equal, the target may differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from reports.compare.answers import answers_of, equally_long, known_on_one_side, lengths_differ
from reports.compare.sent import why_other_requests
from reports.findings.completeness import EndedEarly, Interrupted
from reports.findings.consistency import TokensCountedFromText
from reports.findings.engine import GpuClocksLimited
from reports.findings.finding import Finding, Severity
from reports.findings.load import RequestsRanOut
from reports.findings.simulation import Simulated
from reports.findings.target import MachineShared, TargetPaused
from reports.metrics.distribution import distribution_of, workers_elsewhere
from reports.run_report import RunReport


class Weight(StrEnum):
    """What a disagreement does to a comparison."""

    REFUSE = "refuse"  # the work was different, or a run is invalid
    WARN = "warn"  # part of the difference may come from here
    CHANGED = "changed"  # of the target: most likely the subject of the comparison
    NOTE = "note"  # a result of the runs, not a setting


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A key of the manifests in which two sides differ, or a fault of a run.

    ``sides`` have a value of each run, in their order, as text ("–": absent). ``section`` is the outermost part of the manifest
    of which no run of one side has anything; "" where both have some of each part. ``of_block`` are the two values of a block
    in which they differ, where the runs were measured in turn.
    """

    what: str
    weight: Weight
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    advice: str
    section: str = ""
    of_block: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """The values of both sides, the first side first; those of one block where the runs were measured in turn."""
        return self.of_block or self.sides[0] + self.sides[1]


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
    "target.model_parameters.step_log": None,
    "target.embedded": None,
    "simulation": Weight.CHANGED,
    "simulation.model": None,
    "simulation.draws": None,
    "simulation.ranges": None,
    "simulation.beyond": None,
    "simulation.doubts": None,
    "simulation.fleet.least": Weight.NOTE,
    "simulation.fleet.most": Weight.NOTE,
    "simulation.fleet.mean": Weight.NOTE,
    "simulation.fleet.replica_s": Weight.NOTE,
    "server": Weight.CHANGED,
    "server.engine_files": None,
    "server.engine.step_log": None,
    "schedule": Weight.WARN,
    "warm_up.requests": Weight.WARN,
    "prefix_cache_reset": Weight.WARN,
    "options.workers": Weight.WARN,
    "options.connections": Weight.WARN,
    "options.extra_body": Weight.CHANGED,
    "options.request_timeout": Weight.WARN,
    "options.connection_timeout": Weight.WARN,
    "options.first_token_timeout": Weight.WARN,
    "options.token_gap_timeout": Weight.WARN,
    "workers.count": Weight.NOTE,
    "environment": Weight.WARN,
    "bench_version": Weight.WARN,
}
_ADVICE = {
    Weight.REFUSE: "Runs of different work cannot be compared: measure both alike, or use --allow_different.",
    Weight.WARN: "Part of the difference may come from here; keep it equal on both sides.",
    Weight.CHANGED: "If all else is equal, this is the change that the comparison measures.",
    Weight.NOTE: "A result of the runs, not a setting.",
}
_DIGEST = "schedule.digest"
_REQUESTS = "requests"
_DESCRIPTION = "workload.description"
# What a seed draws where a duration, or limits on the lengths of a law, decide how many requests there are.
_COUNTS = (
    "load.prepared",
    "workload.conversations",
    "workload.dropped_behind",
    "workload.dropped_too_long",
    "workload.inexact_lengths",
    "workload.requests",
    "workload.rows_read",
    "workload.without_history",
)
_SET_THE_COUNTS = ("options.num_requests", "options.duration", "options.max_input_len")
_COUNT_IN_WORDS = re.compile(r"^(?:up to )?[0-9][0-9,]* ")
_ADVICE_FOR = {
    _DIGEST: "Part of the difference may come from here: measure both sides with the same seeds and the same release.",
    "load.ran_out": "A run whose requests ran out ended before --duration: raise --num_requests for both.",
    "workers.count": "Chosen by load and machine; set it with --workers.",
}
_SAME_START_S = 2.0  # by which two readings of when a process began may differ: the clock was set meanwhile
SIMULATION = "simulation"
ABSENT = "–"
_MEASURED = "measured"
_ONE_SIDE = (
    "A simulated run beside a measured one shows how wrong the model is: 'bench simulate validate' does that, or "
    "--allow_simulated compares them all the same."
)
_INVALID = "An invalid run cannot be compared; see its report, and measure again."
_ALL_SIMULATED = "No server was measured: the differences are those of a model, and as wrong as it is."
_ESTIMATED = "Numbers of tokens are estimates where they are counted from text: part of their difference may be that."
_WORST_PART = "A run that --stop_if ended has the numbers of its worst part: they show a load that is too high, and no change."
# The advice where runs are compared all the same, by that for runs that are not.
_WHERE_ALLOWED = {
    _ADVICE[Weight.REFUSE]: "The runs did different work: part of the difference, or all of it, may come from that.",
    _INVALID: "A difference to an invalid run may come from what made the run invalid; see its report.",
    _ONE_SIDE: "The differences between a simulated run and a measured one show how wrong the model is.",
}
_OTHER_ANSWERS = (
    "Shorter answers end sooner, however fast the server is: E2E latency and tokens/s follow their length. "
    "--ignore_eos makes lengths equal."
)
_EQUAL_ANSWERS = (
    "The answers are equally long although other lengths were requested: on one side more of them ended before the requested "
    "length."
)
_UNKNOWN_ANSWERS = (
    "Only one side has numbers of output tokens, so whether its answers are as long as those of the other side is not known. "
    "With the model's tokenizer (--tokenizer) the texts are counted."
)
_OTHER_HOSTS = "Latencies include the network between client and target: send from the same hosts."
_ONE_SIDED = "Part of the difference may come from what such a warning is about; see the reports of these runs."
# Findings about a run's surroundings, which part of any difference may come from.
_DISTURBED = {
    MachineShared.code: "Other programs took CPU time from the target: part of the difference may come from them.",
    TargetPaused.code: "The target stopped for a time: part of the difference, of tails above all, may come from that.",
}


# Findings that have a line of their own, whether one side has them or both.
_NAMED_ELSEWHERE = {
    *_DISTURBED,
    *(kind.code for kind in (TokensCountedFromText, EndedEarly, Interrupted, RequestsRanOut, Simulated)),
}


def disagreements(a: Sequence[RunReport], b: Sequence[RunReport]) -> tuple[Disagreement, ...]:
    """All differences between the sides ``a`` and ``b``, and all faults of a run, the most serious first.

    Values that both sides have equally often, in proportion, are no difference: seeds 1 to 5 on both, for example.
    """
    return _most_serious_first([*_of_sides(a, b), *_of_settings(a, b)])


def disagreements_in_turn(a: Sequence[RunReport], b: Sequence[RunReport]) -> tuple[Disagreement, ...]:
    """As ``disagreements``, of runs that were measured in turn: the i-th of both in one block. Blocks send other requests by
    design, so settings are compared within each; what befell a side is counted over all its runs. A setting that differs in any
    block has the values of all of them.
    """
    of_blocks: dict[str, list[Disagreement]] = {}
    for of_a, of_b in zip(a, b, strict=True):
        for disagreement in _of_settings([of_a], [of_b]):
            of_blocks.setdefault(disagreement.what, []).append(disagreement)
    flat_a, flat_b = ([{**dict(_flattened(run.document)), _REQUESTS: _sent(run)} for run in side] for side in (a, b))
    settings = (_over_blocks(found, flat_a, flat_b) for found in of_blocks.values())
    return _most_serious_first([*_of_sides(a, b), *settings])


def _over_blocks(found: Sequence[Disagreement], a: Sequence[Mapping[str, str]], b: Sequence[Mapping[str, str]]) -> Disagreement:
    """The last of the most serious disagreements in one setting, with the values of all runs; ``a`` and ``b`` are their
    flattened manifests.
    """
    last = min(reversed(found), key=lambda disagreement: list(Weight).index(disagreement.weight))
    section = last.section if {disagreement.section for disagreement in found} == {last.section} else ""
    of_a, of_b = (tuple(settings.get(last.what, ABSENT) for settings in side) for side in (a, b))
    return replace(last, sides=(of_a, of_b), section=section, of_block=last.values)


def _of_sides(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    """What befell the runs of the sides, and who sent them."""
    yield from _credibility(a, b)
    yield from _one_sided(a, b)
    yield from _simulations(a, b)
    yield from _answers(a, b)
    yield from _hosts(a, b)


def _of_settings(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    """What the sides were asked to do, and so sent."""
    yield from _requests(a, b)
    yield from _settings(a, b)


def _most_serious_first(found: Sequence[Disagreement]) -> tuple[Disagreement, ...]:
    return tuple(sorted(found, key=lambda disagreement: list(Weight).index(disagreement.weight)))


def refused(disagreements: Sequence[Disagreement]) -> bool:
    """Whether a disagreement rules out a comparison."""
    return any(disagreement.weight is Weight.REFUSE for disagreement in disagreements)


def other_work(a: RunReport, b: RunReport) -> tuple[Disagreement, ...]:
    """What the runs sent differently; none where both had the same work."""
    return tuple(each for each in _settings([a], [b]) if each.weight is Weight.REFUSE)


def disturbances(run: RunReport) -> tuple[str, ...]:
    """The findings about the surroundings of ``run`` that its latencies depend on, as sentences."""
    return tuple(sentence for code in _DISTURBED if (sentence := _sentence(code, run)) != ABSENT)


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


def where_allowed(found: Sequence[Disagreement]) -> tuple[Disagreement, ...]:
    """The disagreements of runs that are compared all the same."""
    return tuple(replace(each, advice=_WHERE_ALLOWED.get(each.advice, each.advice)) for each in found)


def same_requests(runs: Sequence[RunReport]) -> bool:
    """Whether all runs sent the same requests of the same schedule in the same order, so that these can be paired.

    In a closed loop the server's answers decide the order and, where it ends by the clock, the number.
    """
    first, *others = runs
    return _same_schedule(runs) and all(np.array_equal(first.requests.index, run.requests.index) for run in others)


def _same_schedule(runs: Sequence[RunReport]) -> bool:
    return len({run.schedule.digest for run in runs}) == 1


def differences_within(runs: Sequence[RunReport]) -> tuple[Disagreement, ...]:
    """All differences among the runs of one side, and all faults of one of them: those of its first run from the others."""
    return disagreements(runs[:1], runs[1:] or runs)


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
    return _alike(*([run.schedule.digest for run in side] for side in (a, b)))


def one_start(runs: Sequence[RunReport]) -> bool:
    """Whether all ``runs`` are known to come from one start of one server."""
    began_at = [run.manifest.server_began_at for run in runs]
    known = [at for at in began_at if at is not None]
    addresses = {run.manifest.target.address for run in runs}
    return len(known) == len(runs) and len(addresses) == 1 and max(known) - min(known) <= _SAME_START_S


def _shares_of_schedules(runs: Sequence[RunReport]) -> dict[Hashable, Fraction]:
    return _shares([run.schedule.digest for run in runs])


def _alike(a: Sequence[Hashable], b: Sequence[Hashable]) -> bool:
    """Whether both sides have the same values, each as often in proportion."""
    return _shares(a) == _shares(b)


def _shares(values: Sequence[Hashable]) -> dict[Hashable, Fraction]:
    return {value: Fraction(count, len(values)) for value, count in Counter(values).items()}


def _credibility(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    runs = (*a, *b)
    if not all(run.valid for run in runs):
        yield Disagreement("validity", Weight.REFUSE, _sides(a, b, _invalid_findings), _INVALID)
    for code, advice in (*_DISTURBED.items(), (TokensCountedFromText.code, _ESTIMATED)):
        if any(_sentence(code, run) != ABSENT for run in runs):
            yield Disagreement(code, Weight.WARN, _sides(a, b, partial(_sentence, code)), advice)
    if any(_gave_up(run) != ABSENT for run in runs):
        yield Disagreement(EndedEarly.code, Weight.WARN, _sides(a, b, _gave_up), _WORST_PART)
    if any(run.manifest.interrupted for run in runs):
        sides = _sides(a, b, lambda run: "interrupted" if run.manifest.interrupted else "whole")
        yield Disagreement("interrupted", Weight.WARN, sides, "An interrupted run is shorter than requested.")


def _one_sided(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    """Warnings that the runs of one side have more often than those of the other: each may be why the sides differ."""
    codes = {finding.code for run in (*a, *b) for finding in run.findings if _is_a_warning(finding)}
    for code in sorted(codes - _NAMED_ELSEWHERE):
        sides = _sides(a, b, partial(_warning, code))
        if not _alike(*([sentence == ABSENT for sentence in side] for side in sides)):
            yield Disagreement(code, Weight.WARN, sides, _ONE_SIDED)


def _warning(code: str, run: RunReport) -> str:
    """The sentence of the warning of this code, which the other side may have as a note."""
    return next((finding.sentence for finding in run.findings if finding.code == code and _is_a_warning(finding)), ABSENT)


def _is_a_warning(finding: Finding) -> bool:
    return finding.severity is Severity.WARNING or finding.code == GpuClocksLimited.code


def _gave_up(run: RunReport) -> str:
    early = run.manifest.early_end
    return early.rule if early is not None and early.gave_up else ABSENT


def _invalid_findings(run: RunReport) -> str:
    return ", ".join(finding.code for finding in run.findings if finding.severity.value == "invalid") or "valid"


def _sentence(code: str, run: RunReport) -> str:
    return next((finding.sentence for finding in run.findings if finding.code == code), ABSENT)


def _simulations(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    simulations = [run.manifest.simulation for run in (*a, *b)]
    if not any(simulations):
        return
    sides = _sides(a, b, lambda run: _MEASURED if run.manifest.simulation is None else str(run.manifest.simulation))
    weight, advice = (Weight.WARN, _ALL_SIMULATED) if all(simulations) else (Weight.REFUSE, _ONE_SIDE)
    yield Disagreement(SIMULATION, weight, sides, advice)


def _sent(run: RunReport) -> str:
    return f"{run.requests.index.size:,} sent"


def _requests(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    sides = _sides(a, b, _sent)
    if _same_schedule((*a, *b)) and not _alike(*sides):
        yield Disagreement(_REQUESTS, Weight.WARN, sides, "Some runs sent more of one schedule, so requests are not paired.")


def _answers(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    answers = [[answers_of(run.requests) for run in side] for side in (a, b)]
    paired = len(a) == len(b) and all(same_requests(pair) for pair in zip(a, b, strict=True))
    of_a, of_b = (tuple(map(str, side)) for side in answers)
    if all(run.requests.done.any() for run in (*a, *b)) and known_on_one_side(*answers):
        yield Disagreement("output_tokens", Weight.WARN, (of_a, of_b), _UNKNOWN_ANSWERS)
    elif lengths_differ(*answers, paired=paired):
        advice = _EQUAL_ANSWERS if equally_long(*answers) else _OTHER_ANSWERS
        yield Disagreement("output_tokens", Weight.WARN, (of_a, of_b), advice)


def _hosts(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    sides = _sides(a, b, _sent_from)
    if not _alike(*sides):
        yield Disagreement("distribution.workers", Weight.WARN, sides, _OTHER_HOSTS)


def _sent_from(run: RunReport) -> str:
    """The hosts that sent the requests of a run."""
    found = distribution_of(run.manifest)
    if found is None or not workers_elsewhere(run.manifest):
        return "this host"
    return ", ".join(sorted({worker.host for worker in found.workers}))


def _settings(a: Sequence[RunReport], b: Sequence[RunReport]) -> Iterator[Disagreement]:
    flat_a, flat_b = ([dict(_flattened(run.document)) for run in side] for side in (a, b))
    known = [{section for settings in side for section in _sections_with_values(settings)} for side in (flat_a, flat_b)]
    one_side = len({run.manifest.simulation is None for run in (*a, *b)}) > 1  # then its keys are absent on the other
    by_seed = _counts_follow_from_seeds(flat_a, flat_b)
    for key in sorted({key for settings in (*flat_a, *flat_b) for key in settings}):
        weight = _weight_of(key)
        sides = (tuple(each.get(key, ABSENT) for each in flat_a), tuple(each.get(key, ABSENT) for each in flat_b))
        if weight is None or _alike(*sides) or (one_side and key.startswith(SIMULATION)):
            continue
        if by_seed and key == _DESCRIPTION and _alike(*(list(map(_without_count, side)) for side in sides)):
            continue
        weight = Weight.NOTE if by_seed and key in _COUNTS else weight
        section = next((each for each in _sections(key) if any(each not in side for side in known)), "")
        yield Disagreement(key, weight, sides, _advice(key, weight, a, b), section)


def _counts_follow_from_seeds(a: Sequence[Mapping[str, str]], b: Sequence[Mapping[str, str]]) -> bool:
    """Whether the sides, flattened manifests, have other seeds, and the same options of how many requests there are, of which
    chance decides the number.
    """
    runs = (*a, *b)
    if any(len({run.get(option, ABSENT) for run in runs}) > 1 for option in _SET_THE_COUNTS):
        return False
    if _alike(*([run.get("schedule.seed") for run in side] for side in (a, b))):
        return False
    ends_by_the_clock = all(run.get("load.duration_s", ABSENT) != ABSENT and run.get("load.mode") != "closed" for run in runs)
    return ends_by_the_clock or all(run.get("lengths.input.law", ABSENT) != ABSENT for run in runs)


def _without_count(description: str) -> str:
    """A workload in words without the number of its requests."""
    return _COUNT_IN_WORDS.sub("", description)


def _advice(key: str, weight: Weight, a: Sequence[RunReport], b: Sequence[RunReport]) -> str:
    if key == _DIGEST and _alike(*([run.schedule.seed for run in side] for side in (a, b))):
        return why_other_requests(a, b)
    return _ADVICE_FOR.get(key, _ADVICE[weight])


def _sides(
    a: Sequence[RunReport], b: Sequence[RunReport], value: Callable[[RunReport], str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(map(value, a)), tuple(map(value, b))


def _sections(key: str) -> list[str]:
    """The parts of a manifest that a dotted key lies in, from the outermost."""
    return list(accumulate(key.split(".")[:-1], "{}.{}".format))


def _sections_with_values(settings: Mapping[str, str]) -> Iterator[str]:
    for key, value in settings.items():
        if value != ABSENT:
            yield from _sections(key)


def _weight_of(key: str) -> Weight | None:
    prefixes = [prefix for prefix in _WEIGHTS if key == prefix or key.startswith(f"{prefix}.")]
    return _WEIGHTS[max(prefixes, key=len)] if prefixes else None


def _flattened(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a document as (dotted key, text). Null counts as absent, since older versions lack some keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, ABSENT if value is None else str(value)
