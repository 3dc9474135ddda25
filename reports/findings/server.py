"""Findings from the server's own numbers: whether they and ours are about the same requests, and what was in its cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.records.record import Outcome, TokenSource
from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.model_statistics import counted_requests

_TOKENS_TOLERANCE = 0.01  # of the tokens: a server may count end tokens, or what a stop word cuts off
_PHASES_TOLERANCE = 0.05
_PHASES_FLOOR_MS = 1.0
_REUSE_NOTE = 0.01
_REUSE_WARNING = 0.25
_OTHERS_SENT = "Others sent requests to this server meanwhile, so the numbers are not of this load alone; measure without them."
_FEWER = "The server began anew during the run, or it does not count what it answers; see its log."


def _counters_disagree(facts: RunFacts) -> Finding | None:
    """Requests first: where those disagree, all else must."""
    return _requests_disagree(facts) or _metrics_disagree(facts) or _tokens_disagree(facts)


def _requests_disagree(facts: RunFacts) -> Finding | None:
    counted: float | None = counted_requests(facts.manifest, _model(facts))
    if counted is None and facts.server is not None:
        counted = facts.server.finished_requests
    if counted is None:
        return None
    least, most = _requests_that_reached(facts)
    if least <= counted <= most:
        return None
    return Finding(
        "counters_disagree",
        Severity.WARNING,
        {"counter": "requests", "ours_least": least, "ours_most": most, "server": counted},
        _OTHERS_SENT if counted > most else _FEWER,
    )


def _requests_that_reached(facts: RunFacts) -> tuple[int, int]:
    """How many requests must have reached the server, and how many may have."""
    requests = facts.requests
    may = ~np.isnan(requests.sent_ns) & (requests.outcome != Outcome.CONNECT.value)
    may |= requests.outcome == Outcome.LOST.value
    return int(requests.done.sum()), int(may.sum())


def _metrics_disagree(facts: RunFacts) -> Finding | None:
    """The metrics against the statistics of one server: only another server's metrics count otherwise."""
    counted = counted_requests(facts.manifest, _model(facts))
    told = None if facts.server is None else facts.server.metrics_requests
    if counted is None or told is None or told == counted:
        return None
    url = (facts.manifest.get("telemetry") or {}).get("url")
    return Finding(
        "counters_disagree",
        Severity.WARNING,
        {"counter": "metrics", "statistics": counted, "metrics": told, "url": url},
        "They may be of another server: --metrics_url names the right place.",
    )


def _tokens_disagree(facts: RunFacts) -> Finding | None:
    """Output tokens, where every request was answered in full and was counted by someone who saw the ids."""
    requests = facts.requests
    generated = None if facts.server is None else facts.server.generated_tokens
    ours = float(requests.output_tokens.sum())
    retokenised = TokenSource.TEXT.value in requests.output_tokens_sources
    if generated is None or np.isnan(ours) or not requests.done.all() or retokenised:
        return None
    if abs(generated - ours) <= _TOKENS_TOLERANCE * max(generated, ours):
        return None
    return Finding(
        "counters_disagree",
        Severity.WARNING,
        {"counter": "tokens", "ours": ours, "server": generated},
        "Tokens were made that did not arrive: for others, behind a stop word, or as a draft."
        if generated > ours
        else "The server counts fewer tokens than it sent; trust neither tokens/s before you know why.",
    )


def _phases_exceed_latency(facts: RunFacts) -> Finding | None:
    exceeding = [
        phase for phase in facts.phases if phase.server_ms > phase.client_ms * (1 + _PHASES_TOLERANCE) + _PHASES_FLOOR_MS
    ]
    if not exceeding:
        return None
    worst = min(exceeding, key=lambda phase: phase.unexplained_ms)
    return Finding(
        "phases_exceed_latency",
        Severity.WARNING,
        {"phase": worst.name, "server_ms": worst.server_ms, "client_ms": worst.client_ms},
        "A part cannot be longer than the whole: one of the two clocks or counts is wrong; find out which before you compare.",
    )


def _prefix_cache_warmed(facts: RunFacts) -> Finding | None:
    """What the server found in its cache; where it does not tell, what it could have found."""
    planned = (facts.manifest.get("workload") or {}).get("repeated_prefix") or {}
    repeated = planned.get("share")
    reuse = None if facts.server is None else facts.server.cache_reuse
    share = repeated if reuse is None else reuse.share
    if share is None or share < _REUSE_NOTE:
        return None
    from_before = reuse is not None and repeated is not None and reuse.share > repeated + _REUSE_NOTE
    return Finding(
        "prefix_cache_warmed",
        Severity.WARNING if reuse is not None and share >= _REUSE_WARNING else Severity.NOTE,
        {
            "reused_share": None if reuse is None else reuse.share,
            "repeated_share": repeated,
            "unit": planned.get("unit") if reuse is None else reuse.unit,
        },
        "Prompts were in the cache before this run began; start the server anew, or take another --seed."
        if from_before
        else "Prompts begin as earlier ones of the run did; compare only with runs of the same prompts.",
    )


def _model(facts: RunFacts) -> str:
    return str((facts.manifest.get("target") or {}).get("model", ""))


SERVER_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (
    _counters_disagree,
    _phases_exceed_latency,
    _prefix_cache_warmed,
)
