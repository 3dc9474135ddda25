from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from bench_records.run_folder import RunFolder
from harness.errors import JournalError
from harness.journal.frames import framed
from harness.journal.worker_journal import Began, Exchange, JournalWriter
from harness.recording import worker_copies
from harness.recording.worker_copies import Joined, join_worker_copies

_RUN_ID, _OTHER = "1" * 32, "2" * 32


def _head(run_id: str = _RUN_ID) -> bytes:
    with TemporaryDirectory() as name:
        with JournalWriter(Path(name) / "journal") as journal:
            journal.append(Began(run_id, "digest", 0, 0))
        return (Path(name) / "journal").read_bytes()


_HEAD = _head()


def _files(folder: Path, head: bytes = _HEAD, **contents: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        data = head + content if name.startswith("journal") else content
        (folder / f"{name.replace('_', '-')}.bin").write_bytes(data)
    return folder


def test_a_longer_copy_replaces_the_folders_own_and_a_shorter_one_does_not(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", journal_0=b"abc", journal_1=b"uvw", samples_0=b"p")
    source = _files(tmp_path / "source" / "3", journal_0=b"abcdef", journal_1=b"uv", journal_2=b"new", samples_0=b"pq")
    names = ("journal-0.bin", "journal-2.bin", "samples-0.bin")
    assert join_worker_copies(RunFolder(run), _RUN_ID, [source.parent]) == Joined(names, ())
    assert {path.name: path.read_bytes() for path in run.iterdir()} == {
        "journal-0.bin": _HEAD + b"abcdef",
        "journal-1.bin": _HEAD + b"uvw",
        "journal-2.bin": _HEAD + b"new",
        "samples-0.bin": b"pq",
    }


def test_the_copies_of_every_source_are_joined_and_named(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", journal_0=b"abc")
    sources = [_files(tmp_path / "one", journal_0=b"abcdef"), _files(tmp_path / "other", journal_1=b"new")]
    foreign = [_files(source, _head(_OTHER), journal_7=b"") / "journal-7.bin" for source in sources]
    expected = Joined(("journal-0.bin", "journal-1.bin"), tuple(foreign))
    assert join_worker_copies(RunFolder(run), _RUN_ID, sources) == expected


def test_the_samples_of_an_older_worker_are_joined(tmp_path: Path) -> None:
    run, source = _files(tmp_path / "run"), _files(tmp_path / "source", journal_0=b"", probe_0=b"p", probe_1=b"q")
    assert join_worker_copies(RunFolder(run), _RUN_ID, [source]).names == ("journal-0.bin", "probe-0.bin")


@given(own=st.binary(max_size=40), more=st.binary(max_size=40), chunk=st.integers(1, 7))
def test_a_copy_of_any_length_joins_byte_for_byte(own: bytes, more: bytes, chunk: int) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_copies, "_CHUNK_BYTES", chunk)
        run, source = _files(Path(name) / "run", journal_0=own), _files(Path(name) / "source", journal_0=own + more)
        assert join_worker_copies(RunFolder(run), _RUN_ID, [source]).names == (("journal-0.bin",) if more else ())
        assert (run / "journal-0.bin").read_bytes() == _HEAD + own + more


_ENTRIES = b"".join(framed(msgpack.encode(Exchange(number, 0, 0, 0, 0, [0], [b"a" * 50], None, None))) for number in range(3))
_SECOND = len(_ENTRIES) // 3


def _damaged(entries: bytes, byte: int = 120) -> bytes:
    """``entries`` with a bit of the second one turned."""
    return entries[:byte] + bytes([entries[byte] ^ 1]) + entries[byte + 1 :]


@pytest.mark.parametrize(
    ("own", "copy", "problem"),
    [
        (_damaged(_ENTRIES), _ENTRIES, "{run}/journal-0.bin is damaged at byte {second}; move it away, and recover again"),
        (_damaged(_ENTRIES), _ENTRIES[:-9], "{run}/journal-0.bin is damaged at byte {second}; move it away, and recover again"),
        (_ENTRIES, _damaged(_ENTRIES), "{source}/journal-0.bin is damaged at byte {second}; move it away, and recover again"),
        (
            _ENTRIES[:-9],
            _damaged(_ENTRIES),
            "{source}/journal-0.bin is damaged at byte {second}; move it away, and recover again",
        ),
        (
            _damaged(_ENTRIES),
            _damaged(_ENTRIES, 121),
            "both are damaged before byte {both}; move one of them away, and recover again",
        ),
        (
            _ENTRIES,
            _ENTRIES[:_SECOND] * 2,
            "both name the same run, and neither is damaged; move the wrong one away, and recover again",
        ),
    ],
)
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_of_two_copies_that_differ_the_damaged_one_is_named(
    tmp_path: Path, own: bytes, copy: bytes, problem: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_copies, "_CHUNK_BYTES", chunk)
    run, source = _files(tmp_path / "run", journal_0=own), _files(tmp_path / "source", journal_0=copy)
    expected = problem.format(run=run, source=source, second=len(_HEAD) + _SECOND, both=len(_HEAD) + 121)
    with pytest.raises(JournalError, match=rf"^{tmp_path}\S+ does not continue {tmp_path}\S+: {re.escape(expected)}$"):
        join_worker_copies(RunFolder(run), _RUN_ID, [source])
    assert (run / "journal-0.bin").read_bytes() == _HEAD + own


def test_a_journal_of_the_folder_whose_first_line_is_damaged_is_named(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", _damaged(_HEAD, 0), journal_0=_ENTRIES)
    with pytest.raises(JournalError, match=f"{run}/journal-0.bin is damaged at byte 0; move it away, and recover again$"):
        join_worker_copies(RunFolder(run), _RUN_ID, [_files(tmp_path / "source", journal_0=_ENTRIES)])


def test_samples_that_differ_are_judged_by_their_own_frames(tmp_path: Path) -> None:
    run = _files(tmp_path / "run", journal_0=b"", samples_0=_ENTRIES)
    source = _files(tmp_path / "source", journal_0=b"", samples_0=_damaged(_ENTRIES))
    with pytest.raises(
        JournalError, match=f"{source}/samples-0.bin is damaged at byte {_SECOND}; move it away, and recover again$"
    ):
        join_worker_copies(RunFolder(run), _RUN_ID, [source])


@pytest.mark.parametrize("head", [_head(_OTHER), b"", b"inflight-bench journal 1\n", _HEAD[:-1]])
def test_journals_of_other_runs_are_left_out_and_named(tmp_path: Path, head: bytes) -> None:
    """Also where the folder has none of that worker yet, with which it could be compared."""
    run, source = _files(tmp_path / "run"), tmp_path / "source"
    _files(source / "mine", journal_1=b"new")
    foreign = _files(source / "foreign", head, journal_0=b"", samples_0=b"p") / "journal-0.bin"
    assert join_worker_copies(RunFolder(run), _RUN_ID, [source]) == Joined(("journal-1.bin",), (foreign,))
    assert [path.name for path in run.iterdir()] == ["journal-1.bin"]
    with pytest.raises(
        JournalError,
        match=rf"foreign holds no journal \(journal-\*\.bin\) of a worker of this run, {_RUN_ID}, but 1 of other runs$",
    ):
        join_worker_copies(RunFolder(run), _RUN_ID, [source / "foreign"])


def test_a_folder_without_journals_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=rf"holds no journal \(journal-\*\.bin\) of a worker of this run, {_RUN_ID}$"):
        join_worker_copies(RunFolder(_files(tmp_path / "run")), _RUN_ID, [_files(tmp_path / "source", other=b"x")])
