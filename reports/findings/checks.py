"""The kinds of findings, and the findings of a run. A run with an invalid finding is invalid."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from reports.findings.calibration import BeyondCalibration
from reports.findings.cancellations import GeneratedOn, LatenciesCutOff
from reports.findings.client import (
    AchievedBelowOffered,
    ClientSaturated,
    ClockStepped,
    ConnectionLimitReached,
    ObjectivesLostToClient,
    ScheduleSlip,
    WorkerKilled,
)
from reports.findings.completeness import (
    BoundReached,
    EndedEarly,
    Interrupted,
    PromptsDropped,
    RecordingFailed,
    Recovered,
    SampleTooSmall,
    TurnsNotSent,
)
from reports.findings.consistency import (
    AnswersLeftOut,
    InputTokensDisagree,
    LittlesLaw,
    OutputLongerThanAsked,
    TextTokensDisagree,
    TokenCountsDisagree,
    TokenCountsUnknown,
    TokensCountedFromText,
)
from reports.findings.distribution import (
    MessagesDropped,
    WorkerClockJumped,
    WorkerClockUncertain,
    WorkersLost,
    WorkersStopped,
    WorkersTurnedAway,
)
from reports.findings.engine import FrontEndTime, GpuClocksLimited, RequestsPreempted
from reports.findings.finding import Finding, RunFacts, Severity
from reports.findings.in_flight import RareQueues, UsersInStep
from reports.findings.load import (
    ArrivalsNotAsAsked,
    ColdStartFound,
    NotSteady,
    QueueGrowing,
    RateWanders,
    RequestsRanOut,
    WaitedAtCeiling,
)
from reports.findings.outcomes import (
    EndMarkerMissing,
    Errors,
    FinishReasonMissing,
    NothingDone,
    OutputShorterThanAsked,
    PromptEchoed,
    ReasoningAlone,
    StoppedAnswering,
    WarmUpFailed,
)
from reports.findings.server import CountersDisagree, OutsideServerClock, PhasesExceedLatency, PrefixCacheWarmed
from reports.findings.simulation import BeyondModel, DoubtfulModel, Simulated
from reports.findings.target import MachineShared, TargetPaused

# In the order of reports, among findings of one severity.
KINDS: tuple[type[Finding], ...] = (
    BeyondModel,
    DoubtfulModel,
    Simulated,
    NothingDone,
    WorkersLost,
    WorkersStopped,
    WorkerKilled,
    Errors,
    StoppedAnswering,
    ScheduleSlip,
    AchievedBelowOffered,
    ObjectivesLostToClient,
    ClientSaturated,
    ClockStepped,
    WorkerClockJumped,
    ConnectionLimitReached,
    TargetPaused,
    MachineShared,
    WaitedAtCeiling,
    RequestsRanOut,
    QueueGrowing,
    NotSteady,
    RareQueues,
    UsersInStep,
    ColdStartFound,
    ArrivalsNotAsAsked,
    RateWanders,
    BeyondCalibration,
    WorkerClockUncertain,
    WorkersTurnedAway,
    MessagesDropped,
    BoundReached,
    EndedEarly,
    Interrupted,
    TurnsNotSent,
    Recovered,
    RecordingFailed,
    WarmUpFailed,
    ReasoningAlone,
    LatenciesCutOff,
    GeneratedOn,
    InputTokensDisagree,
    OutputLongerThanAsked,
    TokenCountsDisagree,
    TokenCountsUnknown,
    TokensCountedFromText,
    AnswersLeftOut,
    TextTokensDisagree,
    LittlesLaw,
    CountersDisagree,
    PhasesExceedLatency,
    OutsideServerClock,
    FrontEndTime,
    RequestsPreempted,
    GpuClocksLimited,
    PrefixCacheWarmed,
    OutputShorterThanAsked,
    PromptEchoed,
    FinishReasonMissing,
    EndMarkerMissing,
    PromptsDropped,
    SampleTooSmall,
)


def find(facts: RunFacts) -> tuple[Finding, ...]:
    """All findings of a run, the most severe first; at most one of each kind."""
    order = list(Severity)
    findings = [finding for kind in KINDS if (finding := kind.check(facts)) is not None]
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


class Validity(IntEnum):
    """How much of a run the findings leave valid, from all to nothing."""

    VALID = 0
    REQUESTS_FAILED = 1  # the only reason why it is not valid, so evidence against the target holds
    INVALID = 2


def validity(findings: Iterable[Finding]) -> Validity:
    """The validity of a run by its findings."""
    invalid = {finding.code for finding in findings if finding.severity is Severity.INVALID}
    if not invalid:
        return Validity.VALID
    by_failures = Errors.code in invalid and invalid <= {Errors.code, NothingDone.code}
    return Validity.REQUESTS_FAILED if by_failures else Validity.INVALID
