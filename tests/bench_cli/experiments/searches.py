"""Searches for capacity whose probes are computed: a queue of known capacity, on a clock that only probes advance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from bench_cli.experiments.search_run import ClosedLoop, TargetGoneError
from bench_records.manifest import Manifest
from bench_records.search import PlannedProbe, PlannedTier, Search, SearchFolder
from reports.capacity.probe import Probe, Violations
from reports.capacity.reading import MeasuredProbe
from reports.capacity.result import LoadUnit, ProbeRun, Verdict

SERVED_PER_S, LIMIT_S, OVERHEAD_S = 100.0, 0.15, 5.0
CAPACITY = SERVED_PER_S - math.log(100.0) / LIMIT_S  # of M/M/1, where 1 % of the requests take longer than the limit
SEARCH = Search(
    arguments=("token_norm_dist",),
    tiers=(PlannedTier(None, ("p99_ttft<=150ms",)),),
    unit=LoadUnit.REQUESTS_PER_S.value,
    confidence=0.95,
    ratio=1.2,
    budget_s=1_800.0,
    most_load=None,
    seed=7,
)


def measured(
    planned: PlannedProbe, above: int, *, overloaded: bool = False, counts: bool = True, served_per_s: float = SERVED_PER_S
) -> MeasuredProbe:
    probe = Probe(planned.load, planned.requests, (Violations(planned.requests, above, 5.0),), gave_up=overloaded)
    run = ProbeRun(
        probe=probe,
        folder=planned.folder,
        has_page=False,
        valid=counts,
        command="bench",
        verdict=Verdict.UNDECIDED,
        seconds=planned.requests / min(planned.load, served_per_s),
        request_throughput=min(planned.load, served_per_s),
        output_token_throughput=None,
        goodput=None,
        e2e_mean_ms=20.0,
        findings=(),
    )
    return MeasuredProbe(run, counts, target_gone=False, goodputs=(None,))


@dataclass
class FakeQueue:
    """Probes of M/M/1 with the shares that it has in the long run. ``ends_after`` probes ``end`` is raised. Opening
    takes ``start_s``; two of three probes take ``uneven_s`` longer beside their sending, or twice that.
    """

    folder: SearchFolder
    now_s: float = 0.0
    ends_after: int | None = None
    end: BaseException = field(default_factory=lambda: TargetGoneError("it is gone"))
    opened: int = 0
    made: list[PlannedProbe] = field(default_factory=list)
    closed_loops: int = 0
    believed: bool = True
    uneven_s: float = 0.0
    warm: list[bool] = field(default_factory=list)  # of each probe
    turns: float = 1.0  # of a conversation
    served_per_s: float = SERVED_PER_S
    start_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    @contextmanager
    def open(self) -> Iterator[FakeQueue]:
        self.opened += 1
        self.now_s += self.start_s
        yield self

    def closed_loop(self, search: Search) -> ClosedLoop:
        self.closed_loops += 1
        self.now_s += 10.0
        return ClosedLoop(self.served_per_s, self.served_per_s / self.turns)

    def probe(self, search: Search, planned: PlannedProbe, *, is_warm: bool) -> MeasuredProbe:
        self.warm.append(is_warm)
        if len(self.made) == self.ends_after:
            raise self.end
        self.made.append(planned)
        overloaded = planned.load >= self.served_per_s
        above = round((1.0 if overloaded else math.exp(-(self.served_per_s - planned.load) * LIMIT_S)) * planned.requests)
        found = measured(planned, above, overloaded=overloaded, counts=self.believed, served_per_s=self.served_per_s)
        self.now_s += found.run.seconds + OVERHEAD_S + self.uneven_s * (len(self.made) % 3)
        folder = self.folder.run_folder(planned)
        folder.path.mkdir(exist_ok=True)
        folder.requests.touch()
        folder.write_manifest(Manifest())
        return found


def searched(search: Search, measured_so_far: list[MeasuredProbe]) -> Search:
    """The search with these probes in its plan."""
    planned = [PlannedProbe(each.run.probe.load, each.run.probe.requests, 1, each.run.folder) for each in measured_so_far]
    return replace(search, probes=tuple(planned))
