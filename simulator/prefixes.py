"""Prefix caches: which blocks of prompts a replica still has from earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Prefixes:
    """The whole blocks of each prompt, in order, by request. Equal numbers are blocks with equal tokens, and equal ones before
    them. A block of request i has ``block_tokens[i]`` tokens.
    """

    blocks: Sequence[tuple[int, ...]]
    block_tokens: Sequence[float]


class PrefixCache:
    """The blocks that a replica has, at most ``most``: those that were used least recently go first, and of one prompt the
    last ones.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[int, None] = {}  # the least recently used first

    def use(self, blocks: Sequence[int]) -> int:
        """How many of the first ``blocks`` it has; it has all of them then, as far as there is room."""
        held = self._held
        found = next((place for place, block in enumerate(blocks) if block not in held), len(blocks))
        for block in reversed(blocks):
            held.pop(block, None)
            held[block] = None
        while len(held) > self._most:
            del held[next(iter(held))]
        return found
