"""``search.json``: the plan of a search for capacity, its probes so far, and their folders. Writer and reader.

It is written before each probe, so that a search that was cut short can be continued by a second call.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from bench_records.run_folder import NamedFile, RunFolder, is_directly_within, read_plan
from bench_records.whole_file import write_json

SEARCH_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PlannedTier:
    """A set of limits that hold together: criteria in the grammar of --slo. ``name`` is None where there is one set alone.

    ``objectives`` limit each request, for example "ttft<=200ms", and count where ``limits``, of the run, name attainment.
    """

    name: str | None
    limits: tuple[str, ...]
    objectives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedProbe:
    """One probe: its load in the search's unit, its requests, its seed, and the name of its folder within the search's.

    Users of a closed loop start evenly over ``ramp_up_s`` seconds. Requests that take longer than ``timeout_s`` fail, None: the
    default.
    """

    load: float
    requests: int
    seed: int
    folder: str
    ramp_up_s: float = 0.0
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedControl:
    """What a simulation of a probe's schedule has beyond one limit: the requests beyond it in blocks of the same requests,
    ``measured`` and ``simulated``; the simulated ``share`` of the whole probe, and its mean over other schedules, ``expected``.
    """

    measured: tuple[int, ...]
    simulated: tuple[int, ...]
    share: float
    expected: float


@dataclass(frozen=True, slots=True)
class RecordedForecast:
    """What the rest of a search was expected to reach: the ``ratios`` of the brackets at its end, in the order of its sets,
    None where no bracket was expected, and the ``seconds`` until then.
    """

    ratios: tuple[float | None, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Search:
    """``arguments`` are the measuring verb and the options of every probe, without secrets; ``unit`` is "requests/s",
    "conversations/s" or "users". With ``conversations`` probes send whole ones.

    ``ratio`` is what the bracket's ends are to be apart at most: 1.2 for ±10 %. ``budget_s`` None: unlimited; ``spent_s`` is
    what the probes so far, and what was between them, took of it. ``most_load`` is the largest load that may be tried, None for
    any. ``first_load`` is the guess from which the search starts, ``first_per_s`` the requests/s of the closed loop that gave
    it, None before they are known. ``before_each`` says that a command ran before each probe, which may hold secrets and is not
    kept. ``ended`` is why it ended, None while it can go on.

    ``model`` is the digest of the fitted model that the schedules of the probes are simulated with, None without one; a copy of
    the model is in the folder. ``controls`` are what that gave, by the folders of the probes, in the order of all limits.

    ``forecasts`` are those after the probes of these folders; there is none of a probe after which too little was known.
    """

    arguments: tuple[str, ...]
    tiers: tuple[PlannedTier, ...]
    unit: str
    confidence: float
    ratio: float
    budget_s: float | None
    most_load: float | None
    seed: int
    conversations: bool = False
    before_each: bool = False
    first_load: float | None = None
    first_per_s: float | None = None
    spent_s: float = 0.0
    probes: tuple[PlannedProbe, ...] = ()
    ended: str | None = None
    model: str | None = None
    controls: dict[str, tuple[RecordedControl, ...]] = field(default_factory=dict)
    forecasts: dict[str, RecordedForecast] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchFolder:
    """The folder of a search."""

    path: Path

    plan = NamedFile("search.json")
    model = NamedFile("model.json")  # the fitted one, where probes are simulated, too
    server_log = NamedFile("server.log")  # of the embedded pipeline, which all probes share

    @property
    def first(self) -> RunFolder:
        """The closed loop whose throughput gives the first load."""
        return RunFolder(self.path / "000-closed-loop")

    def run_folder(self, probe: PlannedProbe) -> RunFolder:
        return RunFolder(self.path / probe.folder)

    def is_recorded(self, probe: PlannedProbe) -> bool:
        """Whether the probe came to its end, valid or not. Raises RunFolderError where its manifest is damaged."""
        return self.run_folder(probe).is_whole()

    def write(self, search: Search) -> None:
        """Write ``search.json`` whole or not at all."""
        write_json({"schema": SEARCH_SCHEMA, **asdict(search)}, self.plan)

    def read(self) -> Search:
        """Read ``search.json``. Raises RunFolderError when it is absent, damaged or of another schema."""
        return read_plan(self.plan, SEARCH_SCHEMA, _search, "search for capacity")


def _search(document: object) -> Search:
    search = msgspec.convert(document, Search)
    if not search.arguments or not search.tiers or any(not tier.limits for tier in search.tiers):
        raise ValueError("it names no measuring verb, or a set without limits")
    for probe in search.probes:
        if not is_directly_within(probe.folder):
            raise ValueError(f"the folder of probe {probe.folder!r} lies elsewhere")
    return search
