"""How much of a workload repeats itself: what a prefix cache can find again that the same run sent before.

A prefix cache keeps whole blocks of tokens, each known by itself and all that stands before it. So does this account.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workloads.request import Request

BLOCK_TOKENS = 32
_BYTES_PER_TOKEN = 4  # of a text whose tokens are not known, roughly


@dataclass(frozen=True, slots=True)
class PrefixRepetition:
    """Of ``total`` tokens or bytes of prompts, in order, ``repeated`` lie in blocks that an earlier prompt had under the same
    beginning. ``repeated_prompts`` prompts came whole before."""

    repeated: int
    total: int
    unit: str
    repeated_prompts: int
    prompts: int

    @property
    def share(self) -> float:
        return self.repeated / self.total if self.total else 0.0


def prefix_repetition(requests: Sequence[Request], block_tokens: int = BLOCK_TOKENS) -> PrefixRepetition:
    """The account over ``requests`` in their order: in tokens where all have token ids, else in bytes of their texts."""
    if all(request.input_ids is not None for request in requests):
        unit, unit_bytes, block = "tokens", array("q").itemsize, block_tokens
        prompts = (array("q", request.input_ids or ()).tobytes() for request in requests)
    else:
        unit, unit_bytes, block = "bytes", 1, block_tokens * _BYTES_PER_TOKEN
        prompts = ((request.prompt or "").encode("utf-8", "surrogatepass") for request in requests)
    repeated, total, whole = _account(prompts, block * unit_bytes)
    return PrefixRepetition(repeated // unit_bytes, total // unit_bytes, unit, whole, len(requests))


def _account(prompts: Iterable[bytes], block_bytes: int) -> tuple[int, int, int]:
    """Bytes repeated, bytes in all, and prompts that came whole before."""
    blocks: set[bytes] = set()
    wholes: set[bytes] = set()
    repeated = total = repeated_prompts = 0
    for prompt in prompts:
        total += len(prompt)
        whole = _digest(prompt)
        repeated_prompts += whole in wholes
        wholes.add(whole)
        before = b""
        for start in range(0, len(prompt) - block_bytes + 1, block_bytes):
            before = _digest(before + prompt[start : start + block_bytes])
            if before in blocks:
                repeated += block_bytes
            blocks.add(before)
    return repeated, total, repeated_prompts


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
