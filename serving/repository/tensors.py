"""Inputs and outputs of the five served models, with upstream's names, dtypes and dims.

Source: ``all_models/inflight_batcher_llm/*/config.pbtxt`` of tensorrtllm_backend v0.19 and newer. The names of v0.11
(``min_length``, ``random_seed``) are accepted beside the new ones. One line is one tensor:

    name[?] DTYPE dims [reshape] [ragged]      `?` optional; dims without the batch dimension, separated by commas

``{logits}``, ``{prompt_embedding_table}`` and ``{encoder_input_features}`` are data types that a repository configures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SHARED_TEXT_INPUTS = """
decoder_text_input?            STRING 1
max_tokens                     INT32  1
bad_words?                     STRING -1
stop_words?                    STRING -1
exclude_input_in_output?       BOOL   1
end_id?                        INT32  1
pad_id?                        INT32  1
top_k?                         INT32  1
top_p?                         FP32   1
temperature?                   FP32   1
length_penalty?                FP32   1
repetition_penalty?            FP32   1
min_tokens?                    INT32  1
min_length?                    INT32  1
presence_penalty?              FP32   1
frequency_penalty?             FP32   1
seed?                          UINT64 1
random_seed?                   UINT64 1
beam_width?                    INT32  1
stream?                        BOOL   1
prompt_vocab_size?             INT32  1
prompt_table_extra_id?         UINT64 1
embedding_bias_words?          STRING -1
embedding_bias_weights?        FP32   -1
lora_weights?                  FP16   -1,-1 ragged
lora_config?                   INT32  -1,3 ragged
"""

ENSEMBLE_INPUTS = (
    """
text_input                     STRING 1
num_return_sequences?          INT32  1
return_log_probs?              BOOL   1
return_context_logits?         BOOL   1
return_generation_logits?      BOOL   1
return_perf_metrics?           BOOL   1
return_num_input_tokens?       BOOL   1
return_num_output_tokens?      BOOL   1
prompt_embedding_table?        {prompt_embedding_table} -1,-1
lora_task_id?                  UINT64 1
guided_decoding_guide_type?    STRING 1 ragged
guided_decoding_guide?         STRING 1 ragged
"""
    + _SHARED_TEXT_INPUTS
)

BLS_INPUTS = (
    """
text_input                     STRING 1
image_input?                   FP16   -1,3,-1,-1
image_bytes_input?             UINT8  -1,-1,-1,-1
image_url_input?               STRING 1
image_sizes_input?             INT64  -1,2
video_bytes_input?             UINT8  -1,-1,-1,-1
num_return_sequences?          INT32  1 reshape
return_log_probs?              BOOL   1 reshape
return_context_logits?         BOOL   1 reshape
return_generation_logits?      BOOL   1 reshape
return_perf_metrics?           BOOL   1 reshape
return_num_input_tokens?       BOOL   1 reshape
return_num_output_tokens?      BOOL   1 reshape
prompt_embedding_table?        {prompt_embedding_table} -1,-1
num_draft_tokens?              INT32  1
use_draft_logits?              BOOL   1 reshape
lora_task_id?                  UINT64 1 reshape
guided_decoding_guide_type?    STRING 1
guided_decoding_guide?         STRING 1
"""
    + _SHARED_TEXT_INPUTS
)

_GENERATION_OUTPUTS = """
cum_log_probs                  FP32   -1
output_log_probs               FP32   -1,-1
context_logits                 {logits} -1,-1
generation_logits              {logits} -1,-1,-1
batch_index                    INT32  1
sequence_index                 INT32  1
kv_cache_alloc_new_blocks      INT32  1
kv_cache_reused_blocks         INT32  1
kv_cache_alloc_total_blocks    INT32  1
arrival_time_ns                INT64  1
first_scheduled_time_ns        INT64  1
first_token_time_ns            INT64  1
last_token_time_ns             INT64  1
acceptance_rate                FP32   1
total_accepted_draft_tokens    INT32  1
total_draft_tokens             INT32  1
num_input_tokens               INT32  1
num_output_tokens              INT32  1
"""

TEXT_OUTPUTS = "text_output                   STRING -1\n" + _GENERATION_OUTPUTS

PERF_METRICS = (
    "kv_cache_alloc_new_blocks",
    "kv_cache_reused_blocks",
    "kv_cache_alloc_total_blocks",
    "arrival_time_ns",
    "first_scheduled_time_ns",
    "first_token_time_ns",
    "last_token_time_ns",
    "acceptance_rate",
    "total_accepted_draft_tokens",
    "total_draft_tokens",
)
# Outputs that a request must enable, by the input that enables them. The token counts have flags of their own.
OUTPUTS_BY_SWITCH: Mapping[str, tuple[str, ...]] = {
    "return_log_probs": ("cum_log_probs", "output_log_probs"),
    "return_context_logits": ("context_logits",),
    "return_generation_logits": ("generation_logits",),
    "return_perf_metrics": PERF_METRICS,
}

PREPROCESSING_INPUTS = """
QUERY                          STRING 1
DECODER_QUERY?                 STRING 1
IMAGE_BYTES?                   UINT8  -1,-1,-1,-1
IMAGE_URL?                     STRING -1
IMAGE_SIZES?                   INT64  -1,2
VIDEO_BYTES?                   UINT8  -1,-1,-1,-1
REQUEST_OUTPUT_LEN             INT32  1
BAD_WORDS_DICT?                STRING -1
STOP_WORDS_DICT?               STRING -1
EMBEDDING_BIAS_WORDS?          STRING -1
EMBEDDING_BIAS_WEIGHTS?        FP32   -1
END_ID?                        INT32  1
PAD_ID?                        INT32  1
PROMPT_TABLE_EXTRA_ID?         UINT64 1
"""

# From PIXEL_VALUES on: for upstream's vision encoders; declared only, as text does not produce them.
PREPROCESSING_OUTPUTS = """
INPUT_ID                       INT32  -1
REQUEST_INPUT_LEN              INT32  1
DECODER_INPUT_ID               INT32  -1
REQUEST_DECODER_INPUT_LEN      INT32  1
BAD_WORDS_IDS                  INT32  2,-1
STOP_WORDS_IDS                 INT32  2,-1
EMBEDDING_BIAS                 FP32   -1
REQUEST_OUTPUT_LEN             INT32  -1
OUT_END_ID                     INT32  1
OUT_PAD_ID                     INT32  1
OUT_PROMPT_TABLE_EXTRA_IDS     UINT64 -1
PIXEL_VALUES                   FP16   -1,-1,-1,-1
ASPECT_RATIO_IDS               INT64  -1
ASPECT_RATIO_MASK              INT64  -1,-1
CROSS_ATTENTION_MASK           INT64  -1,-1,-1
IMAGE_SIZES                    INT64  -1,2
IS_VIDEO_INPUT                 BOOL   1
ATTENTION_MASK                 INT64  -1
IMAGE_GRID_THW                 INT64  3
VISION_INPUT_ID                INT32  -1
"""

# The last input is an addition that joins streamed pieces (serving/text/detokenization.py); upstream's clients do not send it.
POSTPROCESSING_INPUTS = """
TOKENS_BATCH                   INT32  -1,-1
SEQUENCE_LENGTH                INT32  -1
DETOKENIZATION_CONTEXT?        INT32  -1
"""

POSTPROCESSING_OUTPUTS = "OUTPUT                        STRING -1\n"

CORE_INPUTS = """
input_ids?                     INT32  -1 ragged
encoder_input_features?        {encoder_input_features} -1,-1 ragged
encoder_output_lengths?        INT32  1 reshape
input_lengths                  INT32  1 reshape
request_output_len             INT32  1 reshape
num_return_sequences?          INT32  1 reshape
draft_input_ids?               INT32  -1 ragged
decoder_input_ids?             INT32  -1 ragged
decoder_input_lengths?         INT32  1 reshape
draft_logits?                  {logits} -1,-1 ragged
draft_acceptance_threshold?    FP32   1 reshape
end_id?                        INT32  1 reshape
pad_id?                        INT32  1 reshape
stop_words_list?               INT32  2,-1 ragged
bad_words_list?                INT32  2,-1 ragged
embedding_bias?                FP32   -1 ragged
beam_width?                    INT32  1 reshape
temperature?                   FP32   1 reshape
runtime_top_k?                 INT32  1 reshape
runtime_top_p?                 FP32   1 reshape
runtime_top_p_min?             FP32   1 reshape
runtime_top_p_decay?           FP32   1 reshape
runtime_top_p_reset_ids?       INT32  1 reshape
len_penalty?                   FP32   1 reshape
early_stopping?                BOOL   1 reshape
repetition_penalty?            FP32   1 reshape
min_tokens?                    INT32  1 reshape
min_length?                    INT32  1 reshape
beam_search_diversity_rate?    FP32   1 reshape
presence_penalty?              FP32   1 reshape
frequency_penalty?             FP32   1 reshape
seed?                          UINT64 1 reshape
random_seed?                   UINT64 1 reshape
return_log_probs?              BOOL   1 reshape
return_context_logits?         BOOL   1 reshape
return_generation_logits?      BOOL   1 reshape
return_perf_metrics?           BOOL   1 reshape
return_num_input_tokens?       BOOL   1 reshape
return_num_output_tokens?      BOOL   1 reshape
exclude_input_in_output?       BOOL   1 reshape
stop?                          BOOL   1 reshape
streaming?                     BOOL   1 reshape
prompt_embedding_table?        {prompt_embedding_table} -1,-1 ragged
prompt_table_extra_ids?        UINT64 -1 ragged
prompt_vocab_size?             INT32  1 reshape
cross_attention_mask?          BOOL   -1,-1 ragged
mrope_rotary_cos_sin?          FP32   -1
mrope_position_deltas?         INT64  1
lora_task_id?                  UINT64 1 reshape
lora_weights?                  FP16   -1,-1 ragged
lora_config?                   INT32  -1,3 ragged
context_phase_params?          UINT8  -1 ragged
skip_cross_attn_blocks?        BOOL   1 ragged
retention_token_range_starts?  INT32  -1 ragged
retention_token_range_ends?    INT32  -1 ragged
retention_token_range_priorities? INT32 -1 ragged
retention_token_range_durations_ms? INT32 -1 ragged
retention_decode_priority?     INT32  1 ragged
retention_decode_duration_ms?  INT32  1 ragged
guided_decoding_guide_type?    STRING 1 ragged
guided_decoding_guide?         STRING 1 ragged
lookahead_window_size?         INT32  1 ragged
lookahead_ngram_size?          INT32  1 ragged
lookahead_verification_set_size? INT32 1 ragged
"""

CORE_OUTPUTS = (
    """
output_ids                     INT32  -1,-1
sequence_length                INT32  -1
context_phase_params           UINT8  -1
detokenization_context         INT32  -1
"""
    + _GENERATION_OUTPUTS
)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model; ``dims`` exclude the batch dimension, -1 is any size."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool
    reshape_to_scalar: bool
    ragged: bool


@dataclass(frozen=True, slots=True)
class Datatypes:
    """Configurable data types; the names are upstream's template variables without their suffixes."""

    logits: str = "FP32"
    prompt_embedding_table: str = "FP16"
    encoder_input_features: str = "FP16"


def parse_tensors(text: str, datatypes: Datatypes = Datatypes()) -> tuple[TensorSpec, ...]:
    """Parse one of this module's tables."""
    return tuple(_parse_line(line, datatypes) for line in text.splitlines() if line.strip())


def _parse_line(line: str, datatypes: Datatypes) -> TensorSpec:
    name, dtype, dims, *flags = line.split()
    return TensorSpec(
        name=name.removesuffix("?"),
        dtype=getattr(datatypes, dtype[1:-1]) if dtype.startswith("{") else dtype,
        dims=tuple(int(dim) for dim in dims.split(",")),
        optional=name.endswith("?"),
        reshape_to_scalar="reshape" in flags,
        ragged="ragged" in flags,
    )
