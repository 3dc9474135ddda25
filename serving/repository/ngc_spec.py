"""What decides the content of a repository for NVIDIA's container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.repository.values import Value

TENSOR_NAMES = ("newest", "v0.19")
DATATYPES = ("FP32", "FP16", "BF16")


@dataclass(frozen=True)
class NgcSpec:
    """Everything that decides the repository's content; field names are upstream's template variables where they exist.

    ``parameters`` are those of ``ngc_parameters.PARAMETERS`` that are set, by option. ``triton_max_batch_size`` None takes the
    engine's. ``world_size`` is how many ranks the server will be started with, if known. ``tensor_names`` is the container's
    version: "v0.19" (and older) has ``min_length`` and ``random_seed`` where "newest" has ``min_tokens`` and ``seed``. Without
    ``check_paths`` paths are taken as they are: they exist in the container alone.
    """

    tokenizer_dir: Path
    parameters: Mapping[str, Value]
    triton_max_batch_size: int | None = None
    decoupled_mode: bool = True
    max_queue_delay_microseconds: int = 0
    max_queue_size: int = 0
    preprocessing_instance_count: int = 1
    postprocessing_instance_count: int = 1
    bls_instance_count: int = 1
    logits_datatype: str = "FP32"
    prompt_embedding_table_data_type: str = "FP16"
    encoder_input_features_data_type: str = "FP16"
    add_special_tokens: bool = True
    skip_special_tokens: bool = True
    accumulate_tokens: bool = False
    tensorrt_llm_model_name: str = "tensorrt_llm"
    tensorrt_llm_draft_model_name: str | None = None
    tensor_names: str = "newest"
    world_size: int | None = None
    check_paths: bool = True
