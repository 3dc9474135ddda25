"""A vocabulary to draw random prompts from: token ids without special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Vocabulary:
    """``token_ids`` as a list, or as a range, which may span billions of ids."""

    token_ids: Sequence[int] | range

    def draw(self, generator: np.random.Generator, count: int) -> tuple[int, ...]:
        """``count`` ids, uniform over the vocabulary."""
        positions = generator.integers(0, len(self.token_ids), count)
        if isinstance(self.token_ids, range):
            return tuple(map(self.token_ids.__getitem__, positions.tolist()))
        return tuple(self._listed[positions].tolist())

    @cached_property
    def _listed(self) -> NDArray[np.int64]:
        return np.asarray(self.token_ids, dtype=np.int64)
