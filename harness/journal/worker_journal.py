"""A worker's journal: each exchange with the server, with the raw bytes of its responses, on disk as soon as it has ended.

One file a worker, of frames (``frames.py``), each an entry as MessagePack: Began, then Exchanges, then Ended, where the worker
was not killed. Whatever kills the writer, every whole frame can be read, and a torn last frame is recognised. A frame that
was damaged on the disk costs its entry, and not those after it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from bench_records.folder_lock import shared_lock
from bench_records.record import Outcome
from bench_records.regular_file import regular
from harness.errors import JournalError
from harness.journal.frames import HEADER_BYTES, append_whole, framed, next_frame, read_frame
from harness.journal.run_identity import RunId

_READ_BYTES = 1 << 18  # buffer size; an exchange of 100 tokens is 16 kB
MAGIC = b"inflight-bench journal 6\n"
_END_OF_JSON = b"}"  # of an object

RunNs = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
"""Ns of the run's clock, up to the 104 days that float64 holds exactly."""
Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class Began(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The first entry: run, schedule (digest) and worker. ``started_unix_ns`` is the run's start, time 0 of its clock."""

    run_id: RunId
    schedule: str
    worker: int
    started_unix_ns: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    warm_up_failures: tuple[str, ...] = ()


class Exchange(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """One request's exchange. Times are ns since the run's start. ``bodies[i]`` arrived at ``response_ns[i]``.

    ``due_ns`` is when it should have been sent: in an open loop by the schedule, in a closed loop by the previous answer.
    ``released_ns`` is when it could be sent: later than due only where it waited for room below a ceiling.

    ``failure`` is the failure of the transport, or None; the bodies are decoded after the run. ``error`` is its message, or
    without a failure what the end of the answer lacks. ``connect_ns`` is how long the request waited for a connection, or for
    room on one; None where it did not wait, or failed. ``router_ns`` is how long it was in routers, None where none says it.
    ``target`` is the number of the target that it was sent to. ``written_ns`` is when the kernel was given its last byte, and
    ``head_ns`` when the head of its answer arrived; None where that is unknown, and of a failure that the client did not plan.
    """

    index: Count
    due_ns: RunNs
    released_ns: RunNs
    sent_ns: RunNs
    done_ns: RunNs
    response_ns: list[RunNs]
    bodies: list[bytes]
    failure: Outcome | None
    error: str | None
    connect_ns: Count | None = None
    router_ns: Count | None = None
    target: Count = 0
    written_ns: RunNs | None = None
    head_ns: RunNs | None = None

    @property
    def whole_bodies(self) -> list[bytes]:
        """``bodies`` but the last event of a stream without its end marker where that event is cut: the stream may end with the
        connection (RFC 9112, section 6.3).
        """
        lacks_marker = self.failure is None and self.error is not None
        is_cut = lacks_marker and bool(self.bodies) and not self.bodies[-1].endswith(_END_OF_JSON)
        return self.bodies[:-1] if is_cut else self.bodies


class Ended(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The last entry: the worker was not killed, so requests without an Exchange were not sent, because of ``reason``.

    ``sent`` is the number of requests that were sent; ``unwritten`` are those whose exchanges could not be written to disk.
    Where a rule ended the run, nothing was due from ``end_ns`` on.
    """

    sent: Count
    reason: str | None = None
    unwritten: tuple[int, ...] = ()
    end_ns: RunNs | None = None


class JournalWriter:
    """Appends entries. ``append`` returns when the kernel has the whole entry, and raises OSError where it takes less.

    After an error the journal still ends with a whole frame, so that a later, smaller entry may find room. While it is open,
    it holds the shared lock on its folder. Raises FileExistsError where there is a file: a journal is written once.
    """

    def __init__(self, path: Path) -> None:
        with ExitStack() as lock:
            lock.enter_context(shared_lock(path.parent))
            self._file = path.open("xb", buffering=0)
            self._lock = lock.pop_all()
        self._encode = msgspec.msgpack.Encoder().encode
        self._whole_bytes = 0
        self._write(MAGIC)

    def append(self, entry: Began | Exchange | Ended) -> None:
        self._write(framed(self._encode(entry)))

    def close(self) -> None:
        self._file.close()
        self._lock.close()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        self._whole_bytes = append_whole(self._file, data, self._whole_bytes)


class JournalReader:
    """Reads a journal that may still grow: each ``read_new`` yields the exchanges written since the previous call. One that
    grows no more is read by ``read_rest``.

    With ``run_id`` a journal of another run raises JournalError before anything of it is yielded.

    ``began`` and ``ended`` are the first and the last entry, None until they are read. ``damaged_bytes`` are those that
    ``read_rest`` passed over.
    """

    def __init__(self, path: Path, run_id: str | None = None) -> None:
        self._path = path
        self._run_id = run_id
        self._position = 0
        self._decode = msgspec.msgpack.Decoder(Began | Exchange | Ended).decode
        self.began: Began | None = None
        self.ended: Ended | None = None
        self.damaged_bytes = 0

    @property
    def unread_bytes(self) -> int:
        """The bytes after the last whole frame that was read; 0 where there is no file."""
        try:
            return self._path.stat().st_size - self._position
        except FileNotFoundError:
            return 0

    def read_new(self) -> Iterator[Exchange]:
        """Yield new exchanges; stop before a frame that is torn, damaged, or not completely written yet.

        Raises JournalError where the file is not a journal of this version.
        """
        with self._opened() as file:
            yield from self._read(file)

    def read_rest(self) -> Iterator[Exchange]:
        """Yield all exchanges that are left, also those after a damaged frame. Raises JournalError, as ``read_new``."""
        with self._opened() as file:
            yield from self._read(file)
            while self._position and (found := next_frame(file, self._position)) is not None:
                self.damaged_bytes += found - self._position
                self._position = found
                yield from self._read(file)

    def _opened(self) -> BinaryIO:
        try:
            return regular(self._path).open("rb", _READ_BYTES)
        except FileNotFoundError:
            return io.BytesIO()
        except OSError as error:
            raise JournalError(f"{self._path} cannot be read: {error.strerror}") from error

    def _read(self, file: BinaryIO) -> Iterator[Exchange]:
        if not self._position:
            file.seek(0)
            if not self._check_magic(file.read(len(MAGIC))):
                return
        file.seek(self._position)
        while (payload := read_frame(file)) is not None:
            entry = self._decoded(payload)
            self._check_run(entry)
            self._position += HEADER_BYTES + len(payload)
            payload = b""  # the entry has the bytes: both would be kept while it is recorded
            match entry:
                case Exchange():
                    yield entry
                case Began():
                    self.began = entry
                case Ended():
                    self.ended = entry

    def _decoded(self, payload: bytes) -> Began | Exchange | Ended:
        try:
            entry: Began | Exchange | Ended = self._decode(payload)
        except msgspec.DecodeError as error:
            raise JournalError(f"{self._path}, entry at byte {self._position}, is not one of this version: {error}") from error
        if isinstance(entry, Exchange) and len(entry.bodies) != len(entry.response_ns):
            bodies, times = len(entry.bodies), len(entry.response_ns)
            raise JournalError(f"{self._path}, entry at byte {self._position}, has {times} times of {bodies} responses")
        return entry

    def _check_run(self, entry: Began | Exchange | Ended) -> None:
        if self._run_id is None:
            return
        began = entry if isinstance(entry, Began) else self.began
        if began is None:
            raise JournalError(f"{self._path} does not name its run before the entry at byte {self._position}")
        if began.run_id != self._run_id:
            raise JournalError(f"{self._path} belongs to another run ({began.run_id}), not to this one ({self._run_id})")

    def _check_magic(self, start: bytes) -> bool:
        if start == MAGIC:
            self._position = len(MAGIC)
            return True
        if MAGIC.startswith(start):
            return False
        raise JournalError(f"{self._path} is not a journal of this version of bench")


def read_began(path: Path) -> Began | None:
    """The first entry of a journal; None where it has none, or a damaged one. Raises JournalError, as JournalReader."""
    reader = JournalReader(path)
    next(reader.read_new(), None)
    return reader.began
