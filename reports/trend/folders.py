"""The runs of a trend: the finished ones below some folders, in the order of time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench_records.manifest import Manifest
from bench_records.run_folder import RunFolder, RunFolderError


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A finished run. ``name`` is its folder, relative to the searched folder. An old run has no ``run_id``."""

    folder: RunFolder
    name: str
    started_at: datetime
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that is not in the trend, and why. ``started_at`` is None where its manifest does not say."""

    name: str
    why: str
    started_at: datetime | None


def find_runs(paths: Sequence[Path]) -> tuple[tuple[FoundRun, ...], tuple[LeftOut, ...]]:
    """The finished runs among ``paths`` and below them, the oldest first; and those that were left out.

    Runs within a run's folder are ignored, and links are not followed. A copy of a run is no further run. Raises RunFolderError
    where a path is not a folder, or where there is no run at all.
    """
    found: dict[Path, FoundRun] = {}
    known: dict[str, str] = {}  # the names of runs by their ids
    left_out: dict[Path, LeftOut] = {}
    for path in paths:
        if not path.is_dir():
            raise RunFolderError(f"{path} is not a folder")
        for folder in _run_folders(path):
            real = folder.resolve()
            if real in found or real in left_out:
                continue
            name = _name(folder, path, alone=len(paths) == 1)
            try:
                run = _finished_run(RunFolder(folder), name)
            except RunFolderError as error:
                left_out[real] = LeftOut(name, str(error), _known_start(RunFolder(folder)))
                continue
            if run.run_id in known:
                left_out[real] = LeftOut(
                    name, f"holds the same run as {known[run.run_id]}, of which it is a copy", run.started_at
                )
                continue
            found[real] = run
            if run.run_id is not None:
                known[run.run_id] = name
    if not found and not left_out:
        raise RunFolderError(f"there is no run in {', '.join(map(str, paths))}: no folder there has a run.json")
    return tuple(sorted(found.values(), key=lambda run: (run.started_at, run.name))), tuple(left_out.values())


def _run_folders(path: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(path):
        inner.sort()
        if "run.json" in files:
            inner.clear()
            yield Path(folder)


def _name(folder: Path, searched: Path, *, alone: bool) -> str:
    if folder == searched:
        return searched.resolve().name
    below = folder.relative_to(searched).as_posix()
    return below if alone else f"{searched.resolve().name}/{below}"


def _finished_run(folder: RunFolder, name: str) -> FoundRun:
    """Raises RunFolderError for a run that has not ended."""
    manifest = folder.read_manifest()
    folder.check_finished(manifest)
    return FoundRun(folder, name, _started_at(folder, manifest), manifest.run_id)


def _known_start(folder: RunFolder) -> datetime | None:
    try:
        return _started_at(folder, folder.read_manifest())
    except RunFolderError:
        return None


def _started_at(folder: RunFolder, manifest: Manifest) -> datetime:
    """Raises RunFolderError."""
    try:
        started_at = datetime.fromisoformat(manifest.started_at or "")
    except ValueError:
        raise RunFolderError(f"{folder.manifest} has no valid start time (started_at)") from None
    return started_at.replace(tzinfo=UTC) if started_at.tzinfo is None else started_at.astimezone(UTC)
