"""A comparison of runs: the one object that every output format renders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from bench_records.experiment import ExperimentFolder
from bench_records.run_folder import RunFolder, RunFolderError
from reports.compare.comparable import (
    Disagreement,
    Weight,
    disagreements,
    disagreements_in_turn,
    refused,
    same_requests,
    same_schedules,
    schedules_apart,
    where_allowed,
    without_refusals,
)
from reports.compare.conditions import AnyCondition, ConditionResult, check_conditions
from reports.compare.difference import Difference, Verdict, compare_measures
from reports.compare.lines import lines
from reports.compare.looks import Looks
from reports.compare.measures import MEASURES, Measure, Measured, exact_percentiles, measure_run, open_loop_gap
from reports.compare.recommendation import Recommendation, affordable, preferred, recommend
from reports.criteria import Criterion
from reports.errors import NotComparableError, NoValidBlockError
from reports.findings.checks import Validity
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.censoring import CensoredLatencies
from reports.metrics.metric import Metric
from reports.run_report import RunReport, read_run
from reports.statistics.percentiles import Distribution, summarise

ReadRun = Callable[[RunFolder, Sequence[Criterion] | None], RunReport]

MIXED = "mixed"  # better in some measures, worse in others
STARTS_MIXED = "mixed between these starts"
INCONCLUSIVE_ABOVE = 0.10  # a change that users act on
_QUANTILES = (0.01, 0.02, *(percent / 100 for percent in range(5, 100, 5)), 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: a configuration, measured by one or several runs.

    ``blocks_left_out`` counts an experiment's blocks with a missing or invalid run, and ``left_out`` are the arm's runs in them
    that show what it did: those that are valid, or invalid for failed requests alone. Limits of the arm alone judge them.
    ``compared_by`` is the latency that all compared arms have, where an arm has another one.
    """

    name: str
    runs: tuple[RunReport, ...]
    blocks_left_out: int = 0
    left_out: tuple[RunReport, ...] = ()
    compared_by: Metric | None = None

    @property
    def failed(self) -> tuple[RunReport, ...]:
        """The runs that are left out for their own failed requests."""
        return tuple(run for run in self.left_out if not run.valid)

    @property
    def streaming(self) -> bool:
        return all(run.metrics.streamed for run in self.runs)

    @property
    def latency(self) -> Metric:
        """The latency of the curves and of paired requests: TTFT, or E2E latency where a run with answers has no TTFT."""
        answered = [run.metrics for run in self.runs if run.metrics.done]
        return self.compared_by or next((E2E for metrics in answered if metrics.latency[0] is E2E), TTFT)

    @cached_property
    def latencies(self) -> tuple[CensoredLatencies, ...]:
        """The latencies of each run from the schedule, by request, in the order of the schedule."""
        return tuple(self.latency.by_request(run.requests) for run in self.runs)

    @cached_property
    def measured(self) -> tuple[dict[str, Measured], ...]:
        """The measures of each run."""
        return tuple(measure_run(run.requests, self.streaming) for run in self.runs)

    @cached_property
    def quantiles(self) -> tuple[list[Measured], ...]:
        """The latencies of each run at _QUANTILES."""
        gaps = (open_loop_gap(run.requests) for run in self.runs)
        return tuple(
            [replace(point, gap=gap) for point in exact_percentiles(latencies, _QUANTILES)]
            for latencies, gap in zip(self.latencies, gaps, strict=True)
        )


@dataclass(frozen=True, slots=True)
class QuantilePoint:
    """One point of the quantile-difference plot: B − A at quantile ``q``, in ms, with a 95 % interval for this point alone."""

    q: float
    a_ms: float
    b_ms: float
    interval_ms: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RequestPairs:
    """Requests paired by index: the latency in B minus that in A, ms, and the share that took longer in B."""

    difference_ms: Distribution
    share_slower: float


@dataclass(frozen=True)
class ArmComparison:
    """One arm against the baseline."""

    baseline: Arm
    arm: Arm
    differences: tuple[Difference, ...]
    curve: tuple[QuantilePoint, ...]
    pairs: RequestPairs | None  # None where the requests differ or there are several runs
    disagreements: tuple[Disagreement, ...]
    conditions: tuple[ConditionResult, ...]
    looks: Looks | None = None  # of an experiment that ends when it is decided

    @property
    def deciding(self) -> Difference | None:
        """The difference by which the experiment ends; None where it has no error, or there are no looks."""
        errors = {d.measure.name: d.spread.error for d in self.differences if d.spread is not None}
        name = None if self.looks is None else self.looks.deciding(errors)
        return next((d for d in self.differences if d.measure.name == name), None)

    @property
    def verdict(self) -> str:
        """The overall verdict of all measures."""
        return overall(self.differences)

    @property
    def single_runs(self) -> bool:
        """Whether both sides have one run, so that the variation between starts is unknown."""
        return len(self.baseline.runs) == len(self.arm.runs) == 1

    @property
    def simulated(self) -> bool:
        """Whether both sides were simulated, so that no server started."""
        return all(run.manifest.simulation is not None for run in (*self.baseline.runs, *self.arm.runs))

    @property
    def schedules_apart(self) -> bool:
        """Whether each side repeats schedules of its own."""
        return schedules_apart(self.baseline.runs, self.arm.runs)

    @property
    def inconclusive(self) -> bool:
        """Whether no difference is shown, and only a change above INCONCLUSIVE_ABOVE would have been: equal runs and different
        ones look alike then.
        """
        return is_inconclusive(self.differences)

    @property
    def suspects(self) -> tuple[Difference, ...]:
        """Measures without a verdict whose own 95 % interval leaves no room for equality; the rarest by chance first."""
        beside = [d for d in self.differences if not d.verdict.differs and d.p_value is not None and d.p_value < 0.05]
        return tuple(sorted(beside, key=lambda d: d.p_value or 0.0))

    @property
    def affordable(self) -> Recommendation | None:
        """What would show more than these runs do, at a bearable cost."""
        return affordable(self.differences, self._runs_a_side, self._fewest_requests)

    @property
    def recommendation(self) -> Recommendation | None:
        """What would show a small change."""
        return recommend(self.differences, self._runs_a_side, self._fewest_requests)

    @property
    def _runs_a_side(self) -> float:
        """How many runs of each side have the error of these: of 1 and 3, as many as 1.5 of each."""
        return 2.0 / (1.0 / len(self.baseline.runs) + 1.0 / len(self.arm.runs))

    @property
    def _fewest_requests(self) -> int:
        return min(run.metrics.scheduled for run in (*self.baseline.runs, *self.arm.runs))


@dataclass(frozen=True)
class Comparison:
    """Every arm against the first."""

    arms: tuple[Arm, ...]
    comparisons: tuple[ArmComparison, ...]

    @property
    def conditions(self) -> tuple[ConditionResult, ...]:
        """The results of all arms."""
        return tuple(result for pair in self.comparisons for result in pair.conditions)


def overall(differences: Sequence[Difference]) -> str:
    """The verdict of all measures together: a Verdict's value, MIXED or STARTS_MIXED.

    A measure with one constant value in all runs (such as no failures) is no evidence where the others have no verdict.
    """
    verdicts = {difference.verdict for difference in differences}
    if Verdict.UNKNOWN in verdicts:
        verdicts = {d.verdict for d in differences if d.p_value != 1.0 or (d.spread is not None and d.spread.error > 0)}
    if any(v.is_better for v in verdicts) and any(v.is_worse for v in verdicts):
        return MIXED if Verdict.BETTER in verdicts else STARTS_MIXED
    order = (Verdict.WORSE, Verdict.STARTS_WORSE, Verdict.BETTER, Verdict.STARTS_BETTER, Verdict.NONE)
    return next((v.value for v in order if v in verdicts), Verdict.UNKNOWN.value)


def is_inconclusive(differences: Sequence[Difference]) -> bool:
    """Whether no difference is shown, and only a change above INCONCLUSIVE_ABOVE would have been."""
    if any(d.verdict.differs for d in differences):
        return False
    judged = preferred(differences)
    return judged is None or judged.smallest_shown is None or judged.smallest_shown > INCONCLUSIVE_ABOVE


def read_arm(path: Path, criteria: Sequence[Criterion] | None = None) -> Arm:
    """Read the folder of a run, or of repeated runs, by ``criteria`` or (None) by each run's own.

    Raises RunFolderError, for a run that is there twice, too: a copy of a run is no repeat, and varies by nothing.
    """
    name = path.resolve().name if path.name in ("", "..") else path.name
    if RunFolder(path).manifest.exists():
        return Arm(name, (read_run(RunFolder(path), criteria),))
    if ExperimentFolder(path).plan.exists():
        raise RunFolderError(f"{path} is the folder of an experiment; give it alone: bench compare {path}")
    folders = sorted(inner for inner in path.glob("*/") if RunFolder(inner).manifest.exists())
    if not folders:
        raise RunFolderError(f"{path} is neither the folder of a run nor of runs: it contains no run.json")
    arm = Arm(name, tuple(read_run(RunFolder(inner), criteria) for inner in folders))
    if (twice := same_run(arm.runs)) is not None:
        raise RunFolderError(
            f"{twice[0]} and {twice[1]} hold the same run, and a copy is no repeat; move one of them elsewhere"
        )
    return arm


def same_run(runs: Sequence[RunReport]) -> tuple[Path, Path] | None:
    """The folders of two of ``runs`` that are one run by their ``run_id``; None where all differ or are older than that."""
    known: dict[str, Path] = {}
    for run in runs:
        run_id, path = run.manifest.run_id, run.folder.path
        if run_id in known:
            return known[run_id], path
        if run_id is not None:
            known[run_id] = path
    return None


def looks_of(folder: ExperimentFolder) -> Looks | None:
    """The looks at an experiment that ends when it is decided; None of any other. Raises RunFolderError."""
    until = folder.read().until
    return None if until is None else Looks(until.most_blocks, until.measure)


def read_experiment(
    folder: ExperimentFolder, criteria: Sequence[Criterion] | None = None, read: ReadRun = read_run
) -> list[Arm]:
    """The arms of an experiment, their runs in the order of the blocks, read as by ``read_arm``. Raises RunFolderError, and
    NoValidBlockError where no block is valid.

    A block with a missing or invalid run is left out of all arms, so that the other runs stay paired; ``blocks_left_out``
    counts them. Each run is read by ``read``.
    """
    experiment = folder.read()
    blocks: dict[int, dict[int, RunReport]] = {}
    for run in experiment.runs:
        if folder.is_recorded(run):
            blocks.setdefault(run.block, {})[run.arm] = read(folder.run_folder(run), criteria)
    whole = {block: runs for block, runs in blocks.items() if len(runs) == len(experiment.arms)}
    sound = {block: runs for block, runs in sorted(whole.items()) if all(run.valid for run in runs.values())}
    if not whole:
        raise RunFolderError(f"{folder.path}: no block has all its runs yet, so there is nothing to compare")
    if not sound:
        first = next(run for block in sorted(whole) for run in whole[block].values() if not run.valid)
        raise NoValidBlockError(
            f"{folder.path}: every block has an invalid run, so there is nothing to compare; see the findings in "
            f"{first.folder.html} first"
        )
    planned = len({run.block for run in experiment.runs} if experiment.until is None else blocks)
    return [
        Arm(
            arm.name,
            tuple(runs[number] for runs in sound.values()),
            planned - len(sound),
            tuple(
                runs[number]
                for block, runs in sorted(blocks.items())
                if block not in sound and number in runs and runs[number].validity is not Validity.INVALID
            ),
        )
        for number, arm in enumerate(experiment.arms)
    ]


def compare(
    arms: Sequence[Arm],
    conditions: Sequence[AnyCondition] = (),
    *,
    allow_different: bool = False,
    allow_simulated: bool = False,
    runs_paired: bool = False,
    looks: Looks | None = None,
) -> Comparison:
    """Compare every arm with the first. ``runs_paired``: the i-th runs of all arms were measured in turn. ``looks``: those at
    an experiment that ends when it is decided.

    Raises NotComparableError, unless ``allow_different``, and where one side alone was simulated, unless ``allow_simulated``.
    """
    arms = _by_one_latency(arms)
    baseline, *others = arms
    by_arm = [_disagreements(baseline, arm, runs_paired=runs_paired) for arm in others]
    for arm, found in zip(others, by_arm, strict=True):
        left = without_refusals(found, allow_different=allow_different, allow_simulated=allow_simulated)
        if refused(left):
            raise NotComparableError(_refusal(baseline, arm, left))
    return Comparison(
        tuple(arms),
        tuple(
            _compare_arm(baseline, arm, where_allowed(found), conditions, runs_paired=runs_paired, looks=looks)
            for arm, found in zip(others, by_arm, strict=True)
        ),
    )


def _by_one_latency(arms: Sequence[Arm]) -> Sequence[Arm]:
    """The arms; by their E2E latencies where some have TTFT and others, which are not streamed, have none."""
    return arms if len({arm.latency for arm in arms}) == 1 else [replace(arm, compared_by=E2E) for arm in arms]


def _disagreements(baseline: Arm, arm: Arm, *, runs_paired: bool) -> tuple[Disagreement, ...]:
    """The disagreements of two arms; of runs measured in turn those within blocks, since blocks differ by design."""
    if not runs_paired:
        found = disagreements(baseline.runs, arm.runs)
        alike = same_schedules(baseline.runs, arm.runs)
        return tuple(disagreement for disagreement in found if not (alike and disagreement.what.startswith("schedule.")))
    return disagreements_in_turn(baseline.runs, arm.runs)


def requests_paired(baseline: Arm, arm: Arm) -> bool:
    """Whether requests can be paired by index: one run each, which sent the same ones."""
    return len(baseline.runs) == len(arm.runs) == 1 and same_requests([*baseline.runs, *arm.runs])


def differences_between(
    baseline: Arm, arm: Arm, *, runs_paired: bool = False, looks: Looks | None = None
) -> tuple[Difference, ...]:
    """The differences in all measures that both have. ``runs_paired``: the i-th runs of both were measured in turn."""
    return compare_measures(
        MEASURES,
        baseline.measured,
        arm.measured,
        requests_paired=requests_paired(baseline, arm),
        runs_paired=runs_paired and len(baseline.runs) == len(arm.runs),
        schedules_apart=schedules_apart(baseline.runs, arm.runs),
        looks=looks,
    )


def _compare_arm(
    baseline: Arm,
    arm: Arm,
    found: tuple[Disagreement, ...],
    conditions: Sequence[AnyCondition],
    *,
    runs_paired: bool,
    looks: Looks | None,
) -> ArmComparison:
    paired = requests_paired(baseline, arm)
    differences = differences_between(baseline, arm, runs_paired=runs_paired, looks=looks)
    return ArmComparison(
        baseline=baseline,
        arm=arm,
        differences=differences,
        curve=_curve(baseline, arm, paired),
        pairs=_request_pairs(baseline, arm) if paired else None,
        disagreements=found,
        conditions=check_conditions(conditions, differences, (*arm.runs, *arm.left_out), len(arm.failed)),
        looks=looks,
    )


def _curve(baseline: Arm, arm: Arm, paired: bool) -> tuple[QuantilePoint, ...]:
    """The points of the quantile-difference plot. The quantile of several runs is the geometric mean of theirs."""
    apart = schedules_apart(baseline.runs, arm.runs)
    points = (
        _point(q, *([run[number] for run in side.quantiles] for side in (baseline, arm)), paired=paired, apart=apart)
        for number, q in enumerate(_QUANTILES)
    )
    return tuple(point for point in points if point is not None)


def _point(q: float, a: list[Measured], b: list[Measured], *, paired: bool, apart: bool) -> QuantilePoint | None:
    measure = Measure(E2E, q)
    (difference,) = compare_measures(
        [measure], [{measure.name: run} for run in a], [{measure.name: run} for run in b],
        requests_paired=paired, runs_paired=False, schedules_apart=apart,
    )  # fmt: skip
    if difference.a is None or difference.b is None:
        return None
    if difference.interval is None or not difference.has_upper_limit:
        return QuantilePoint(q, difference.a, difference.b, None)
    low, high = (difference.a * limit for limit in difference.interval)
    return QuantilePoint(q, difference.a, difference.b, (low, high))


def _request_pairs(baseline: Arm, arm: Arm) -> RequestPairs | None:
    with np.errstate(invalid="ignore"):  # of two failures, or requests that were cut off
        difference_ms = arm.latencies[0].slowest_ms - baseline.latencies[0].slowest_ms
    known = difference_ms[np.isfinite(difference_ms)]
    summary = summarise(known)
    return None if summary is None else RequestPairs(summary, float((known > 0).mean()))


def _refusal(baseline: Arm, arm: Arm, found: Sequence[Disagreement]) -> str:
    reasons = lines([disagreement for disagreement in found if disagreement.weight is Weight.REFUSE])
    differing = "; ".join(f"{reason.what}: {' against '.join(reason.sides)}" for reason in reasons)
    advice = " ".join(dict.fromkeys(reason.advice for reason in reasons))
    return f"{baseline.name} and {arm.name} cannot be compared. {differing}. {advice}"
