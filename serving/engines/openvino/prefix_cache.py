"""Model of OpenVINO's prefix cache, which does not report the blocks that a new prompt reuses.

Follows ``BlockManager::restore_cached_blocks`` of OpenVINO GenAI 2026.4: a block is identified by all tokens up to its end.
The full blocks of a prompt are looked up in order; at the first miss, a block with fewer tokens may match. Blocks of ended
requests stay until their space is needed, least recently used first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.engines.openvino.folder import TOKENS_PER_BLOCK
from serving.engines.openvino.scheduling import blocks_for


@dataclass(frozen=True, slots=True)
class Allocation:
    """Blocks of a prompt; ``held`` are the names of its full blocks. ``reused_tokens`` of it are in the blocks that it reuses;
    None where several beginnings of a block could be.
    """

    new_blocks: int
    reused_blocks: int
    held: tuple[int, ...] = ()
    reused_tokens: int | None = 0


class PrefixCacheAccount:
    """Mirror of the cache's content, updated by ``start``, ``finish`` and ``trim``."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._held: Counter[int] = Counter()
        self._free: OrderedDict[int, None] = OrderedDict()

    def start(self, prompt: Sequence[int]) -> Allocation:
        """Allocate the blocks of a request that starts with this prompt."""
        needed = blocks_for(len(prompt))
        if not self._enabled:
            return Allocation(needed, 0)
        names = tuple(_full_blocks(prompt))
        reused = 0
        while reused < len(names) and self._has(names[reused]):
            reused += 1
        known = reused * TOKENS_PER_BLOCK
        parts = self._parts(names[reused - 1] if reused else 0, prompt[known:])
        reused += bool(parts)
        tokens = None if len(parts) > 1 else known + sum(parts)
        for name in names:
            self._free.pop(name, None)
            self._held[name] += 1
        return Allocation(needed - reused, reused, names, tokens)

    def finish(self, allocation: Allocation, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Release an ended request; its blocks can be reused. The last token was never an input of the network."""
        if not self._enabled:
            return
        for name in allocation.held:
            self._held[name] -= 1
            if self._held[name] <= 0:
                del self._held[name]
                self._set_free(name)
        computed = [*prompt, *output[:-1]]
        names = list(_full_blocks(computed))
        for name in names[len(allocation.held) :]:
            self._set_free(name)
        tail = computed[len(names) * TOKENS_PER_BLOCK :]
        if tail:
            self._set_free(_name(names[-1] if names else 0, tail))

    def trim(self, free_blocks: int) -> None:
        """Drop blocks of ended requests beyond this number."""
        while len(self._free) > max(0, free_blocks):
            self._free.popitem(last=False)

    def _set_free(self, name: int) -> None:
        if name not in self._held:
            self._free[name] = None
            self._free.move_to_end(name)

    def _has(self, name: int) -> bool:
        return name in self._held or name in self._free

    def _parts(self, before: int, tokens: Sequence[int]) -> list[int]:
        """The lengths of the beginnings of ``tokens``, shorter than a block, that are in the cache."""
        longest = min(TOKENS_PER_BLOCK - 1, len(tokens))
        return [length for length in range(1, longest + 1) if self._has(_name(before, tokens[:length]))]


def _full_blocks(tokens: Sequence[int]) -> Iterator[int]:
    before = 0
    for at in range(0, len(tokens) - TOKENS_PER_BLOCK + 1, TOKENS_PER_BLOCK):
        before = _name(before, tokens[at : at + TOKENS_PER_BLOCK])
        yield before


def _name(before: int, tokens: Sequence[int]) -> int:
    return hash((before, tuple(tokens)))
