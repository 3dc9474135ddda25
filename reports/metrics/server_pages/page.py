"""The metrics of a server by our words: which of its series says what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServerPage:
    """Names on the page of one kind of server; of several in one field, the first that is exported counts.

    ``active``, ``running`` and ``waiting`` are gauges of requests: accepted and not ended, in the batch, before it.
    ``cache_used`` is a share from 0 to 1 of the KV cache. From ``finished`` to ``drafts`` are counters, of which ``drafts``
    counts steps. From ``queue_time`` to ``e2e`` are histograms in seconds, by their names without ``_sum``. ``reuse`` are pairs
    of counters, found in the prefix cache and needed, with their unit.
    """

    title: str
    source: str
    active: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    cache_used: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    generated_tokens: tuple[str, ...] = ()
    prompt_tokens: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    drafted_tokens: tuple[str, ...] = ()
    accepted_tokens: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    queue_time: tuple[str, ...] = ()
    prefill_time: tuple[str, ...] = ()
    decode_time: tuple[str, ...] = ()
    ttft: tuple[str, ...] = ()
    tpot: tuple[str, ...] = ()
    itl: tuple[str, ...] = ()
    e2e: tuple[str, ...] = ()
    reuse: tuple[tuple[str, str, str], ...] = ()
