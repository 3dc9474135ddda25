"""What a run puts on disk and when, so that a kill or a full disk at any moment loses nothing that happened.

Before the first request: ``schedule.bin`` (what recording works from) and ``run.json``, marked as running. During the run: the
journals. After it: ``requests.parquet``, then ``run.json`` marked as done, and only then are journals and schedule given up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from typing import Any

from harness.errors import RunError
from harness.recording.run_result import RunResult
from harness.recording.schedule_file import RecordingBasis, write_basis
from harness.records.run_folder import RunFolder, RunState
from harness.records.table import write_table


@contextmanager
def begun(folder: RunFolder, manifest: Mapping[str, Any], basis: RecordingBasis) -> Iterator[None]:
    """Write what comes before the first request. An error before any journal was begun leaves a folder that says so.

    Raises RunError when the disk does not take it.
    """
    try:
        write_basis(basis, folder.schedule)
        folder.write_manifest({**manifest, "state": RunState.RUNNING})
    except OSError as error:
        folder.schedule.unlink(missing_ok=True)
        raise RunError(f"{folder.path} cannot be written to ({_told(error)}); nothing was sent") from error
    try:
        yield
    except BaseException:
        if not folder.journals() and not folder.requests.exists():  # a signal that waited for the records comes here, too
            folder.write_manifest({**manifest, "state": RunState.NOT_STARTED})
            folder.schedule.unlink(missing_ok=True)
        raise


def finish(folder: RunFolder, manifest: Mapping[str, Any], result: RunResult) -> None:
    """Make the run durable; only then are the journals, which hold the same, given up.

    Raises RunError when the disk does not take it; nothing is given up then.
    """
    try:
        write_table(result.records, folder.requests)
        folder.write_manifest(_finished(manifest, result))
    except OSError as error:
        raise RunError(
            f"the run took place, but its records cannot be written to {folder.path} ({_told(error)}). Its journals are kept "
            f"there: make room, then run: bench recover {folder.path}"
        ) from error
    give_up_journals(folder)


def give_up_journals(folder: RunFolder) -> None:
    """Remove what a recorded run needs no more."""
    for path in (*folder.journals(), folder.schedule):
        path.unlink(missing_ok=True)


def _finished(manifest: Mapping[str, Any], result: RunResult) -> dict[str, Any]:
    return {
        **manifest,
        "state": RunState.DONE,
        "started_at": None if result.started_at is None else result.started_at.astimezone(UTC).isoformat(),
        "duration_s": result.duration_s,
        "interrupted": result.interrupted,
        "problem": result.problem,
        "load": _finished_load(manifest, result),
        "warm_up": {**manifest["warm_up"], "failures": list(result.warm_up_failures)},
    }


def _finished_load(manifest: Mapping[str, Any], result: RunResult) -> dict[str, Any]:
    """Requests ran out where users found none left, and no more were asked for than were prepared."""
    load, asked = manifest["load"], manifest["options"]["num_requests"]
    return {**load, "ran_out": load["ran_out"] or (result.ran_out and (asked is None or load["prepared"] < asked))}


def _told(error: OSError) -> str:
    return str(error) if error.errno is None else os.strerror(error.errno)
