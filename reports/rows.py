"""The rows of a report's tables, the same in every format."""

from __future__ import annotations

from reports.metrics import Metrics, UpstreamTable
from reports.statistics import Distribution


def latency_rows(metrics: Metrics) -> list[tuple[str, Distribution | None]]:
    """Latencies in ms; the token latencies only of a streamed run."""
    rows: list[tuple[str, Distribution | None]] = []
    for name, anchored in (("TTFT", metrics.ttft_ms), ("E2E latency", metrics.e2e_ms)):
        if anchored is not None:
            rows += [(f"{name}, from schedule", anchored.scheduled), (f"{name}, from send", anchored.sent)]
    if metrics.ttft_ms is not None:
        rows += [("TPOT", metrics.tpot_ms), ("ITL", metrics.itl_ms), ("Inter-chunk latency", metrics.icl_ms)]
    return [*rows, ("Schedule slip", metrics.slip_ms)]


def rate_rows(metrics: Metrics) -> list[tuple[str, float | None]]:
    """Rates per second, and the window that they are over."""
    return [
        ("Offered rate (requests/s)", metrics.offered_rate),
        ("Achieved rate (requests/s)", metrics.achieved_rate),
        ("Request throughput (requests/s)", metrics.request_throughput),
        ("Output token throughput (tokens/s)", metrics.output_token_throughput),
        ("Window, first arrival to last success (s)", metrics.window_s),
    ]


def upstream_rows(table: UpstreamTable) -> list[tuple[str, float | int | None]]:
    """Upstream's rows under upstream's names. "Avg. InFlight requests" is left out: upstream prints a constant 0."""
    return [
        ("Requests/Sec", table.requests_per_s),
        ("OP tokens/sec", table.output_tokens_per_s),
        ("Avg. latency (ms)", table.mean_latency_ms),
        ("P99 latency (ms)", table.p99_latency_ms),
        ("P90 latency (ms)", table.p90_latency_ms),
        ("Avg. IP tokens per request", table.mean_input_tokens),
        ("Avg. OP tokens per request", table.mean_output_tokens),
        ("Total latency (ms)", table.total_latency_ms),
        ("Total requests", table.total_requests),
    ]
