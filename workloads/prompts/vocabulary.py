"""A vocabulary to draw random prompts from: token ids without special tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.elements.token_ids import TokenIds, packed_ids

_PROMPTS_AT_ONCE = 4096


@dataclass(frozen=True)
class Vocabulary:
    """``token_ids`` as a list, or as a range, which may span billions of ids."""

    token_ids: Sequence[int] | range

    def draw(self, generator: np.random.Generator, count: int) -> TokenIds:
        """``count`` ids, uniform over the vocabulary."""
        return packed_ids(self._drawn(generator, count))

    def draw_each(self, generator: np.random.Generator, counts: Sequence[int]) -> Iterator[TokenIds]:
        """For each of ``counts`` this many ids: those that ``draw`` would give one after another, many at once."""
        for first in range(0, len(counts), _PROMPTS_AT_ONCE):
            part = counts[first : first + _PROMPTS_AT_ONCE]
            together = packed_ids(self._drawn(generator, sum(part)))
            size = 4 if together.typecode == "i" else 8
            begin = 0
            for count in part:
                end = begin + size * count
                yield TokenIds(together.packed[begin:end], together.typecode)
                begin = end

    def _drawn(self, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
        positions: NDArray[np.int64] = generator.integers(0, len(self.token_ids), count)
        if isinstance(self.token_ids, range):
            return np.add(positions * self.token_ids.step, self.token_ids.start, dtype=np.int64)
        return self._listed[positions]

    @cached_property
    def _listed(self) -> NDArray[np.int64]:
        return np.asarray(self.token_ids, dtype=np.int64)
