from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import JournalError
from harness.recording import worker_copies
from harness.recording.worker_copies import join_worker_copies
from harness.records.run_folder import RunFolder


def _files(folder: Path, **contents: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name.replace('_', '-')}.bin").write_bytes(content)
    return folder


def test_a_longer_copy_replaces_the_folders_own_and_a_shorter_one_does_not(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", journal_0=b"abc", journal_1=b"uvw", probe_0=b"p")
    source = _files(tmp_path / "source" / "3", journal_0=b"abcdef", journal_1=b"uv", journal_2=b"new", probe_0=b"p")
    assert join_worker_copies(RunFolder(run), [source.parent]) == ("journal-0.bin", "journal-2.bin")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == {
        "journal-0.bin": b"abcdef",
        "journal-1.bin": b"uvw",
        "journal-2.bin": b"new",
        "probe-0.bin": b"p",
    }


def test_the_copies_of_every_source_are_joined_and_named(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", journal_0=b"abc")
    sources = [_files(tmp_path / "one", journal_0=b"abcdef"), _files(tmp_path / "other", journal_1=b"new")]
    assert join_worker_copies(RunFolder(run), sources) == ("journal-0.bin", "journal-1.bin")


@given(own=st.binary(max_size=40), more=st.binary(max_size=40), chunk=st.integers(1, 7))
def test_a_copy_of_any_length_joins_byte_for_byte(own: bytes, more: bytes, chunk: int) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_copies, "_CHUNK_BYTES", chunk)
        run, source = _files(Path(name) / "run", journal_0=own), _files(Path(name) / "source", journal_0=own + more)
        assert join_worker_copies(RunFolder(run), [source]) == (("journal-0.bin",) if more else ())
        assert (run / "journal-0.bin").read_bytes() == own + more


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", journal_0=b"abc")
    source = _files(tmp_path / "source", journal_0=b"abX123")
    with pytest.raises(JournalError, match="different runs"):
        join_worker_copies(RunFolder(run), [source])
    assert (run / "journal-0.bin").read_bytes() == b"abc"


def test_a_folder_without_journals_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"holds no journal"):
        join_worker_copies(RunFolder(_files(tmp_path / "run")), [_files(tmp_path / "source", other=b"x")])
