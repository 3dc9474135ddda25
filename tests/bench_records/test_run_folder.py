from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_records.manifest import MANIFEST_SCHEMA, Manifest
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder, RunFolderError
from bench_records.table import write_table


def test_manifest_is_read_as_it_was_written_and_alone_in_the_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    manifest = Manifest(verb="dataset", options={"url": None, "größe": 1.5})
    folder.write_manifest(manifest)
    assert folder.read_manifest() == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_manifest_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_manifest(Manifest())
    with pytest.raises(TypeError):
        folder.write_manifest(Manifest(options={"path": tmp_path}))
    assert folder.read_manifest() == Manifest()


def test_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=rf"{tmp_path} is not a run folder: it has no run\.json"):
        RunFolder(tmp_path).read_manifest()


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", json.dumps([1]).encode(), b"{}", json.dumps({"schema": MANIFEST_SCHEMA + 1}).encode()]
)
def test_damaged_or_foreign_manifest_names_the_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"run\.json"):
        RunFolder(tmp_path).read_manifest()


def test_run_without_its_table_is_refused_as_unfinished(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no requests\.parquet"):
        RunFolder(tmp_path).read_requests()


def test_damaged_table_names_the_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_table([Record(index=0, outcome=Outcome.DONE, scheduled_ns=0, requested_output_tokens=1)], folder.requests)
    whole = folder.requests.read_bytes()
    for damaged in (b"", b"PAR1", whole[: len(whole) // 2], b"x" * 100):
        folder.requests.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"requests\.parquet cannot be read"):
            folder.read_requests()
    folder.requests.write_bytes(whole)
    assert folder.read_requests().num_rows == 1


def test_journals_are_those_of_this_folder_and_nothing_else(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for worker in (1, 0):
        folder.journal(worker).touch()
    folder.manifest.touch()
    assert folder.journals() == [folder.journal(0), folder.journal(1)]
