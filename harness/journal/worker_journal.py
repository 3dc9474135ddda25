"""The journal: each exchange with the server, as raw as it came, on disk as soon as it ended.

One file a worker, made of frames (``frames.py``), each an entry as MessagePack: Began, then Exchanges, then, where the worker
came to its end by itself, Ended. Whatever kills the writer, every whole frame can be read; a torn last frame is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import msgspec

from harness.errors import JournalError
from harness.journal.frames import HEADER_BYTES, framed, read_frame
from harness.records.folder_lock import shared_lock
from harness.records.record import Outcome

_READ_BYTES = 1 << 18  # at once: an exchange of 100 tokens is 16 kB
_MAGIC = b"inflight-bench journal 4\n"


class Began(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The first entry: whose journal this is. ``started_unix_ns`` is the run's start, time 0 of its clock, as Unix time."""

    schedule: str
    worker: int
    started_unix_ns: int
    warm_up_failures: tuple[str, ...] = ()


class Exchange(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """One request's exchange. Times are ns since the run's start. ``bodies[i]`` arrived at ``response_ns[i]``.

    ``due_ns`` is when it should have been sent: in an open loop the schedule says it, in a closed loop an answer does.
    ``released_ns`` is when it might be sent: later than due only where it waited for room below a ceiling.

    ``failure`` is how the transport failed, or None; what the bodies say is found out after the run.
    """

    index: int
    due_ns: int
    released_ns: int
    sent_ns: int
    done_ns: int
    response_ns: list[int]
    bodies: list[bytes]
    failure: Outcome | None
    error: str | None


class Ended(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """The last entry: the worker ended by itself, so what has no Exchange here was not sent, and ``reason`` says why.

    ``sent`` is how many requests it had begun to send; ``unwritten`` are those of them whose exchanges the disk did not take.
    """

    sent: int
    reason: str | None = None
    unwritten: tuple[int, ...] = ()


class JournalWriter:
    """Appends entries. ``append`` returns when the operating system has one; raises OSError if it takes only a part, or none.

    After an error the journal still ends with a whole frame, so that a later, smaller entry may yet find room. While it is
    open, it holds its folder as one of those who write there.
    """

    def __init__(self, path: Path) -> None:
        self._held = ExitStack()
        self._held.enter_context(shared_lock(path.parent))
        self._file = path.open("wb", buffering=0)
        self._encode = msgspec.msgpack.Encoder().encode
        self._whole_bytes = 0
        self._write(_MAGIC)

    def append(self, entry: Began | Exchange | Ended) -> None:
        self._write(framed(self._encode(entry)))

    def close(self) -> None:
        self._file.close()
        self._held.close()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:  # an unbuffered write may take only a part; on a full disk the next one raises
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.seek(self._whole_bytes)
            self._file.truncate()
            raise
        self._whole_bytes += len(data)


class JournalReader:
    """Reads a journal that may still grow: each ``read_new`` yields the exchanges written since the last.

    ``began`` and ``ended`` are the first and the last entry, None until they are read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._decode = msgspec.msgpack.Decoder(Began | Exchange | Ended).decode
        self.began: Began | None = None
        self.ended: Ended | None = None

    @property
    def unread_bytes(self) -> int:
        """How much lies behind the last whole frame; 0 where there is no file."""
        try:
            return self._path.stat().st_size - self._position
        except FileNotFoundError:
            return 0

    def read_new(self) -> Iterator[Exchange]:
        """Yield new exchanges; stops before a frame that is torn, or not written to its end yet.

        Raises JournalError for a file that is not a journal of this version.
        """
        try:
            file = self._path.open("rb", _READ_BYTES)
        except FileNotFoundError:
            return
        with file:
            if not self._position and not self._begins(file.read(len(_MAGIC))):
                return
            file.seek(self._position)
            while (payload := read_frame(file)) is not None:
                entry = self._decode(payload)
                self._position += HEADER_BYTES + len(payload)
                match entry:
                    case Exchange():
                        yield entry
                    case Began():
                        self.began = entry
                    case Ended():
                        self.ended = entry

    def _begins(self, start: bytes) -> bool:
        if start == _MAGIC:
            self._position = len(_MAGIC)
            return True
        if _MAGIC.startswith(start):
            return False
        raise JournalError(f"{self._path} is not a journal of this version of bench")
