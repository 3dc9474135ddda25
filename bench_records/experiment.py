"""``experiment.json``: the planned runs of an experiment or a sweep, and their folders. Writer and reader.

It is written before the first run, so that an interrupted experiment can be continued by a second call.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bench_records.run_folder import NamedFile, RunFolder, is_directly_within, read_plan
from bench_records.whole_file import write_json

EXPERIMENT_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PlannedArm:
    """One configuration: its name, and its options beside those that all arms share."""

    name: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: the index of its arm, its block, and the name of its folder within the experiment's."""

    arm: int
    block: int
    folder: str


@dataclass(frozen=True, slots=True)
class UntilDecided:
    """The end of an experiment when ``measure`` is decided, after ``most_blocks`` at the latest. None: a comparison's own."""

    most_blocks: Annotated[int, Meta(ge=3, le=1000)]
    measure: str | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """``kind`` is "experiment" or "sweep"; ``arguments`` are the measuring verb and the options of every run.

    ``runs`` are in the order of their execution. A block holds one run of every arm, with one seed. With ``until`` the last
    ones may not be made. ``before_each`` says whether a command ran before each run, which may hold secrets and is not kept;
    None is unknown.
    """

    kind: str
    arguments: tuple[str, ...]
    arms: tuple[PlannedArm, ...]
    runs: tuple[PlannedRun, ...]
    seed: int
    until: UntilDecided | None = None
    before_each: bool | None = None


@dataclass(frozen=True, slots=True)
class ExperimentFolder:
    """The folder of an experiment."""

    path: Path

    plan = NamedFile("experiment.json")

    def run_folder(self, run: PlannedRun) -> RunFolder:
        return RunFolder(self.path / run.folder)

    def is_recorded(self, run: PlannedRun) -> bool:
        """Whether the run came to its end, valid or not. Raises RunFolderError where its manifest is damaged."""
        return self.run_folder(run).is_whole()

    def write(self, experiment: Experiment) -> None:
        """Write ``experiment.json`` whole or not at all."""
        write_json({"schema": EXPERIMENT_SCHEMA, **asdict(experiment)}, self.plan)

    def read(self) -> Experiment:
        """Read ``experiment.json``. Raises RunFolderError when it is absent, damaged or of another schema."""
        return read_plan(self.plan, EXPERIMENT_SCHEMA, _experiment, "experiment")


def _experiment(document: object) -> Experiment:
    experiment = msgspec.convert(document, Experiment)
    for run in experiment.runs:
        if not 0 <= run.arm < len(experiment.arms) or not is_directly_within(run.folder):
            raise ValueError(f"run {run.folder!r} belongs to no arm, or lies elsewhere")
    return experiment
