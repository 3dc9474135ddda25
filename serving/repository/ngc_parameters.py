"""Every parameter of ``tensorrt_llm/config.pbtxt`` as the C++ backend ``tensorrtllm`` of the NGC container reads it.

One table is the single source: the command line's options, the checks and what is written all come from it. The option is
upstream's template variable; the key is the parameter's name where that differs. Defaults are the backend's and never written.
Source: ``all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt`` of v0.19 and newer.
"""

from __future__ import annotations

from serving.repository.values import Kind, Parameter

_BYTES = 2**63 - 1

FIXED = {
    "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
    "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
}
"""Written into every repository, as upstream does."""

REFUSED = {
    "enable_trt_overlap": "TensorRT-LLM ignores it; leave it out",
    "worker_path": "the backend refuses it since it is called executor_worker_path, which is always written",
}
"""Names that old templates had, and why they cannot be set."""


def _entry(option: str, kind: Kind, text: str, *, key: str = "", low: float = 0, high: float = 2**31 - 1) -> Parameter:
    return Parameter(option, kind, text, key or option, low, high)


def _choice(option: str, text: str, *choices: str, key: str = "") -> Parameter:
    return Parameter(option, Kind.CHOICE, text, key or option, choices=choices)


_I, _N, _B = Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN

ENGINE = (
    _entry("engine_dir", Kind.FOLDER, "The engine: rank*.engine and config.json.", key="gpt_model_path"),
    _entry("encoder_engine_dir", Kind.FOLDER, "The encoder's engine of an encoder-decoder model.", key="encoder_model_path"),
    _entry("max_beam_width", _I, "Most beams of a request. Backend's default: 1.", low=1),
    _entry("gpu_device_ids", Kind.GROUPS, "GPUs of an instance; ';' separates instances: '0,1;2,3'. Default: all visible."),
    _entry("participant_ids", Kind.GROUPS, "MPI ranks of the model in orchestrator mode without spawned workers."),
    _entry("num_nodes", _I, "Nodes that the model is spread over. Default: 1.", low=1),
    _entry("gpu_weights_percent", _N, "Part of the weights kept on the GPU (weight streaming). Default: 1.", high=1),
    _entry("enable_context_fmha_fp32_acc", _B, "Accumulate the context's attention in FP32. Default: false."),
    _entry("multi_block_mode", _B, "Multi-block attention of the generation phase. Default: true."),
    _entry("cuda_graph_mode", _B, "Run the generation phase as CUDA graphs. Default: false."),
    _entry("cuda_graph_cache_size", _I, "How many CUDA graphs are kept. Default: 0."),
)

SCHEDULING = (
    _choice(
        "batching_strategy", "How requests share a batch; V1 is static.", "inflight_fused_batching", "inflight_batching", "V1",
        key="gpt_model_type",
    ),
    _choice(
        "batch_scheduler_policy", "When a request may start. Default: guaranteed_no_evict.", "guaranteed_no_evict",
        "max_utilization",
    ),
    _entry("enable_chunked_context", _B, "Split long prompts over iterations. Default: false."),
    _entry("cancellation_check_period_ms", _I, "How often abandoned requests are looked for. Default: 100.", low=1),
    _entry("stats_check_period_ms", _I, "How often metrics are updated. Default: 100.", low=1),
    _entry("recv_poll_period_ms", _I, "How long the orchestrator's receiving thread waits between looks. Default: 0."),
    _entry("iter_stats_max_iterations", _I, "Iterations whose statistics are kept. Default: 1000."),
    _entry("request_stats_max_iterations", _I, "Iterations whose request statistics are kept. Default: 0."),
)  # fmt: skip

KV_CACHE = (
    _entry("max_tokens_in_paged_kv_cache", _I, "Tokens that the KV cache holds. Default: as many as memory allows.", low=1),
    _entry("kv_cache_free_gpu_mem_fraction", _N, "Part of the free GPU memory that the KV cache takes. Default: 0.9.", high=1),
    _entry("cross_kv_cache_fraction", _N, "Part of the KV cache that cross attention takes (encoder-decoder).", high=1),
    _entry("kv_cache_host_memory_bytes", _I, "Host memory that blocks are offloaded to. Default: 0.", high=_BYTES),
    _entry("kv_cache_onboard_blocks", _B, "Copy offloaded blocks back to the GPU before use. Default: true."),
    _entry("enable_kv_cache_reuse", _B, "Share blocks of equal prompt beginnings. Default: true since v0.19."),
    _entry("max_attention_window_size", Kind.INTEGERS, "Tokens that attention looks back, for all layers or each.", low=1),
    _entry("sink_token_length", _I, "First tokens that always stay within attention's window."),
)

OUTPUT = (
    _entry("exclude_input_in_output", _B, "Leave the prompt out of unstreamed answers. Default: false."),
    _entry("normalize_log_probs", _B, "Divide cum_log_probs by the length. Default: true."),
)

LORA = (
    _entry("lora_cache_optimal_adapter_size", _I, "Adapter size that the LoRA cache is laid out for. Default: 8.", low=1),
    _entry("lora_cache_max_adapter_size", _I, "Largest adapter size. Default: 64.", low=1),
    _entry("lora_cache_gpu_memory_fraction", _N, "Part of the GPU memory that the LoRA cache takes. Default: 0.05.", high=1),
    _entry("lora_cache_host_memory_bytes", _I, "Host memory of the LoRA cache. Default: 1 GiB.", high=_BYTES),
    _entry("lora_prefetch_dir", Kind.FOLDER, "Adapters loaded at the start: one folder for each task id."),
)

DECODING = (
    _choice(
        "decoding_mode", "Default: top_k_top_p, or beam_search with beams.", "top_k", "top_p", "top_k_top_p", "beam_search",
        "medusa", "redrafter", "lookahead", "eagle",
    ),
    _entry("lookahead_window_size", _I, "Of decoding_mode lookahead.", low=1),
    _entry("lookahead_ngram_size", _I, "Of decoding_mode lookahead.", low=1),
    _entry("lookahead_verification_set_size", _I, "Of decoding_mode lookahead.", low=0),
    _entry("medusa_choices", Kind.TREE, "Tree of decoding_mode medusa. Default: mc_sim_7b_63."),
    _entry("eagle_choices", Kind.TREE, "Tree of decoding_mode eagle. Default: mc_sim_7b_63."),
    _entry("speculative_decoding_fast_logits", _B, "Draft logits go from GPU to GPU; orchestrator mode with participant_ids."),
    _choice("guided_decoding_backend", "What guides outputs along a grammar.", "xgrammar"),
    _entry("xgrammar_tokenizer_info_path", Kind.FILE, "The tokenizer's description for xgrammar, made by upstream's script."),
)  # fmt: skip

GROUPS = {
    "Engine": ENGINE,
    "Scheduling": SCHEDULING,
    "KV cache": KV_CACHE,
    "Output": OUTPUT,
    "LoRA": LORA,
    "Decoding": DECODING,
}
PARAMETERS = {parameter.option: parameter for group in GROUPS.values() for parameter in group}

TOKENIZER_KEY = "tokenizer_dir"
"""Also an entry of the block, read where decoding is guided; written along with ``guided_decoding_backend``."""
