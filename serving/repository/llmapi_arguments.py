"""The arguments of TensorRT-LLM's ``LLM(...)``, which refuses unknown ones. Source: its API-stability reference, 1.2/1.3."""

from __future__ import annotations

LLM_ARGUMENTS = frozenset(
    """
    model tokenizer tokenizer_mode custom_tokenizer skip_tokenizer_init trust_remote_code dtype revision tokenizer_revision
    load_format model_kwargs checkpoint_format checkpoint_loader mm_encoder_only
    tensor_parallel_size pipeline_parallel_size context_parallel_size cp_config pp_partition gpus_per_node
    moe_tensor_parallel_size moe_expert_parallel_size moe_cluster_parallel_size enable_attention_dp attention_dp_config
    enable_lm_head_tp_in_adp orchestrator_type
    max_batch_size max_input_len max_seq_len max_beam_width max_num_tokens
    kv_cache_config scheduler_config enable_chunked_prefill peft_cache_config cache_transceiver_config kv_connector_config
    sparse_attention_config batch_wait_timeout_ms batch_wait_timeout_iters batch_wait_max_tokens_ratio
    speculative_config guided_decoding_backend batched_logits_processor sampler_type gather_generation_logits reasoning_parser
    enable_lora lora_config
    backend cuda_graph_config torch_compile_config disable_overlap_scheduler attn_backend moe_config allreduce_strategy
    enable_autotuner enable_min_latency force_dynamic_quantization garbage_collection_gen0_threshold
    fail_fast_on_attention_window_too_large stream_interval num_postprocess_workers postprocess_tokenizer_dir
    otlp_traces_endpoint
    enable_iter_perf_stats enable_iter_req_stats return_perf_metrics perf_metrics_max_requests iter_stats_max_iterations
    request_stats_max_iterations print_iter_log enable_layerwise_nvtx_marker
    """.split()  # noqa: SIM905  a list of literals would be a page
)
