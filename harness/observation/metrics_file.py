"""``scrapes-*.bin``: a server's metrics during a run, as received; they are parsed into a table after the run. One file a page.

The first frame is the page's URL. Each other frame has when the request was sent, when the answer was received (ns since the
run's start, signed 64-bit, little-endian), and the answer's text, compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_records.regular_file import regular
from bench_records.server_table import MetricSample
from harness.errors import JournalError
from harness.journal.frames import append_whole, framed, read_frame
from harness.observation.prometheus_text import ExpositionReader

_TIMES = struct.Struct("<qq")
_FASTEST = 1
_MOST_TEXT_BYTES = 64 << 20
_LARGEST_NS = 1 << 53


@dataclass(frozen=True, slots=True)
class Scrape:
    """One scrape; the times are ns of the clock that the context names."""

    sent_ns: int
    received_ns: int
    text: bytes


class ScrapeWriter:
    """Appends scrapes of the page at ``url``, a text without secrets. Raises OSError when the disk is full; nothing of such a
    scrape is in the file, and a later one may find room.
    """

    def __init__(self, path: Path, url: str) -> None:
        self._file = path.open("wb", buffering=0)  # a buffer would fail again when it is closed
        self._whole_bytes = 0
        self._write(framed(url.encode()))

    def append(self, scrape: Scrape) -> None:
        self._write(framed(_TIMES.pack(scrape.sent_ns, scrape.received_ns) + zlib.compress(scrape.text, _FASTEST)))

    def _write(self, frame: bytes) -> None:
        self._whole_bytes = append_whole(self._file, frame, self._whole_bytes)

    def close(self) -> None:
        self._file.close()


def read_scrapes(path: Path) -> Iterator[tuple[str, Scrape]]:
    """The completely written scrapes with the URL of their page. Raises OSError, and JournalError for a damaged frame."""
    with regular(path).open("rb") as file:
        try:
            url = (read_frame(file) or b"").decode()
        except UnicodeDecodeError as error:
            raise JournalError(f"{path} holds no scrapes of this version: {error}") from error
        while (payload := read_frame(file)) is not None:
            try:
                yield url, _scrape(payload)
            except (struct.error, zlib.error, ValueError) as error:
                raise JournalError(f"{path} holds no scrapes of this version: {error}") from error


def _scrape(payload: bytes) -> Scrape:
    """Raises struct.error, zlib.error or ValueError."""
    sent_ns, received_ns = _TIMES.unpack_from(payload)
    inflate = zlib.decompressobj()
    text = inflate.decompress(payload[_TIMES.size :], _MOST_TEXT_BYTES)
    if not inflate.eof or not abs(sent_ns) < _LARGEST_NS > abs(received_ns):
        raise ValueError("a text is cut or too long, or a time too far away")
    return Scrape(sent_ns, received_ns, text)


def read_metrics(path: Path) -> Iterator[MetricSample]:
    """Every kept value of every scrape, in order. The sampler has written only scrapes that can be parsed."""
    reader = ExpositionReader()
    for url, scrape in read_scrapes(path):
        time_ns = (scrape.sent_ns + scrape.received_ns) // 2
        try:
            values = list(reader.read(scrape.text.decode()))
        except ValueError as error:
            raise JournalError(f"{path} holds a page of metrics that cannot be read: {error}") from error
        for (name, labels), value in values:
            yield MetricSample(time_ns, scrape.received_ns - scrape.sent_ns, name, labels, value, url)
