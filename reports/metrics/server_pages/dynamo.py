"""The frontend of NVIDIA Dynamo. Its workers export their engine's own names beside it.

Its counter of requests includes failed ones, and a queued request is one without a first token, so neither is read.
"""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="Dynamo's frontend",
    source="docs.nvidia.com/dynamo, metrics catalog",
    active=("dynamo_frontend_inflight_requests",),
    generated_tokens=("dynamo_frontend_output_tokens_total", "dynamo_frontend_output_sequence_tokens_sum"),
    prompt_tokens=("dynamo_frontend_input_sequence_tokens_sum",),
    ttft=("dynamo_frontend_time_to_first_token_seconds",),
    itl=("dynamo_frontend_inter_token_latency_seconds",),
    e2e=("dynamo_frontend_request_duration_seconds",),
)
