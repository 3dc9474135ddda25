"""The bytes of a workload file or of standard input, decompressed where gzip or Zstandard compressed them.

Content is bounded, so that a small file that decompresses to a huge one is an error and never exhausts memory.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from workloads.elements.errors import DatasetError

STANDARD_INPUT = Path("-")
_STANDARD_INPUT_NAME = Path("standard input")
HEAD_BYTES = 1 << 16
MOST_BYTES = 2 << 30  # of content; the largest public traces have 1 GB
MOST_EXPANSION = 100  # decompressed bytes to compressed ones; text and traces have 3 to 50
ALWAYS_ALLOWED_BYTES = 64 << 20  # whatever the expansion
_PART_BYTES = 1 << 20  # read(n) takes memory for all n bytes beforehand
_CODECS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_MAGIC_BYTES = max(len(magic) for magic, _ in _CODECS)


@dataclass(frozen=True)
class Source:
    """``stream`` is the whole decompressed content, ``head`` its first 64 KiB, ``path`` its name in messages."""

    path: Path
    head: bytes
    stream: BinaryIO

    def read(self, most_bytes: int = MOST_BYTES) -> bytes:
        """The content, or the first ``most_bytes`` of it. Raises DatasetError."""
        parts: list[bytes] = []
        while most_bytes > 0 and (part := self.stream.read(min(_PART_BYTES, most_bytes))):
            parts.append(part)
            most_bytes -= len(part)
        return b"".join(parts)


def name_of(path: Path) -> Path:
    """The path in messages."""
    return _STANDARD_INPUT_NAME if path == STANDARD_INPUT else path


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """The content of ``path``, or of standard input where it is ``-``. Raises DatasetError, also while it is read."""
    try:
        with _opened(path) as file:
            content = _Bounded(name_of(path), file)
            head = _read_up_to(content, HEAD_BYTES)
            yield Source(name_of(path), head, io.BufferedReader(_Stream(head, content.read)))
    except OSError as error:
        raise DatasetError(path, error.strerror or str(error)) from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as file:
            yield file


class _Stream(io.RawIOBase):
    """``first``, then what ``read`` gives; counts the bytes that were taken."""

    def __init__(self, first: bytes, read: Callable[[int], bytes]) -> None:
        self._first, self._read = memoryview(first), read
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._first:
            data, self._first = bytes(self._first[: len(view)]), self._first[len(view) :]
        else:
            data = self._read(len(view))
        view[: len(data)] = data
        self.taken += len(data)
        return len(data)


class _Bounded:
    """The decompressed content of ``file``, at most what the limits allow."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        magic = file.read(_MAGIC_BYTES)
        self._path, self._raw = path, _Stream(magic, file.read)
        codec = next((name for start, name in _CODECS if magic.startswith(start)), None)
        self._is_compressed = codec is not None
        compressed = pa.PythonFile(io.BufferedReader(self._raw), mode="r")
        self._content = self._raw if codec is None else pa.CompressedInputStream(compressed, codec)
        self._bytes = 0

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end. Raises DatasetError."""
        try:
            data = bytes(self._content.read(size))
        except (OSError, pa.ArrowException) as error:
            if not self._is_compressed:
                raise
            raise DatasetError(self._path, f"cannot be decompressed: {error}") from error
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            raise DatasetError(self._path, f"is larger than {MOST_BYTES >> 20:,} MiB; cut it into parts")
        if self._is_compressed and self._bytes > max(ALWAYS_ALLOWED_BYTES, MOST_EXPANSION * self._raw.taken):
            raise DatasetError(
                self._path,
                f"decompresses to more than {MOST_EXPANSION} times its size, which no dataset does; "
                "decompress it by hand if it is one",
            )
        return data


def _read_up_to(content: _Bounded, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := content.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
