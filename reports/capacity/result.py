"""The result of a search for capacity, for every format that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bench_records.search import RecordedForecast
from reports.capacity.probe import Probe
from reports.capacity.search import Bracket, Goal
from reports.criteria import Requirement


class LoadUnit(StrEnum):
    """What the search raises: requests/s, or conversations/s, that arrive, or users of a closed loop."""

    REQUESTS_PER_S = "requests/s"
    CONVERSATIONS_PER_S = "conversations/s"
    USERS = "users"


class Verdict(StrEnum):
    """The verdict on a load: at most the certified one HOLDS, at least the refused one FAILS, between them it is UNDECIDED."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Ended(StrEnum):
    """Why the search ended, or that it can go on."""

    PRECISE = "the bracket is as narrow as requested"
    BUDGET = "the budget is spent"
    NO_LIMIT = "no load that was tried is too high"
    NONE_HOLDS = "no load that was tried is low enough"
    DECIDED_BY_NOTHING = "no further probe decides more"
    TARGET_FAILED = "the target stopped answering"
    INTERRUPTED = "it was stopped"
    NOT_VALID = "its last probes cannot be believed"


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """A probe and its recorded run: its folder within the search's, and the command that repeats it. Rates are per second.

    ``verdict`` is by the bracket of all probes, for the tier that is shown first. ``problem`` is the first finding by which the
    run is not valid, with its remedy, in one line. None is unknown.
    """

    probe: Probe
    folder: str
    has_page: bool
    valid: bool
    command: str
    verdict: Verdict
    seconds: float
    request_throughput: float | None
    output_token_throughput: float | None
    goodput: float | None
    e2e_mean_ms: float | None
    findings: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """A set of limits that hold together; ``name`` is None where there is one set alone.

    ``users`` are those in flight at the certified load, by Little's law; rates are those there, by the nearest probes.
    """

    name: str | None
    goal: Goal
    bracket: Bracket
    users: float | None
    goodput: float | None
    output_token_throughput: float | None

    @property
    def numbers(self) -> dict[str, float | None]:
        """The ends of the bracket and its estimate, then the numbers at the certified load, by their names in files."""
        return {
            "certified": self.bracket.certified,
            "refused": self.bracket.refused,
            "estimate": self.bracket.estimate,
            "users": self.users,
            "goodput": self.goodput,
            "output_token_throughput": self.output_token_throughput,
        }


@dataclass(frozen=True)
class Capacity:
    """A search with all its probes, in the order of their runs. ``measured`` is the measuring verb with its options.

    ``limits`` are in the order of ``Probe.violations``; ``tiers`` are not empty. ``budget_s`` None: unlimited; ``spent_s`` is
    what the search took of it, with what was between the probes, None where unknown. ``forecasts`` are by the folders of the
    probes after which they were made.
    """

    measured: str
    unit: LoadUnit
    limits: tuple[Requirement, ...]
    tiers: tuple[Tier, ...]
    probes: tuple[ProbeRun, ...]
    ended: Ended | None
    budget_s: float | None
    spent_s: float | None = None
    forecasts: Mapping[str, RecordedForecast] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Requests of all probes, ramps included."""
        return sum(run.probe.requests for run in self.probes)

    @property
    def seconds(self) -> float:
        """Time of all probes."""
        return sum(run.seconds for run in self.probes)


def verdict_of(load: float, bracket: Bracket) -> Verdict:
    """The verdict on a load."""
    if bracket.certified is not None and load <= bracket.certified:
        return Verdict.HOLDS
    return Verdict.FAILS if bracket.refused is not None and load >= bracket.refused else Verdict.UNDECIDED
