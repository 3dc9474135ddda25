"""Arguments of an engine, and its configuration."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from vllm.usage.usage_lib import UsageContext


@dataclass
class AsyncEngineArgs:
    model: str
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    gpu_memory_utilization: float
    tensor_parallel_size: int
    skip_tokenizer_init: bool
    disable_log_stats: bool
    load_format: str = "auto"
    dtype: str = "auto"
    enforce_eager: bool = False
    block_size: int = 16
    max_model_len: int | None = None
    enable_lora: bool = False
    max_lora_rank: int = 16

    def create_engine_config(self, usage_context: UsageContext) -> SimpleNamespace:
        config = json.loads((Path(self.model) / "config.json").read_text())
        vocabulary = int(config["vocab_size"])
        length = self.max_model_len or int(config["max_position_embeddings"])
        return SimpleNamespace(
            model_config=SimpleNamespace(
                max_model_len=length, get_vocab_size=lambda: vocabulary, hf_text_config=SimpleNamespace(**config)
            ),
            lora_config=SimpleNamespace(max_lora_rank=self.max_lora_rank) if self.enable_lora else None,
            cache_config=SimpleNamespace(block_size=self.block_size, num_gpu_blocks=512, num_gpu_blocks_override=None),
            scheduler_config=SimpleNamespace(max_num_seqs=self.max_num_seqs),
            fails=config.get("fails"),
        )
