"""An account of OpenVINO's prefix cache: which blocks of a new prompt it has, since the library does not say.

Follows ``BlockManager::restore_cached_blocks`` of OpenVINO GenAI 2026.4: a block is known by the tokens up to its end. Full
blocks of the prompt are taken one after the other; at the first that is missing, a block that holds fewer tokens will do.
Blocks of ended requests stay until their place is needed, the longest unused going first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.engines.openvino.scheduling import TOKENS_PER_BLOCK, blocks_for


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a prompt took: ``held`` are the names of its full blocks."""

    new_blocks: int
    reused_blocks: int
    held: tuple[int, ...] = ()


class PrefixCacheAccount:
    """Mirrors the cache's content; ``start``, ``finish`` and ``trim`` are told what happens."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._held: Counter[int] = Counter()
        self._free: OrderedDict[int, None] = OrderedDict()

    def start(self, prompt: Sequence[int]) -> Allocation:
        """A request with this prompt starts."""
        needed = blocks_for(len(prompt))
        if not self._enabled:
            return Allocation(needed, 0)
        names = tuple(_full_blocks(prompt))
        reused = 0
        while reused < len(names) and self._has(names[reused]):
            reused += 1
        known = reused * TOKENS_PER_BLOCK
        if known < len(prompt) and self._has_part(names[reused - 1] if reused else 0, prompt[known:]):
            reused += 1
        for name in names:
            self._free.pop(name, None)
            self._held[name] += 1
        return Allocation(needed - reused, reused, names)

    def finish(self, allocation: Allocation, prompt: Sequence[int], output: Sequence[int]) -> None:
        """The request has ended; what it computed may serve others. The last token was never fed to the network."""
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
        """The cache has room for this many blocks of ended requests."""
        while len(self._free) > max(0, free_blocks):
            self._free.popitem(last=False)

    def _set_free(self, name: int) -> None:
        if name not in self._held:
            self._free[name] = None
            self._free.move_to_end(name)

    def _has(self, name: int) -> bool:
        return name in self._held or name in self._free

    def _has_part(self, before: int, tokens: Sequence[int]) -> bool:
        longest = min(TOKENS_PER_BLOCK - 1, len(tokens))
        return any(self._has(_name(before, tokens[:length])) for length in range(1, longest + 1))


def _full_blocks(tokens: Sequence[int]) -> Iterator[int]:
    before = 0
    for at in range(0, len(tokens) - TOKENS_PER_BLOCK + 1, TOKENS_PER_BLOCK):
        before = _name(before, tokens[at : at + TOKENS_PER_BLOCK])
        yield before


def _name(before: int, tokens: Sequence[int]) -> int:
    return hash((before, tuple(tokens)))
