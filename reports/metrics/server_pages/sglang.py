"""SGLang, started with --enable-metrics.

Its counter of requests includes aborted ones, and its counter of cached tokens counts some of them under two labels, so
neither is read.
"""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="SGLang",
    source="docs.sglang.io, production metrics",
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    cache_used=("sglang:token_usage",),
    generated_tokens=("sglang:generation_tokens_total",),
    prompt_tokens=("sglang:prompt_tokens_total",),
    queue_time=("sglang:queue_time_seconds",),
    ttft=("sglang:time_to_first_token_seconds",),
    tpot=("sglang:request_time_per_output_token_seconds",),
    itl=("sglang:inter_token_latency_seconds",),
    e2e=("sglang:e2e_request_latency_seconds",),
)
