"""Findings about numbers that must agree with each other, whoever counted them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.records.record import TokenSource
from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.in_flight import mean_in_system
from reports.metrics.output_events import summed_token_counts
from reports.metrics.windows import Window

_TEXT_TOLERANCE = 0.25  # random words tokenised again make an eighth more tokens than they came of
_TEXT_TOKENS = 200  # in fewer, chance may do as much
_TOKENS_BEYOND_INVALID = 0.01
_LITTLE_TOLERANCE = 0.05
_LITTLE_EDGES = 2.0  # latencies that the window's two ends may cut through


def _token_counts_disagree(facts: RunFacts) -> Finding | None:
    """The tokens that came in responses against the server's count of them."""
    requests = facts.requests
    streamed = summed_token_counts(requests)
    known = requests.done & ~np.isnan(streamed) & ~np.isnan(requests.output_tokens) & requests.has_tokens
    differ = known & (streamed != requests.output_tokens)
    if not differ.any():
        return None
    return Finding(
        "token_counts_disagree",
        Severity.WARNING,
        {
            "requests": int(differ.sum()),
            "share": float(differ.sum() / known.sum()),
            "in_responses": float(streamed[known].sum()),
            "reported": float(requests.output_tokens[known].sum()),
        },
        "Throughput counts the reported tokens. See whether the server counts special tokens, or responses were lost.",
    )


def _text_tokens_disagree(facts: RunFacts) -> Finding | None:
    """The server's count of tokens against the returned texts tokenised again, over the answers for which that was done."""
    requests = facts.requests
    known = requests.done & ~np.isnan(requests.text_tokens) & ~np.isnan(requests.output_tokens)
    in_text, reported = float(requests.text_tokens[known].sum()), float(requests.output_tokens[known].sum())
    larger = max(in_text, reported)
    if larger < _TEXT_TOKENS or abs(in_text - reported) <= _TEXT_TOLERANCE * larger:
        return None
    return Finding(
        "text_tokens_disagree",
        Severity.WARNING,
        {"requests": int(known.sum()), "in_text": in_text, "reported": reported},
        "Throughput counts the reported tokens. See whether --tokenizer_dir is the model's, and whether the server counts "
        "tokens that it does not send (hidden reasoning, a prompt).",
    )


def _output_longer(facts: RunFacts) -> Finding | None:
    """More tokens than a server may give: it sent some twice, or we counted what is no output. Text is counted too roughly."""
    requests = facts.requests
    beyond = requests.output_tokens - requests.requested_output_tokens
    longer = requests.done & (beyond > 0)  # NaN where unknown is not above 0
    if not longer.any() or TokenSource.TEXT.value in requests.output_tokens_sources:
        return None
    share = float(beyond[longer].sum() / np.nansum(requests.output_tokens[requests.done]))
    return Finding(
        "output_longer_than_asked",
        Severity.INVALID if share > _TOKENS_BEYOND_INVALID else Severity.WARNING,
        {"requests": int(longer.sum()), "tokens_beyond": float(beyond[longer].sum()), "share_of_tokens": share},
        "Responses came twice, or the count holds what is no output (an echoed prompt): tokens/s are too high.",
    )


def _littles_law(facts: RunFacts) -> Finding | None:
    """Mean in flight = rate · mean latency (Little 1961), over the steady window, where both sides are measured apart."""
    window = facts.metrics.windows.steady
    sides = None if window is None else _little_sides(facts, window)
    if window is None or sides is None:
        return None
    in_flight, rate_per_s, latency_s, longest_s = sides
    expected = rate_per_s * latency_s
    tolerance = _LITTLE_TOLERANCE + _LITTLE_EDGES * longest_s / window.length_s
    if abs(in_flight - expected) <= tolerance * max(in_flight, expected):
        return None
    return Finding(
        "littles_law",
        Severity.WARNING,
        {"mean_in_flight": in_flight, "rate_per_s": rate_per_s, "mean_latency_s": latency_s},
        "Requests stay open longer than their latencies tell: see how long answers go on after their last token.",
    )


def _little_sides(facts: RunFacts, window: Window) -> tuple[float, float, float, float] | None:
    """Mean in flight by the ends of exchanges; rate, mean and 99th percentile (s) of latencies by the last tokens."""
    requests = facts.requests
    edges_ns = np.array([window.start_s, window.end_s]) * 1e9
    in_flight = float(mean_in_system(requests.sent_ns, requests.done_ns, edges_ns)[0])
    ends_ns = np.where(requests.done & requests.has_tokens, requests.last_token_ns, requests.done_ns)
    latency_s = (ends_ns - requests.sent_ns) / 1e9
    within = (requests.sent_ns >= edges_ns[0]) & (requests.sent_ns <= edges_ns[1]) & ~np.isnan(latency_s)
    if not within.any():
        return None
    rate_per_s = float(within.sum()) / window.length_s
    return in_flight, rate_per_s, float(latency_s[within].mean()), float(np.quantile(latency_s[within], 0.99))


CONSISTENCY_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (
    _output_longer,
    _token_counts_disagree,
    _text_tokens_disagree,
    _littles_law,
)
