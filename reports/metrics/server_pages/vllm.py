"""vLLM: its V1 engine, and the older names of the same numbers."""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="vLLM",
    source="vllm/v1/metrics/loggers.py",
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    cache_used=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    finished=("vllm:request_success_total",),
    generated_tokens=("vllm:generation_tokens_total",),
    prompt_tokens=("vllm:prompt_tokens_total",),
    preemptions=("vllm:num_preemptions_total",),
    drafted_tokens=("vllm:spec_decode_num_draft_tokens_total",),
    accepted_tokens=("vllm:spec_decode_num_accepted_tokens_total",),
    drafts=("vllm:spec_decode_num_drafts_total",),
    queue_time=("vllm:request_queue_time_seconds",),
    prefill_time=("vllm:request_prefill_time_seconds",),
    decode_time=("vllm:request_decode_time_seconds",),
    ttft=("vllm:time_to_first_token_seconds",),
    tpot=("vllm:request_time_per_output_token_seconds",),
    itl=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),  # the latter until 0.11
    e2e=("vllm:e2e_request_latency_seconds",),
    reuse=(
        ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "tokens"),
        ("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total", "tokens"),
    ),
)
