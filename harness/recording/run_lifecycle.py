"""The files of a run in the order of their writing, so that a kill or a full disk at any moment loses no exchange.

Before the first request: ``schedule.bin`` (the input of recording) and ``run.json``, marked as running. During the run: the
journals. After it: ``requests.parquet``, then ``run.json`` marked as done; only then are journals and schedule deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC

from msgspec.structs import replace

from bench_records.manifest import LoadFacts, Manifest, RunState
from bench_records.run_folder import RunFolder
from bench_records.table import write_table
from harness.errors import RunError
from harness.recording.run_result import RunResult
from harness.recording.schedule_file import RecordingBasis, write_basis


@contextmanager
def open_run(folder: RunFolder, manifest: Manifest, basis: RecordingBasis) -> Iterator[None]:
    """Write the files before the first request. After an error before any journal, the run is marked as not started.

    Raises RunError where the files cannot be written.
    """
    try:
        write_basis(basis, folder.schedule)
        folder.write_manifest(replace(manifest, state=RunState.RUNNING))
    except OSError as error:
        folder.schedule.unlink(missing_ok=True)
        raise RunError(f"{folder.path} cannot be written to ({_reason(error)}); nothing was sent") from error
    identity = folder.identity
    try:
        yield
    except BaseException:
        is_gone = folder.identity != identity  # or another is in its place
        if not is_gone and not folder.journals() and not folder.requests.exists():  # else a signal, blocked meanwhile
            folder.write_manifest(replace(manifest, state=RunState.NOT_STARTED))
            folder.schedule.unlink(missing_ok=True)
        raise


def finish_run(folder: RunFolder, manifest: Manifest, result: RunResult) -> None:
    """Write the records and mark the run as done; only then are the journals, with the same content, deleted.

    Raises RunError where the disk is full; nothing is deleted then.
    """
    try:
        write_table(result.records, folder.requests)
        folder.write_manifest(_finished(manifest, result))
    except OSError as error:
        raise RunError(
            f"the run took place, but its records cannot be written to {folder.path} ({_reason(error)}). Its journals are kept "
            f"there: make room, then run: bench recover {folder.path}"
        ) from error
    delete_journals(folder)


def delete_journals(folder: RunFolder) -> None:
    """Delete the files that a recorded run no longer needs."""
    for path in (*folder.journals(), folder.schedule):
        path.unlink(missing_ok=True)


def _finished(manifest: Manifest, result: RunResult) -> Manifest:
    return replace(
        manifest,
        state=RunState.DONE,
        started_at=None if result.started_at is None else result.started_at.astimezone(UTC).isoformat(),
        duration_s=result.duration_s,
        interrupted=result.interrupted,
        problem=result.problem,
        load=_finished_load(manifest, result),
        warm_up=replace(manifest.warm_up, failures=result.warm_up_failures),
    )


def _finished_load(manifest: Manifest, result: RunResult) -> LoadFacts:
    """Requests ran out where users had none left, unless --num_requests limited them to those that were prepared, or a rule
    ended the run before.
    """
    load, requested = manifest.load or LoadFacts(), manifest.options.get("num_requests")
    is_limited = isinstance(requested, int) and load.prepared is not None and load.prepared >= requested
    ran_out = load.ran_out or (result.ran_out and not is_limited)
    return replace(load, ran_out=ran_out if result.rule_end is None else False)


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None else os.strerror(error.errno)
