"""Prefix repetition of a workload: the share of prompts that a prefix cache can reuse within the run.

A prefix cache keeps whole blocks of tokens, each identified by its own tokens and all tokens before it. So does this account.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workloads.elements.request import Request
from workloads.elements.token_ids import int64_bytes

BLOCK_TOKENS = 32
_ID_BYTES = 8
_BYTES_PER_TOKEN = 4  # approximate, for text without token ids


@dataclass(frozen=True, slots=True)
class PrefixRepetition:
    """How much prompts repeat: ``repeated`` of ``total`` tokens or bytes lie in blocks of an earlier prompt with the same
    prefix.

    ``repeated_prompts`` prompts equal an earlier one.
    """

    repeated: int
    total: int
    unit: str
    repeated_prompts: int
    prompts: int

    @property
    def share(self) -> float:
        return self.repeated / self.total if self.total else 0.0


def prefix_repetition(requests: Sequence[Request], block_tokens: int = BLOCK_TOKENS) -> PrefixRepetition:
    """The repetition in ``requests``, in order: in tokens if all have token ids, else in bytes of their text."""
    packed = _packed(requests, block_tokens)
    repeated, total, whole = _account(packed.prompts, packed.block_bytes)
    size = packed.unit_bytes
    return PrefixRepetition(repeated // size, total // size, packed.unit, whole, len(requests))


def prompt_blocks(requests: Sequence[Request], block_tokens: int = BLOCK_TOKENS) -> list[tuple[tuple[int, ...], float]]:
    """For each request the whole blocks of its prompt, as numbers that are equal where the blocks and all before them are, and
    the tokens of a block. If not all requests have token ids, the blocks are those of text, and their tokens an average.
    """
    packed = _packed(requests, block_tokens)
    numbers: dict[bytes, int] = {}
    found = []
    for request, prompt in zip(requests, packed.prompts, strict=True):
        blocks = tuple(numbers.setdefault(block, len(numbers)) for block in _blocks(prompt, packed.block_bytes))
        is_exact = packed.unit == "tokens" or request.input_tokens is None
        share = packed.block_bytes / max(1, len(prompt))
        found.append((blocks, block_tokens if is_exact else share * (request.input_tokens or 0)))
    return found


@dataclass(frozen=True, slots=True)
class _Packed:
    """Prompts as bytes, ``unit_bytes`` for each ``unit``, and the size of a block."""

    prompts: Iterable[bytes]
    unit: str
    unit_bytes: int
    block_bytes: int


def _packed(requests: Sequence[Request], block_tokens: int) -> _Packed:
    if all(request.input_ids is not None for request in requests):
        prompts = (int64_bytes(request.input_ids or ()) for request in requests)
        return _Packed(prompts, "tokens", _ID_BYTES, block_tokens * _ID_BYTES)
    texts = (request.whole_text.encode(errors="surrogatepass") for request in requests)
    return _Packed(texts, "bytes", 1, block_tokens * _BYTES_PER_TOKEN)


def longest_shared_prefixes(prompts: Sequence[bytes]) -> list[int]:
    """For each prompt the length in bytes of the longest prefix that it shares with an earlier one, shape [n].

    The neighbours of a prompt among the earlier ones in sorted order share the longest. They are those that are left in a list
    of all, sorted, from which the prompts are taken from the last to the first. O(n log n) comparisons.
    """
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    before: list[int | None] = [None] * len(prompts)
    after: list[int | None] = [None] * len(prompts)
    for left, right in pairwise(order):
        after[left], before[right] = right, left
    shared = [0] * len(prompts)
    for number in range(len(prompts) - 1, -1, -1):
        lower, higher = before[number], after[number]
        neighbours = [prompts[neighbour] for neighbour in (lower, higher) if neighbour is not None]
        shared[number] = max((_common(prompts[number], other) for other in neighbours), default=0)
        if lower is not None:
            after[lower] = higher
        if higher is not None:
            before[higher] = lower
    return shared


def _common(prompt: bytes, other: bytes) -> int:
    """The number of bytes with which both begin."""
    low, high = 0, min(len(prompt), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if prompt[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def infinite_cache_share(prompts: Sequence[Sequence[int]]) -> float:
    """The share of the tokens of ``prompts``, in the order of sending, that a prefix cache of infinite size and blocks of one
    token has from earlier ones.
    """
    packed = [int64_bytes(prompt) for prompt in prompts]
    return _shared_share(packed, 8)


def most_repeated_share(requests: Sequence[Request]) -> float:
    """The most of ``requests`` that a cache of any block size repeats, in the unit of ``prefix_repetition``."""
    if all(request.input_ids is not None for request in requests):
        return infinite_cache_share([request.input_ids or () for request in requests])
    return _shared_share([request.whole_text.encode(errors="surrogatepass") for request in requests], 1)


def _shared_share(prompts: Sequence[bytes], unit_bytes: int) -> float:
    total = sum(map(len, prompts)) // unit_bytes
    return sum(length // unit_bytes for length in longest_shared_prefixes(prompts)) / total if total else 0.0


def _account(prompts: Iterable[bytes], block_bytes: int) -> tuple[int, int, int]:
    """Repeated bytes, all bytes, and the number of repeated prompts."""
    blocks: set[bytes] = set()
    wholes: set[bytes] = set()
    repeated = total = repeated_prompts = 0
    for prompt in prompts:
        total += len(prompt)
        whole = _digest(prompt)
        repeated_prompts += whole in wholes
        wholes.add(whole)
        for block in _blocks(prompt, block_bytes):
            if block in blocks:
                repeated += block_bytes
            blocks.add(block)
    return repeated, total, repeated_prompts


def _blocks(prompt: bytes, block_bytes: int) -> Iterator[bytes]:
    """For each whole block, what identifies it: its bytes and all before."""
    before = b""
    for start in range(0, len(prompt) - block_bytes + 1, block_bytes):
        before = _digest(before + prompt[start : start + block_bytes])
        yield before


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
