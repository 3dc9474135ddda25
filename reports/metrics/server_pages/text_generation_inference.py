"""Hugging Face's Text Generation Inference (TGI). Its time per token is the mean of each request, so it is TPOT."""

from __future__ import annotations

from reports.metrics.server_pages.page import ServerPage

PAGE = ServerPage(
    title="TGI",
    source="docs of text-generation-inference, metrics",
    running=("tgi_batch_current_size",),
    waiting=("tgi_queue_size",),
    finished=("tgi_request_success", "tgi_request_success_total"),
    generated_tokens=("tgi_request_generated_tokens_sum",),
    prompt_tokens=("tgi_request_input_length_sum",),
    queue_time=("tgi_request_queue_duration",),
    tpot=("tgi_request_mean_time_per_token_duration",),
    e2e=("tgi_request_duration",),
)
