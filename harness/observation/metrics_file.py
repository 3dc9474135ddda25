"""The server's metrics on disk while a run goes on, as they came: read and made into a table after the run.

A frame is when the server was asked, when it had answered (ns since the run's start, signed 64-bit, little-endian), and the
answer's text, compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.journal.frames import framed, read_frame
from harness.observation.prometheus_text import ExpositionReader
from harness.records.server_table import MetricSample

_TIMES = struct.Struct("<qq")
_FASTEST = 1


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of the server; times in ns of whatever clock the context names."""

    asked_ns: int
    answered_ns: int
    text: bytes


class ScrapeWriter:
    """Appends scrapes. Raises OSError when the disk takes no more."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def append(self, scrape: Scrape) -> None:
        self._file.write(framed(_TIMES.pack(scrape.asked_ns, scrape.answered_ns) + zlib.compress(scrape.text, _FASTEST)))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_scrapes(path: Path) -> Iterator[Scrape]:
    """The scrapes that were written whole."""
    with path.open("rb") as file:
        while (payload := read_frame(file)) is not None:
            asked_ns, answered_ns = _TIMES.unpack_from(payload)
            yield Scrape(asked_ns, answered_ns, zlib.decompress(payload[_TIMES.size :]))


def read_metrics(path: Path) -> Iterator[MetricSample]:
    """Every kept value of every scrape, in their order. ``ScrapeWriter`` was given only what can be read."""
    reader = ExpositionReader()
    for scrape in read_scrapes(path):
        time_ns = (scrape.asked_ns + scrape.answered_ns) // 2
        for (name, labels), value in reader.read(scrape.text.decode()):
            yield MetricSample(time_ns, scrape.answered_ns - scrape.asked_ns, name, labels, value)
