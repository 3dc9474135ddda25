"""A trend: runs in the order of time, each compared with one baseline. Every output format renders this object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from bench_records.run_folder import RunFolderError
from reports.compare.comparable import Disagreement, differences_within, disagreements, refused
from reports.compare.comparison import Arm, differences_between, overall, read_arm
from reports.compare.conditions import AnyCondition, ConditionResult, check_conditions
from reports.compare.difference import Difference
from reports.compare.measures import MEASURES, Measure
from reports.criteria import Criterion
from reports.errors import NotComparableError
from reports.findings.finding import Severity
from reports.metrics.metric import Anchored
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import UNKNOWN, Estimate
from reports.trend.folders import FoundRun, LeftOut, find_runs


class Standing(StrEnum):
    """The relation of a run to the baseline."""

    BASELINE = "baseline"
    COMPARED = "compared"
    DIFFERENT = "not comparable"  # its work was different
    INVALID = "not valid"


@dataclass(frozen=True)
class TrendRun:
    """One run. ``findings`` are the codes of its warnings and invalid findings, ``faults`` of the latter; ``estimates`` are its
    measures by name, each in its unit.

    Only a compared run has ``differences``; ``disagreements`` are its differences from the baseline's manifests, whose values
    come first.
    """

    name: str
    folder: Path
    has_page: bool
    started_at: datetime
    standing: Standing
    findings: tuple[str, ...]
    faults: tuple[str, ...]
    estimates: dict[str, Estimate]
    differences: tuple[Difference, ...]
    disagreements: tuple[Disagreement, ...]
    conditions: tuple[ConditionResult, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict of all measures together, or the standing of a run that is not compared."""
        return overall(self.differences) if self.standing is Standing.COMPARED else self.standing.value


@dataclass(frozen=True)
class Trend:
    """``runs`` in the order of time. ``baseline`` is None where no run is valid."""

    baseline: str | None
    baseline_runs: tuple[Path, ...]
    runs: tuple[TrendRun, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that some run has; failures only where some request failed."""
        return tuple(m for m in MEASURES if any(self._has(run, m) for run in self.runs))

    @property
    def newest_compared(self) -> TrendRun | None:
        return next((run for run in reversed(self.runs) if run.standing is Standing.COMPARED), None)

    @property
    def newer(self) -> tuple[TrendRun, ...]:
        """The runs after the newest that is compared, without those of the baseline: no condition judges them."""
        newest = self.newest_compared
        later = () if newest is None else self.runs[self.runs.index(newest) + 1 :]
        return tuple(run for run in later if run.standing is not Standing.BASELINE)

    @property
    def newer_left_out(self) -> tuple[LeftOut, ...]:
        """The runs that began after the newest that is compared, and were left out: no condition judges them."""
        newest = self.newest_compared
        if newest is None:
            return ()
        return tuple(run for run in self.left_out if run.started_at is not None and run.started_at > newest.started_at)

    def _has(self, run: TrendRun, measure: Measure) -> bool:
        value = run.estimates[measure.name].value if measure.name in run.estimates else None
        return value is not None and (measure.relative or value > 0)


def read_trend(
    paths: Sequence[Path],
    baseline: Path | None = None,
    conditions: Sequence[AnyCondition] = (),
    criteria: Sequence[Criterion] | None = None,
) -> Trend:
    """Read the runs in and below ``paths``. The baseline is a run's folder or a folder of repeated runs; None is the first
    valid run. Each compared run is judged by ``conditions``, and read with ``criteria``, or (None) with its own.

    Raises RunFolderError, and NotComparableError for a baseline that is not valid, or whose runs measured different work.
    """
    found, left_out = find_runs(paths)
    arm = _first_valid(found) if baseline is None else _checked(read_arm(baseline))
    of_baseline = () if arm is None else arm.runs
    its_runs, its_ids = tuple(run.folder.path.resolve() for run in of_baseline), {run.manifest.run_id for run in of_baseline}
    runs, unreadable = [], []
    for run in found:  # one at a time, so that the records of only one run are in memory
        try:
            report = read_run(run.folder, criteria)
        except RunFolderError as error:
            unreadable.append(LeftOut(run.name, str(error), run.started_at))
            continue
        is_baseline = run.folder.path.resolve() in its_runs or (run.run_id is not None and run.run_id in its_ids)
        runs.append(_trend_run(run, report, arm, conditions, is_baseline=is_baseline))
    return Trend(None if arm is None else arm.name, its_runs, tuple(runs), (*left_out, *unreadable))


def estimates_of(report: RunReport) -> dict[str, Estimate]:
    """The measures of a run with their intervals, by name, in the measure's unit."""
    streamed = report.metrics.streamed
    return {m.name: _estimate(report, m) for m in MEASURES if streamed or not m.metric.streamed_only}


def _estimate(report: RunReport, measure: Measure) -> Estimate:
    metrics, metric = report.metrics, measure.metric
    numbers = {**metrics.rates, **metrics.shares}
    if metric in numbers:
        return numbers[metric]
    value = metrics.latencies[metric]
    distribution = value.scheduled if isinstance(value, Anchored) else value
    if distribution is None:
        return UNKNOWN
    return distribution.mean if measure.q is None else distribution.percentile(measure.q)


def _first_valid(found: Sequence[FoundRun]) -> Arm | None:
    for run in found:
        try:
            report = read_run(run.folder)
        except RunFolderError:
            continue  # read_trend lists it as left out
        if report.valid:
            return Arm(run.name, (report,))
    return None


def _checked(arm: Arm) -> Arm:
    """The arm, if its runs are valid and comparable. Raises NotComparableError."""
    faults = [disagreement for disagreement in differences_within(arm.runs) if refused([disagreement])]
    if faults:
        reasons = " ".join(f"{fault.what}: {' against '.join(dict.fromkeys(fault.values))}." for fault in faults)
        raise NotComparableError(f"{arm.name} cannot be a baseline. {reasons} Name a valid run, or a folder of equal runs.")
    return arm


def _trend_run(
    run: FoundRun, report: RunReport, baseline: Arm | None, conditions: Sequence[AnyCondition], *, is_baseline: bool
) -> TrendRun:
    found = () if baseline is None or is_baseline else tuple(_against(baseline.runs, report))
    standing = _standing(report, baseline, found, is_baseline=is_baseline)
    compared = baseline is not None and standing is Standing.COMPARED
    differences = differences_between(baseline, Arm(run.name, (report,))) if baseline is not None and compared else ()
    return TrendRun(
        name=run.name,
        folder=run.folder.path,
        has_page=run.folder.html.exists(),
        started_at=run.started_at,
        standing=standing,
        findings=tuple(finding.code for finding in report.findings if finding.severity is not Severity.NOTE),
        faults=tuple(finding.code for finding in report.findings if finding.severity is Severity.INVALID),
        estimates=estimates_of(report),
        differences=differences,
        disagreements=found,
        conditions=check_conditions(conditions, differences, (report,)) if compared else (),
    )


def _against(baseline: Sequence[RunReport], run: RunReport) -> Iterator[Disagreement]:
    """The disagreements of a run with all runs of the baseline, without those among the latter."""
    found = disagreements(baseline, [run])
    return (disagreement for disagreement in found if disagreement.values[-1] not in disagreement.values[:-1])


def _standing(report: RunReport, baseline: Arm | None, found: Sequence[Disagreement], *, is_baseline: bool) -> Standing:
    if is_baseline:
        return Standing.BASELINE
    if not report.valid or baseline is None:
        return Standing.INVALID
    return Standing.DIFFERENT if refused(found) else Standing.COMPARED
