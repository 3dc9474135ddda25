"""Prefix repetition of a workload: the share of prompts that a prefix cache can reuse within the run.

A prefix cache keeps whole blocks of tokens, each identified by its own tokens and all tokens before it. So does this account.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workloads.request import Request

BLOCK_TOKENS = 32
_BYTES_PER_TOKEN = 4  # approximate, for text without token ids


@dataclass(frozen=True, slots=True)
class PrefixRepetition:
    """Of ``total`` tokens or bytes of prompts, ``repeated`` lie in blocks of an earlier prompt with the same prefix.

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
    if all(request.input_ids is not None for request in requests):
        unit, unit_bytes, block = "tokens", array("q").itemsize, block_tokens
        prompts = (array("q", request.input_ids or ()).tobytes() for request in requests)
    else:
        unit, unit_bytes, block = "bytes", 1, block_tokens * _BYTES_PER_TOKEN
        prompts = (request.whole_text.encode("utf-8", "surrogatepass") for request in requests)
    repeated, total, whole = _account(prompts, block * unit_bytes)
    return PrefixRepetition(repeated // unit_bytes, total // unit_bytes, unit, whole, len(requests))


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
        before = b""
        for start in range(0, len(prompt) - block_bytes + 1, block_bytes):
            before = _digest(before + prompt[start : start + block_bytes])
            if before in blocks:
                repeated += block_bytes
            blocks.add(before)
    return repeated, total, repeated_prompts


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
