"""Laws of lengths from data: a histogram, the lengths of a file, and pairs of lengths that belong together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from workloads.elements.errors import DatasetError, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LONGEST_TOKENS
from workloads.lengths.law import ANY_LENGTH, Fault, Integers, Lengths, Moments, Side

_MOST_COUNT = 2**53  # counts are exact as doubles


@dataclass(frozen=True, slots=True)
class Bucket:
    """``count`` observed lengths from ``low`` to ``high`` tokens, both included."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class Histogram(Lengths):
    """A bucket in the ratio of the counts, and every length in it with the same probability.

    ``source`` is the key of a shipped histogram, or a file (``read_histogram``).
    """

    buckets: tuple[Bucket, ...]
    source: str

    @property
    def spelling(self) -> str:
        return f"histogram:{self.source}"

    @property
    def bounds(self) -> tuple[int, int]:
        drawn = [bucket for bucket in self.buckets if bucket.count]
        return min(bucket.low for bucket in drawn), max(bucket.high for bucket in drawn)

    @property
    def digest(self) -> str:
        return _digest(*((bucket.low, bucket.high, bucket.count) for bucket in self.buckets))

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        lows, highs, counts = self._columns()
        ends = np.cumsum(counts)
        at = generator(seed, stream).random(count) * ends[-1]
        chosen = np.minimum(np.searchsorted(ends, at, side="right"), counts.size - 1)
        share = (at - (ends[chosen] - counts[chosen])) / counts[chosen]
        within = np.floor(share * (highs - lows + 1)[chosen]).astype(np.int64)
        lengths: Integers = np.clip(lows[chosen] + within, lows[chosen], highs[chosen])
        return lengths

    def moments(self) -> Moments:
        lows, highs, counts = self._columns()
        shares, centres = counts / counts.sum(), (lows + highs) / 2
        mean = float(shares @ centres)
        variances = ((highs - lows + 1.0) ** 2 - 1) / 12
        return Moments(mean, sqrt(float(shares @ (variances + (centres - mean) ** 2))))

    def fault(self) -> Fault | None:
        for bucket in self.buckets:
            if not (ANY_LENGTH[0] <= bucket.low <= bucket.high <= ANY_LENGTH[1] and 0 <= bucket.count <= _MOST_COUNT):
                rule = f"the bucket [{bucket.low}, {bucket.high}, {bucket.count}] is no [min, max, count] of lengths"
                return Fault("buckets", bucket.low, rule)
        count = sum(bucket.count for bucket in self.buckets)
        if not count:
            return Fault(
                "buckets", 0, "the histogram is empty: give at least one bucket [min, max, count] with a count above 0"
            )
        return None if count <= _MOST_COUNT else Fault("buckets", count, "the counts add up to more than 2^53")

    def _columns(self) -> tuple[Integers, Integers, Integers]:
        """Lows, highs and counts of the buckets that have any, shape [buckets] each."""
        drawn = [(bucket.low, bucket.high, bucket.count) for bucket in self.buckets if bucket.count]
        lows, highs, counts = np.array(drawn, np.int64).T
        return lows, highs, counts

    def __str__(self) -> str:
        return f"histogram {Path(self.source).name}"


# The one key of get_token_list_from_histogram in upstream's tools/utils/utils.py: example_ip and example_op.
SHIPPED_HISTOGRAMS: Mapping[str, Mapping[Side, tuple[Bucket, ...]]] = MappingProxyType(
    {
        "example": MappingProxyType(
            {
                Side.INPUT: (
                    Bucket(151, 175, 220), Bucket(176, 200, 225), Bucket(201, 225, 150), Bucket(226, 250, 150),
                    Bucket(251, 275, 140),
                ),
                Side.OUTPUT: (
                    Bucket(6, 10, 76), Bucket(11, 15, 210), Bucket(16, 20, 174), Bucket(21, 25, 130), Bucket(26, 30, 152),
                ),
            }
        )
    }
)  # fmt: skip


def shipped_histogram(key: str, side: Side) -> Histogram:
    """Raises KeyError for a key that is not in SHIPPED_HISTOGRAMS."""
    return Histogram(SHIPPED_HISTOGRAMS[key][side], key)


def read_histogram(path: Path, side: Side) -> Histogram:
    """The histogram of one side from JSON: ``{"input": [[min, max, count], …], "output": …}``. Raises DatasetError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except OSError as error:
        raise DatasetError(path, error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(path, f"is no JSON that can be read: {error}") from error
    rows = document.get(side.value) if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise DatasetError(path, f'has no "{side.value}", a list of buckets [min, max, count]')
    return Histogram(
        tuple(_bucket(path, f"{side.value}, bucket {number}", row) for number, row in enumerate(rows, 1)), str(path)
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError where a key occurs twice, of which no reader could know the right one."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a key occurs twice in an object with {', '.join(map(repr, values))}"[:200])
    return values


def _bucket(path: Path, where: str, row: Any) -> Bucket:
    if not isinstance(row, list) or len(row) != 3 or not all(type(value) is int for value in row):
        raise DatasetError(path, "must be three whole numbers [min, max, count]", where)
    return Bucket(*row)


@dataclass(frozen=True, slots=True)
class Empirical(Lengths):
    """Lengths drawn with replacement from ``tokens``, those of the file ``source``."""

    tokens: tuple[int, ...]
    source: str

    @property
    def spelling(self) -> str:
        return f"empirical:{self.source}"

    @property
    def bounds(self) -> tuple[int, int]:
        return min(self.tokens), max(self.tokens)

    @property
    def digest(self) -> str:
        return _digest(self.tokens)

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        lengths: Integers = np.array(self.tokens, np.int64)[generator(seed, stream).integers(0, len(self.tokens), count)]
        return lengths

    def moments(self) -> Moments:
        return _moments(self.tokens)

    def fault(self) -> Fault | None:
        if not self.tokens:
            return Fault("tokens", 0, "the file has no length")
        wrong = next((length for length in self.bounds if not ANY_LENGTH[0] <= length <= ANY_LENGTH[1]), None)
        if wrong is None:
            return None
        return Fault(
            "tokens", wrong, f"the file has a length of {wrong:,}; all must lie between 1 and {LONGEST_TOKENS:,} tokens"
        )

    def __str__(self) -> str:
        return f"lengths of {Path(self.source).name}"


def read_lengths(path: Path) -> Empirical:
    """The lengths of a text file, one a line; empty lines and those that begin with # are skipped. Raises DatasetError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(path, (error.strerror if isinstance(error, OSError) else None) or str(error)) from error
    found: list[int] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= 8 and 1 <= int(text) <= LONGEST_TOKENS):
            raise DatasetError(path, f"{text[:40]!r} is no length in tokens from 1 to {LONGEST_TOKENS:,}", f"line {number}")
        found.append(int(text))
    return Empirical(tuple(found), str(path))


@dataclass(frozen=True, slots=True)
class Independent:
    """Both lengths of a request, drawn apart from each other."""

    inputs: Lengths
    outputs: Lengths

    def draw(self, count: int, seed: int) -> tuple[Integers, Integers]:
        """``count`` input and output lengths, shape [count] each."""
        return self.inputs.draw(count, seed, Stream.INPUT_LENGTHS), self.outputs.draw(count, seed, Stream.OUTPUT_LENGTHS)

    def moments(self) -> tuple[Moments, Moments]:
        """The moments of the inputs and of the outputs."""
        return self.inputs.moments(), self.outputs.moments()

    @property
    def laws(self) -> tuple[str, str]:
        """As a length option takes them."""
        return self.inputs.spelling, self.outputs.spelling

    @property
    def digests(self) -> tuple[str | None, str | None]:
        """Digests of the data of the two laws."""
        return self.inputs.digest, self.outputs.digest

    @property
    def asked_means(self) -> tuple[float, float]:
        """The means as the laws state them, before rounding and bounds."""
        return self.inputs.asked.mean, self.outputs.asked.mean

    def __str__(self) -> str:
        return f"{self.inputs} tokens in, {self.outputs} out"


@dataclass(frozen=True, slots=True)
class EmpiricalPairs:
    """Both lengths of a row of the file ``source``, drawn together with replacement, so that their correlation stays."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    source: str

    def __post_init__(self) -> None:
        if not self.inputs:
            raise WorkloadError(f"{self.source} has no row with both lengths")

    def draw(self, count: int, seed: int) -> tuple[Integers, Integers]:
        """``count`` input and output lengths, shape [count] each."""
        rows = generator(seed, Stream.LENGTH_PAIRS).integers(0, len(self.inputs), count)
        return np.array(self.inputs, np.int64)[rows], np.array(self.outputs, np.int64)[rows]

    def moments(self) -> tuple[Moments, Moments]:
        """The moments of the inputs and of the outputs."""
        return _moments(self.inputs), _moments(self.outputs)

    @property
    def laws(self) -> tuple[str, str]:
        """The source, for both."""
        return (f"length_pairs:{self.source}",) * 2

    @property
    def digests(self) -> tuple[str | None, str | None]:
        """Digests of the two columns."""
        return _digest(self.inputs), _digest(self.outputs)

    @property
    def asked_means(self) -> tuple[float, float]:
        """The means of the file."""
        inputs, outputs = self.moments()
        return inputs.mean, outputs.mean

    def __str__(self) -> str:
        return f"pairs of lengths of {Path(self.source).name}"


PairedLengths = Independent | EmpiricalPairs


def _moments(tokens: Sequence[int]) -> Moments:
    values = np.array(tokens, np.float64)
    return Moments(float(values.mean()), float(values.std()))


def _digest(*rows: Sequence[int]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(np.array([len(row), *row], "<i8").tobytes())
    return digest.hexdigest()
