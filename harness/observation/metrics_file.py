"""``scrapes.bin``: the server's metrics during a run, as received; they are parsed into a table after the run.

A frame contains when the request was sent, when the answer was received (ns since the run's start, signed 64-bit,
little-endian), and the answer's text, compressed.
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
    """One scrape; the times are ns of the clock that the context names."""

    sent_ns: int
    received_ns: int
    text: bytes


class ScrapeWriter:
    """Appends scrapes. Raises OSError when the disk is full."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def append(self, scrape: Scrape) -> None:
        self._file.write(framed(_TIMES.pack(scrape.sent_ns, scrape.received_ns) + zlib.compress(scrape.text, _FASTEST)))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_scrapes(path: Path) -> Iterator[Scrape]:
    """The completely written scrapes."""
    with path.open("rb") as file:
        while (payload := read_frame(file)) is not None:
            sent_ns, received_ns = _TIMES.unpack_from(payload)
            yield Scrape(sent_ns, received_ns, zlib.decompress(payload[_TIMES.size :]))


def read_metrics(path: Path) -> Iterator[MetricSample]:
    """Every kept value of every scrape, in order. The sampler has written only scrapes that can be parsed."""
    reader = ExpositionReader()
    for scrape in read_scrapes(path):
        time_ns = (scrape.sent_ns + scrape.received_ns) // 2
        for (name, labels), value in reader.read(scrape.text.decode()):
            yield MetricSample(time_ns, scrape.received_ns - scrape.sent_ns, name, labels, value)
