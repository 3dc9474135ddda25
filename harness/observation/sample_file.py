"""``samples-*.bin``: samples of the client's processes during a run, as frames of ClientSample in MessagePack, one a process.

The samples that a process wrote before it was killed can be read. Apart from ``metrics_file.py``, which loads Arrow: a worker
writes samples, and must not load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench_records.client_sample import ClientSample
from bench_records.regular_file import regular
from harness.errors import JournalError
from harness.journal.frames import framed, read_frame


class SampleWriter:
    """Appends samples. On a full disk the writing ends, not the run: the exchanges matter more."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._encode = msgspec.msgpack.Encoder().encode
        self._full = False

    def append(self, *samples: ClientSample) -> None:
        if self._full:
            return
        data = b"".join(framed(self._encode(sample)) for sample in samples)
        try:
            self._full = self._file.write(data) != len(data)
        except OSError:
            self._full = True

    def close(self) -> None:
        self._file.close()


def read_samples(path: Path) -> Iterator[ClientSample]:
    """The completely written samples. Raises OSError, and JournalError for a frame that is no sample."""
    decode = msgspec.msgpack.Decoder(ClientSample).decode
    with regular(path).open("rb") as file:
        while (payload := read_frame(file)) is not None:
            try:
                yield decode(payload)
            except msgspec.DecodeError as error:
                raise JournalError(f"{path} holds no samples of this version: {error}") from error
