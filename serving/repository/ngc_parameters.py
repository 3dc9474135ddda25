"""Parameters of ``tensorrt_llm/config.pbtxt`` that the C++ backend ``tensorrtllm`` of the NGC container reads.

This table is the single source of the command line options, the checks and the written configuration. The option is upstream's
template variable; the key is the parameter's name where it differs. Defaults are the backend's and never written.
Source: ``all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt`` of v0.19 and newer.
"""

from __future__ import annotations

from serving.repository.values import Kind, Parameter

_BYTES = 2**63 - 1

FIXED = {
    "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
    "executor_worker_path": "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
}
"""Written into every repository, as in upstream's."""

REFUSED = {
    "enable_trt_overlap": "TensorRT-LLM ignores it; omit it",
    "worker_path": "it was renamed to executor_worker_path, which is always written; the backend rejects the old name",
}
"""Parameters of old templates that cannot be set, with the reason."""


def _entry(option: str, kind: Kind, text: str, *, key: str = "", low: float = 0, high: float = 2**31 - 1) -> Parameter:
    return Parameter(option, kind, text, key or option, low, high)


def _choice(option: str, text: str, *choices: str, key: str = "") -> Parameter:
    return Parameter(option, Kind.CHOICE, text, key or option, choices=choices)


_I, _N, _B = Kind.INTEGER, Kind.NUMBER, Kind.BOOLEAN

ENGINE = (
    _entry("engine_dir", Kind.FOLDER, "Engine folder with rank*.engine and config.json.", key="gpt_model_path"),
    _entry(
        "encoder_engine_dir", Kind.FOLDER, "Engine folder of the encoder of an encoder-decoder model.", key="encoder_model_path"
    ),
    _entry("max_beam_width", _I, "Maximum number of beams per request. Default: 1.", low=1),
    _entry("gpu_device_ids", Kind.GROUPS, "GPUs per instance; ';' separates instances: '0,1;2,3'. Default: all visible."),
    _entry("participant_ids", Kind.GROUPS, "MPI ranks of the model in orchestrator mode without spawned workers."),
    _entry("num_nodes", _I, "Number of nodes of the model. Default: 1.", low=1),
    _entry("gpu_weights_percent", _N, "Fraction of the weights kept on the GPU (weight streaming). Default: 1.", high=1),
    _entry("enable_context_fmha_fp32_acc", _B, "Accumulate context-phase attention in FP32. Default: false."),
    _entry("multi_block_mode", _B, "Multi-block attention in the generation phase. Default: true."),
    _entry("cuda_graph_mode", _B, "Run the generation phase with CUDA graphs. Default: false."),
    _entry("cuda_graph_cache_size", _I, "Number of cached CUDA graphs. Default: 0."),
)

SCHEDULING = (
    _choice(
        "batching_strategy", "Batching of requests; V1 is static.", "inflight_fused_batching", "inflight_batching", "V1",
        key="gpt_model_type",
    ),
    _choice(
        "batch_scheduler_policy", "Condition for the start of a request. Default: guaranteed_no_evict.", "guaranteed_no_evict",
        "max_utilization",
    ),
    _entry("enable_chunked_context", _B, "Split long prompts over iterations. Default: false."),
    _entry("cancellation_check_period_ms", _I, "Interval of checks for cancelled requests. Default: 100.", low=1),
    _entry("stats_check_period_ms", _I, "Interval of metric updates. Default: 100.", low=1),
    _entry("recv_poll_period_ms", _I, "Polling interval of the orchestrator's receiving thread. Default: 0."),
    _entry("iter_stats_max_iterations", _I, "Number of iterations with stored statistics. Default: 1000."),
    _entry("request_stats_max_iterations", _I, "Number of iterations with stored request statistics. Default: 0."),
)  # fmt: skip

KV_CACHE = (
    _entry("max_tokens_in_paged_kv_cache", _I, "KV cache capacity in tokens. Default: limited by memory only.", low=1),
    _entry("kv_cache_free_gpu_mem_fraction", _N, "Fraction of free GPU memory for the KV cache. Default: 0.9.", high=1),
    _entry("cross_kv_cache_fraction", _N, "Fraction of the KV cache for cross attention (encoder-decoder).", high=1),
    _entry("kv_cache_host_memory_bytes", _I, "Host memory for offloaded blocks. Default: 0.", high=_BYTES),
    _entry("kv_cache_onboard_blocks", _B, "Copy offloaded blocks back to the GPU before use. Default: true."),
    _entry("enable_kv_cache_reuse", _B, "Reuse blocks of equal prompt prefixes. Default: true since v0.19."),
    _entry("max_attention_window_size", Kind.INTEGERS, "Attention window in tokens, for all layers or per layer.", low=1),
    _entry("sink_token_length", _I, "Number of first tokens that stay in the attention window."),
)

OUTPUT = (
    _entry("exclude_input_in_output", _B, "Exclude the prompt from unstreamed responses. Default: false."),
    _entry("normalize_log_probs", _B, "Normalize output_log_probs over the tokens that sampling keeps. Default: true."),
)

LORA = (
    _entry("lora_cache_optimal_adapter_size", _I, "Adapter size that the LoRA cache is optimized for. Default: 8.", low=1),
    _entry("lora_cache_max_adapter_size", _I, "Largest adapter size. Default: 64.", low=1),
    _entry("lora_cache_gpu_memory_fraction", _N, "Fraction of GPU memory for the LoRA cache. Default: 0.05.", high=1),
    _entry("lora_cache_host_memory_bytes", _I, "Host memory of the LoRA cache. Default: 1 GiB.", high=_BYTES),
    _entry("lora_prefetch_dir", Kind.FOLDER, "Adapters loaded at startup: one folder per task id."),
)

DECODING = (
    _choice(
        "decoding_mode", "Default: top_k_top_p, or beam_search with beams.", "top_k", "top_p", "top_k_top_p", "beam_search",
        "medusa", "redrafter", "lookahead", "eagle",
    ),
    _entry("lookahead_window_size", _I, "Window size of decoding_mode lookahead.", low=1),
    _entry("lookahead_ngram_size", _I, "N-gram size of decoding_mode lookahead.", low=1),
    _entry("lookahead_verification_set_size", _I, "Size of the verification set of decoding_mode lookahead.", low=0),
    _entry("medusa_choices", Kind.TREE, "Tree of decoding_mode medusa. Default: mc_sim_7b_63."),
    _entry("eagle_choices", Kind.TREE, "Tree of decoding_mode eagle. Default: mc_sim_7b_63."),
    _entry("speculative_decoding_fast_logits", _B, "Send draft logits between GPUs; orchestrator mode with participant_ids."),
    _choice("guided_decoding_backend", "Backend of guided decoding.", "xgrammar"),
    _entry("xgrammar_tokenizer_info_path", Kind.FILE, "Tokenizer description for xgrammar, written by upstream's script."),
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
"""Also an entry of the block, for guided decoding; written together with ``guided_decoding_backend``."""
