"""The statistics of upstream's ``benchmark_core_model.py``, by upstream's definitions and under upstream's names.

Latency counts from the send to the end of the response; rates are over last response − first send. "Avg. InFlight requests"
is left out: upstream prints a constant 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reports.metrics.metric import Better
from reports.metrics.requests import Requests
from reports.statistics.arrays import mean_of_known
from reports.statistics.percentiles import nearest_rank

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True)
class UpstreamTable:
    """Times in ms, rates per second over (last response − first send); None where nothing succeeded."""

    requests_per_s: float | None
    output_tokens_per_s: float | None
    mean_latency_ms: float | None
    p99_latency_ms: float | None
    p90_latency_ms: float | None
    mean_input_tokens: float | None
    mean_output_tokens: float | None
    total_latency_ms: float | None
    total_requests: int


@dataclass(frozen=True, slots=True)
class UpstreamStatistic:
    """One row: ``printed`` is its name in upstream's table, ``column`` that in upstream's CSV and reference files.

    ``better`` is None for a count, which must neither rise nor fall.
    """

    printed: str
    value: Callable[[UpstreamTable], float | int | None]
    better: Better | None = None
    csv_column: str = ""

    @property
    def column(self) -> str:
        return self.csv_column or self.printed


UPSTREAM_STATISTICS = (
    UpstreamStatistic("Requests/Sec", lambda table: table.requests_per_s, Better.HIGHER),
    UpstreamStatistic("OP tokens/sec", lambda table: table.output_tokens_per_s, Better.HIGHER),
    UpstreamStatistic("Avg. latency (ms)", lambda table: table.mean_latency_ms, Better.LOWER),
    UpstreamStatistic("P99 latency (ms)", lambda table: table.p99_latency_ms, Better.LOWER),
    UpstreamStatistic("P90 latency (ms)", lambda table: table.p90_latency_ms, Better.LOWER),
    UpstreamStatistic(
        "Avg. IP tokens per request", lambda table: table.mean_input_tokens, csv_column="Avg. Input tokens per request"
    ),
    UpstreamStatistic(
        "Avg. OP tokens per request", lambda table: table.mean_output_tokens, csv_column="Avg. Output tokens per request"
    ),
    UpstreamStatistic("Total latency (ms)", lambda table: table.total_latency_ms, Better.LOWER),
    UpstreamStatistic("Total requests", lambda table: table.total_requests),
)


def upstream_statistics(requests: Requests) -> UpstreamTable:
    """Upstream's statistics of a run's successful requests."""
    done = requests.done
    if not done.any():
        return UpstreamTable(None, None, None, None, None, None, None, None, 0)
    latency_ms = np.sort((requests.done_ns[done] - requests.sent_ns[done]) / _NS_PER_MS)
    span_s = float(requests.done_ns[done].max() - requests.sent_ns[done].min()) / _NS_PER_S
    output_tokens = requests.output_tokens[done]
    return UpstreamTable(
        requests_per_s=float(done.sum()) / span_s if span_s else None,
        output_tokens_per_s=None if not span_s or np.isnan(output_tokens).any() else float(output_tokens.sum()) / span_s,
        mean_latency_ms=float(latency_ms.mean()),
        p99_latency_ms=nearest_rank(latency_ms, 0.99),
        p90_latency_ms=nearest_rank(latency_ms, 0.90),
        mean_input_tokens=mean_of_known(requests.input_tokens[done]),
        mean_output_tokens=mean_of_known(output_tokens),
        total_latency_ms=span_s * 1e3,
        total_requests=int(done.sum()),
    )
