"""The prompts' reuse of a prefix cache: what the server reported, beside what an infinite cache could reuse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench_records.manifest import Manifest, RepeatedPrefix
from reports.metrics.requests import Requests
from reports.metrics.server_load import ServerLoad


@dataclass(frozen=True, slots=True)
class CachedTokens:
    """``cached`` of the ``prompt`` tokens of successful requests, by the server's counts in its answers.

    ``reporting`` of the ``requests`` had a count. The others count as 0, as some servers (vLLM) leave out a 0, so ``share`` is
    the least that is possible.
    """

    cached: float
    prompt: float
    requests: int
    reporting: int

    @property
    def share(self) -> float:
        return self.cached / self.prompt


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """Shares of what was sent; None is unknown.

    ``limit_share`` are the prompt tokens that an infinite cache would have had, each request answered before the next. For a
    server that counts blocks, which is the project's own, ``limit_block_tokens_share`` are those in whole blocks of
    ``block_tokens``, and ``limit_block_share`` these blocks as a share of the prompts' blocks, of which the last ones are
    partial. ``unscaled_limit_share`` is ``limit_share`` of the same requests before a trace's lengths were scaled.
    ``server_share`` is by the server's counters, in ``server_unit`` (tokens or blocks), ``usage`` by its answers.
    """

    limit_share: float | None
    limit_block_tokens_share: float | None
    limit_block_share: float | None
    block_tokens: int | None
    server_share: float | None
    server_unit: str | None
    usage: CachedTokens | None
    unscaled_limit_share: float | None = None


def prefix_cache(manifest: Manifest, requests: Requests, server: ServerLoad | None) -> PrefixCache:
    """The reuse of a run, by its manifest, its records and its server's metrics."""
    workload = manifest.workload
    repeated = workload.repeated_prefix or RepeatedPrefix()
    reuse = None if server is None else server.cache_reuse
    in_blocks = repeated if reuse is not None and reuse.unit == "blocks" and repeated.unit == "tokens" else RepeatedPrefix()
    return PrefixCache(
        limit_share=workload.shared_prefix_limit,
        limit_block_tokens_share=in_blocks.share,
        limit_block_share=in_blocks.block_share,
        block_tokens=in_blocks.block_tokens,
        server_share=None if reuse is None else reuse.share,
        server_unit=None if reuse is None else reuse.unit,
        usage=cached_tokens(requests),
        unscaled_limit_share=workload.shared_prefix_limit_unscaled,
    )


def cached_tokens(requests: Requests) -> CachedTokens | None:
    """None where no answer reported it, or the server counted no token in any prompt."""
    counted = requests.done & requests.server_counted_input & ~np.isnan(requests.input_tokens)
    cached = requests.cached_input_tokens[counted]
    reporting, prompt = int((~np.isnan(cached)).sum()), float(requests.input_tokens[counted].sum())
    return CachedTokens(float(np.nansum(cached)), prompt, cached.size, reporting) if reporting and prompt else None
