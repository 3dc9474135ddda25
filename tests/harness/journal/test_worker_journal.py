from __future__ import annotations

import os
import resource
import struct
import tempfile
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.folder_lock import exclusive_lock
from bench_records.record import Outcome
from harness.errors import JournalError
from harness.journal.frames import framed
from harness.journal.worker_journal import Began, Ended, Exchange, JournalReader, JournalWriter, read_began

_TIMES = st.integers(-(2**53), 2**53)
_EXCHANGES = st.builds(
    Exchange,
    index=st.integers(0, 2**53),
    due_ns=_TIMES,
    released_ns=_TIMES,
    sent_ns=_TIMES,
    done_ns=_TIMES,
    response_ns=st.just([]),
    bodies=st.just([]),
    failure=st.none() | st.sampled_from(Outcome),
    error=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
_RESPONSES = st.lists(st.tuples(_TIMES, st.binary(max_size=60)), max_size=4)
_ANSWERED = st.builds(
    lambda exchange, answers: msgspec.structs.replace(
        exchange, response_ns=[time_ns for time_ns, _ in answers], bodies=[body for _, body in answers]
    ),
    _EXCHANGES,
    _RESPONSES,
)

_THREE = (
    Exchange(0, 9, 9, 10, 90, [20, 30], [b"first", b"second"], None, None),
    Exchange(7, 12, 14, 15, 95, [], [], Outcome.TIMEOUT, "DEADLINE_EXCEEDED: 5 s"),
    Exchange(3, 16, 16, 16, 99, [80], [b"\x00\xff" * 20], None, None, 4),
)


def _write(path: Path, exchanges: tuple[Exchange, ...] | list[Exchange]) -> list[int]:
    """Write a journal; returns where each frame ends."""
    ends = []
    with JournalWriter(path) as journal:
        for exchange in exchanges:
            journal.append(exchange)
            ends.append(path.stat().st_size)
    return ends


@settings(max_examples=100)
@given(st.lists(_ANSWERED, max_size=6))
def test_what_is_written_is_read(exchanges: list[Exchange]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        _write(path, exchanges)
        assert list(JournalReader(path).read_new()) == exchanges


def test_append_is_on_disk_before_it_returns(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = JournalWriter(path)
    journal.append(_THREE[0])  # not closed, not flushed: a SIGKILL here must lose nothing
    assert list(JournalReader(path).read_new()) == [_THREE[0]]
    journal.close()


def test_torn_at_every_byte_the_whole_frames_are_read(tmp_path: Path) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    ends = _write(whole, _THREE)
    data = whole.read_bytes()
    for cut in range(len(data) + 1):
        torn.write_bytes(data[:cut])
        expected = [exchange for exchange, end in zip(_THREE, ends, strict=True) if end <= cut]
        assert list(JournalReader(torn).read_new()) == expected, f"cut after {cut} bytes"


def test_damage_at_any_byte_of_a_frame_ends_the_reading_before_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ends = _write(path, _THREE)
    data = path.read_bytes()
    for position in range(ends[0], ends[1]):
        for damage in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:position] + bytes([data[position] ^ damage]) + data[position + 1 :])
            assert list(JournalReader(path).read_new()) == [_THREE[0]], f"byte {position} ^ {damage:#x}"


def test_damage_at_any_byte_of_a_frame_costs_that_frame_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ends = _write(path, _THREE)
    data = path.read_bytes()
    for position in range(ends[0], ends[1]):
        for damage in (0x01, 0x80, 0xFF):
            path.write_bytes(data[:position] + bytes([data[position] ^ damage]) + data[position + 1 :])
            reader = JournalReader(path)
            assert list(reader.read_rest()) == [_THREE[0], _THREE[2]], f"byte {position} ^ {damage:#x}"
            assert (reader.damaged_bytes, reader.unread_bytes) == (ends[1] - ends[0], 0)


@pytest.mark.parametrize("junk", [b"", b"x", bytes(200_000), b"\x05\0\0\0" * 40_000])
def test_bytes_lost_or_put_in_cost_the_frames_that_they_touch(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "journal"
    ends = _write(path, _THREE)
    data = path.read_bytes()
    path.write_bytes(data[: ends[0] + 3] + junk + data[ends[0] + 7 :])
    assert list(JournalReader(path).read_rest()) == [_THREE[0], _THREE[2]]


def test_an_answer_that_imitates_a_frame_is_not_read_where_its_own_frame_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    imitation = framed(msgspec.msgpack.encode(_THREE[1]))
    ends = _write(path, [_THREE[0], Exchange(5, 1, 1, 1, 2, [2], [b"x" * 50 + imitation], None, None), _THREE[2]])
    data = bytearray(path.read_bytes())
    data[ends[0] + 20] ^= 1
    path.write_bytes(data)
    assert list(JournalReader(path).read_rest()) == [_THREE[0], _THREE[2]]


@given(st.binary(max_size=400))
def test_whatever_follows_the_head_is_read_or_passed_over(junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        ends = _write(path, _THREE[:1])
        path.write_bytes(path.read_bytes() + junk)
        reader = JournalReader(path)
        assert list(reader.read_rest()) == [_THREE[0]]
        assert reader.damaged_bytes + reader.unread_bytes == path.stat().st_size - ends[0]


@pytest.mark.parametrize("payload", [b"\xc0", b"\x91" * 50_000, b"\xdd\xff\xff\xff\xff", msgspec.msgpack.encode([1, "index"])])
def test_a_whole_frame_that_is_no_entry_is_refused_with_its_place(tmp_path: Path, payload: bytes) -> None:
    path = tmp_path / "journal"
    ends = _write(path, _THREE)
    path.write_bytes(path.read_bytes() + framed(payload))
    with pytest.raises(JournalError, match=rf"journal, entry at byte {ends[2]}, is not one of this version"):
        list(JournalReader(path).read_rest())


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(JournalError, match=rf"{path} cannot be read"):
            list(JournalReader(path).read_new())


def test_growing_file_gives_each_exchange_once_and_when_it_is_whole(tmp_path: Path) -> None:
    whole, growing = tmp_path / "whole", tmp_path / "growing"
    ends = _write(whole, _THREE)
    data = whole.read_bytes()
    growing.write_bytes(b"")
    reader = JournalReader(growing)
    for length in range(1, len(data) + 1):
        with growing.open("ab") as file:
            file.write(data[length - 1 : length])
        expected = [exchange for exchange, end in zip(_THREE, ends, strict=True) if end == length]
        assert list(reader.read_new()) == expected, f"after {length} bytes"


def test_journal_that_does_not_exist_yet_reads_as_empty_and_is_found_later(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    assert list(reader.read_new()) == []
    _write(path, _THREE)
    assert list(reader.read_new()) == list(_THREE)


def test_reading_that_stops_half_way_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _write(path, _THREE)
    reader = JournalReader(path)
    assert next(reader.read_new()) == _THREE[0]
    assert list(reader.read_new()) == list(_THREE[1:])


def test_tail_of_zeros_as_a_crash_of_the_machine_leaves_it_is_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _write(path, _THREE)
    path.write_bytes(path.read_bytes() + bytes(64))
    assert list(JournalReader(path).read_new()) == list(_THREE)


def test_first_and_last_entry_are_read_beside_the_exchanges(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    began, ended = Began("0" * 32, "digest", 3, 1_700_000_000_000_000_000, ("no answer",)), Ended(5, "stopped", (4, 8))
    with JournalWriter(path) as journal:
        for entry in (began, *_THREE, ended):
            journal.append(entry)
    reader = JournalReader(path)
    assert (reader.began, reader.ended) == (None, None)
    assert list(reader.read_new()) == list(_THREE)
    assert (reader.began, reader.ended, reader.unread_bytes) == (began, ended, 0)


def test_what_lies_behind_the_last_whole_frame_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    assert reader.unread_bytes == 0
    ends = _write(path, _THREE)
    path.write_bytes(path.read_bytes()[: ends[1] + 5])
    assert list(reader.read_new()) == list(_THREE[:2])
    assert reader.unread_bytes == 5


def test_file_of_another_kind_is_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"inflight-bench journal 2\n" + bytes(40))
    with pytest.raises(JournalError, match="journal is not a journal of this version"):
        list(JournalReader(path).read_new())


def test_append_that_the_disk_takes_only_in_part_raises_and_leaves_whole_frames(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    large = Exchange(0, 1, 1, 1, 2, [1], [bytes(10_000)], None, None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with JournalWriter(path) as journal:
        journal.append(_THREE[0])
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
        try:
            for _ in range(2):
                with pytest.raises(OSError, match="File too large"):
                    journal.append(large)
                assert path.stat().st_size == size
            journal.append(_THREE[1])  # it finds room where the large one did not
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.append(_THREE[2])
    reader = JournalReader(path)
    assert list(reader.read_new()) == list(_THREE)
    assert reader.unread_bytes == 0


def test_a_damaged_length_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _write(path, _THREE)
    with path.open("ab") as file:
        file.write(struct.pack("<IQ", 2**32 - 1, 0) + b"torn")
    tracemalloc.start()
    try:
        assert list(JournalReader(path).read_new()) == list(_THREE)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_responses_without_times_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    _write(path, [Exchange(0, 9, 9, 10, 90, [20], [b"first", b"second"], None, None)])
    with pytest.raises(JournalError, match="has 1 times of 2 responses"):
        list(JournalReader(path).read_new())


# ---- the run that a journal belongs to

_RUN_ID = "0123456789abcdef" * 2
_BEGAN = Began(_RUN_ID, "digest", 0, 0)


def _journal_of(path: Path, *entries: Began | Exchange | Ended) -> Path:
    with JournalWriter(path) as journal:
        for entry in entries:
            journal.append(entry)
    return path


def test_nothing_is_read_of_a_journal_of_another_run(tmp_path: Path) -> None:
    path = _journal_of(tmp_path / "journal", _BEGAN, *_THREE, Ended(3))
    assert list(JournalReader(path, _RUN_ID).read_new()) == list(_THREE)
    other = JournalReader(path, "f" * 32)
    with pytest.raises(JournalError, match=rf"journal belongs to another run \({_RUN_ID}\), not to this one \(f{{32}}\)"):
        next(other.read_new())
    with pytest.raises(JournalError, match="another run"):  # nor later
        next(other.read_rest())
    assert (other.began, other.ended) == (None, None)


@pytest.mark.parametrize("entry", [_THREE[0], Ended(0)])
def test_nothing_is_read_of_a_journal_that_names_no_run(tmp_path: Path, entry: Exchange | Ended) -> None:
    reader = JournalReader(_journal_of(tmp_path / "journal", entry), _RUN_ID)
    with pytest.raises(JournalError, match="does not name its run before the entry at byte 25"):
        next(reader.read_new(), None)
    assert reader.ended is None


def test_a_second_run_in_one_journal_is_refused(tmp_path: Path) -> None:
    second = Began("f" * 32, "digest", 0, 0)
    reader = JournalReader(_journal_of(tmp_path / "journal", _BEGAN, _THREE[0], second, _THREE[1]), _RUN_ID)
    exchanges = reader.read_new()
    assert next(exchanges) == _THREE[0]
    with pytest.raises(JournalError, match="another run"):
        next(exchanges)


def test_the_first_entry_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    assert read_began(path) is None
    with JournalWriter(path) as journal:
        assert read_began(path) is None
        journal.append(_BEGAN)
        assert read_began(path) == _BEGAN
        journal.append(_THREE[0])
        assert read_began(path) == _BEGAN


def test_a_journal_is_never_opened_a_second_time(tmp_path: Path) -> None:
    path = _journal_of(tmp_path / "journal", _BEGAN, *_THREE)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        JournalWriter(path)
    assert path.read_bytes() == before
    with exclusive_lock(tmp_path):  # the writer that was refused holds no lock
        pass
