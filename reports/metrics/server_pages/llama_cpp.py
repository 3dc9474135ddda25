"""llama.cpp's llama-server, started with --metrics."""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="llama.cpp",
    source="llama.cpp, tools/server/README.md",
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    cache_used=("llamacpp:kv_cache_usage_ratio",),
    generated_tokens=("llamacpp:tokens_predicted_total",),
    prompt_tokens=("llamacpp:prompt_tokens_total",),
)
