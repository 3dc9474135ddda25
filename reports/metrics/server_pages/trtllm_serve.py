"""trtllm-serve, whose page is at /prometheus/metrics."""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="trtllm-serve",
    source="tensorrt_llm/metrics/collector.py",
    running=("trtllm_num_requests_running",),
    waiting=("trtllm_num_requests_waiting",),
    cache_used=("trtllm_kv_cache_utilization",),
    finished=("trtllm_request_success_total",),
    generated_tokens=("trtllm_generation_tokens_total",),
    prompt_tokens=("trtllm_prompt_tokens_total",),
    queue_time=("trtllm_request_queue_time_seconds",),
    ttft=("trtllm_time_to_first_token_seconds",),
    tpot=("trtllm_time_per_output_token_seconds",),
    e2e=("trtllm_e2e_request_latency_seconds",),
    reuse=(("trtllm_prompt_cached_tokens_total", "trtllm_prompt_tokens_total", "tokens"),),
)
