"""All kinds of servers whose pages are known, in the order in which their names count where a page has several."""

from __future__ import annotations

from reports.metrics.server_pages import (
    bench_engine,
    dynamo,
    llama_cpp,
    sglang,
    text_generation_inference,
    trtllm_serve,
    vllm,
)
from reports.metrics.server_pages.page import ServerPage

PAGES: tuple[ServerPage, ...] = (
    bench_engine.PAGE,
    vllm.PAGE,
    sglang.PAGE,
    trtllm_serve.PAGE,
    text_generation_inference.PAGE,
    llama_cpp.PAGE,
    dynamo.PAGE,  # a page that has it beside an engine's own names shows the engine
)


_WITHOUT_TRITON_MODEL = ("vllm:", "sglang:", "trtllm_", "tgi_", "llamacpp:", "dynamo_", "nv_gpu_", "nv_cpu_")


def names_of(part: str) -> tuple[str, ...]:
    """The names of one part, a field of ServerPage, on all pages."""
    return tuple(name for page in PAGES for name in getattr(page, part))


def with_model_label(name: str) -> bool:
    """Whether the series of this name, a histogram's with or without its ending, name their Triton model."""
    return not name.startswith(_WITHOUT_TRITON_MODEL)
