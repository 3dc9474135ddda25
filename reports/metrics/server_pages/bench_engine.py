"""The project's own core model behind Triton, and the token counters of NVIDIA's backend, which count answers that ended: those
of the project's own engine have the tokens of cancelled answers, too.
"""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="the embedded pipeline",
    source="serving/models/core/metrics.py",
    generated_tokens=("inflight_bench_engine_generated_tokens", "nv_llm_output_token_len_sum"),
    prompt_tokens=("nv_llm_input_token_len_sum", "inflight_bench_engine_prompt_tokens"),
    queue_time=("inflight_bench_queue_time_seconds",),
    ttft=("inflight_bench_time_to_first_token_seconds",),
    itl=("inflight_bench_inter_token_latency_seconds",),
    reuse=(("inflight_bench_engine_kv_reused_blocks", "inflight_bench_engine_kv_prompt_blocks", "blocks"),),
)
