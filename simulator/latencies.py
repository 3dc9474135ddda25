"""The latencies of requests, measured or simulated, and the figures that summarise them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from reports.statistics.percentiles import nearest_rank
from simulator.answers import Answers
from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.observed import Observed

LATENCIES = ("ttft", "tpot", "e2e")
FIGURES = ("mean", "p50", "p90", "p99")
THROUGHPUT = "throughput"
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
_OF_ANSWERS = "tpot"  # which a request that failed has not
_MS = 1e3


@dataclass(frozen=True, eq=False)
class Latencies:
    """TTFT, TPOT and E2E latency in ms, shape [requests]; TPOT is NaN where a request has fewer than 2 tokens. ``span_s`` is
    the time from the first request to the last token. ``failed`` requests beside them had no answer: their TTFT and E2E latency
    are infinite in each quantile, and left out of means, as a report has it.
    """

    ttft: FloatArray
    tpot: FloatArray
    e2e: FloatArray
    span_s: float
    failed: int = 0

    def figures(self) -> dict[tuple[str, str], float]:
        """The figures by metric and name in ms, and the request throughput in 1/s. NaN for TPOT where no request has one, and
        infinite where a quantile falls among requests that failed.
        """
        found: dict[tuple[str, str], float] = {}
        for metric in LATENCIES:
            values = np.sort(getattr(self, metric))
            values = values[~np.isnan(values)]
            found[metric, "mean"] = float(values.mean()) if values.size else float("nan")
            ranked = values if metric == _OF_ANSWERS else np.append(values, np.full(self.failed, np.inf))
            for name, quantile in _QUANTILES.items():
                found[metric, name] = nearest_rank(ranked, quantile) if values.size else float("nan")
        found[THROUGHPUT, "mean"] = len(self.ttft) / self.span_s if self.span_s > 0 else float("nan")
        return found

    @classmethod
    def of_times(cls, since_s: FloatArray, first_s: FloatArray, last_s: FloatArray, tokens: IntArray) -> Self:
        """From the times of first and last tokens in s, and the ``tokens`` of each answer; shape [requests] each."""
        gaps = np.where(tokens >= 2, tokens - 1, np.nan)
        return cls(
            ttft=(first_s - since_s) * _MS,
            tpot=(last_s - first_s) * _MS / gaps,
            e2e=(last_s - since_s) * _MS,
            span_s=float(last_s.max() - since_s.min()),
        )

    def of(self, chosen: BoolArray) -> Latencies:
        """The latencies of some requests; the time is that of all."""
        return Latencies(self.ttft[chosen], self.tpot[chosen], self.e2e[chosen], self.span_s)


def simulated(answers: Answers) -> Latencies:
    """The latencies of a simulation, from the time of sending."""
    return Latencies.of_times(answers.sent_s, answers.first_s, answers.last_s, answers.output_tokens)


def measured(observed: Observed, since_s: FloatArray) -> Latencies:
    """The latencies of a run, from ``since_s``, shape [requests]."""
    tokens = np.where(np.diff(observed.starts) >= 2, observed.output_tokens, 1)  # one response shows no time between tokens
    return Latencies.of_times(since_s, observed.first_s, observed.last_s, tokens)
