"""Inputs and outputs of the five served models, with upstream's names, dtypes and dims.

Source: ``all_models/inflight_batcher_llm/*/config.pbtxt`` of tensorrtllm_backend v0.11, v0.19 and newer. A line is a tensor:

    name[?] DTYPE dims [reshape] [ragged] [since-RELEASE] [until-RELEASE]

`?` is optional. Dims are without the batch dimension, separated by commas; they are the newest release's, of which some were -1
in v0.11 and are 1 since. Without ``since`` a tensor is in v0.11 already; ``until`` names the last release that has it.

``{logits}``, ``{prompt_embedding_table}`` and ``{encoder_input_features}`` are data types that a repository configures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Release(StrEnum):
    """Releases of tensorrtllm_backend whose tensors differ, in their order."""

    V0_11 = "0.11"
    V0_19 = "0.19"
    NEWEST = "newest"


_SHARED_TEXT_INPUTS = """
decoder_text_input?            STRING 1
max_tokens                     INT32  1
bad_words?                     STRING -1
stop_words?                    STRING -1
exclude_input_in_output?       BOOL   1 since-0.19
end_id?                        INT32  1
pad_id?                        INT32  1
top_k?                         INT32  1
top_p?                         FP32   1
temperature?                   FP32   1
length_penalty?                FP32   1
repetition_penalty?            FP32   1
min_tokens?                    INT32  1 since-newest
min_length?                    INT32  1 until-0.19
presence_penalty?              FP32   1
frequency_penalty?             FP32   1
seed?                          UINT64 1 since-newest
random_seed?                   UINT64 1 until-0.19
beam_width?                    INT32  1
stream?                        BOOL   1
prompt_vocab_size?             INT32  1
prompt_table_extra_id?         UINT64 1 since-0.19
embedding_bias_words?          STRING -1
embedding_bias_weights?        FP32   -1
lora_weights?                  FP16   -1,-1 ragged since-0.19
lora_config?                   INT32  -1,3 ragged since-0.19
"""

ENSEMBLE_INPUTS = (
    """
text_input                     STRING 1
num_return_sequences?          INT32  1 since-0.19
return_log_probs?              BOOL   1
return_context_logits?         BOOL   1
return_generation_logits?      BOOL   1
return_perf_metrics?           BOOL   1 since-0.19
return_num_input_tokens?       BOOL   1 since-newest
return_num_output_tokens?      BOOL   1 since-newest
prompt_embedding_table?        {prompt_embedding_table} -1,-1
lora_task_id?                  UINT64 1 since-0.19
guided_decoding_guide_type?    STRING 1 ragged since-0.19
guided_decoding_guide?         STRING 1 ragged since-0.19
"""
    + _SHARED_TEXT_INPUTS
)

BLS_INPUTS = (
    """
text_input                     STRING 1
image_input?                   FP16   -1,3,-1,-1 since-0.19
image_bytes_input?             UINT8  -1,-1,-1,-1 since-0.19
image_url_input?               STRING 1 since-0.19
image_sizes_input?             INT64  -1,2 since-0.19
video_bytes_input?             UINT8  -1,-1,-1,-1 since-0.19
num_return_sequences?          INT32  1 reshape since-0.19
return_log_probs?              BOOL   1 reshape
return_context_logits?         BOOL   1 reshape
return_generation_logits?      BOOL   1 reshape
return_perf_metrics?           BOOL   1 reshape since-0.19
return_num_input_tokens?       BOOL   1 reshape since-newest
return_num_output_tokens?      BOOL   1 reshape since-newest
prompt_embedding_table?        {prompt_embedding_table} -1,-1
num_draft_tokens?              INT32  1
use_draft_logits?              BOOL   1 reshape
lora_task_id?                  UINT64 1 reshape since-0.19
guided_decoding_guide_type?    STRING 1 since-0.19
guided_decoding_guide?         STRING 1 since-0.19
"""
    + _SHARED_TEXT_INPUTS
)

_GENERATION_OUTPUTS = """
cum_log_probs                  FP32   -1
output_log_probs               FP32   -1,-1
context_logits                 {logits} -1,-1
generation_logits              {logits} -1,-1,-1
batch_index                    INT32  1 since-0.19
sequence_index                 INT32  1 since-0.19
kv_cache_alloc_new_blocks      INT32  1 since-0.19
kv_cache_reused_blocks         INT32  1 since-0.19
kv_cache_alloc_total_blocks    INT32  1 since-0.19
arrival_time_ns                INT64  1 since-0.19
first_scheduled_time_ns        INT64  1 since-0.19
first_token_time_ns            INT64  1 since-0.19
last_token_time_ns             INT64  1 since-0.19
acceptance_rate                FP32   1 since-0.19
total_accepted_draft_tokens    INT32  1 since-0.19
total_draft_tokens             INT32  1 since-0.19
num_input_tokens               INT32  1 since-newest
num_output_tokens              INT32  1 since-newest
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
IMAGE_BYTES?                   UINT8  -1,-1,-1,-1 since-0.19
IMAGE_URL?                     STRING -1 since-0.19
IMAGE_SIZES?                   INT64  -1,2 since-0.19
VIDEO_BYTES?                   UINT8  -1,-1,-1,-1 since-0.19
REQUEST_OUTPUT_LEN             INT32  1
BAD_WORDS_DICT?                STRING -1
STOP_WORDS_DICT?               STRING -1
EMBEDDING_BIAS_WORDS?          STRING -1
EMBEDDING_BIAS_WEIGHTS?        FP32   -1
END_ID?                        INT32  1
PAD_ID?                        INT32  1
PROMPT_TABLE_EXTRA_ID?         UINT64 1 since-0.19
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
OUT_PROMPT_TABLE_EXTRA_IDS     UINT64 -1 since-0.19
PIXEL_VALUES                   FP16   -1,-1,-1,-1 since-0.19
ASPECT_RATIO_IDS               INT64  -1 since-0.19
ASPECT_RATIO_MASK              INT64  -1,-1 since-0.19
CROSS_ATTENTION_MASK           INT64  -1,-1,-1 since-0.19
IMAGE_SIZES                    INT64  -1,2 since-0.19
IS_VIDEO_INPUT                 BOOL   1 since-0.19
ATTENTION_MASK                 INT64  -1 since-0.19
IMAGE_GRID_THW                 INT64  3 since-0.19
VISION_INPUT_ID                INT32  -1 since-0.19
"""

# The last input is an addition that joins streamed pieces (serving/text/detokenization.py); upstream's clients do not send it.
POSTPROCESSING_INPUTS = """
TOKENS_BATCH                   INT32  -1,-1
SEQUENCE_LENGTH                INT32  -1
DETOKENIZATION_CONTEXT?        INT32  -1

CUM_LOG_PROBS                  FP32   -1 until-0.11
OUTPUT_LOG_PROBS               FP32   -1,-1 until-0.11
CONTEXT_LOGITS                 FP32   -1,-1 until-0.11
GENERATION_LOGITS              FP32   -1,-1,-1 until-0.11
"""

# Up to v0.11 postprocessing passes log probabilities and logits through.
POSTPROCESSING_OUTPUTS = """
OUTPUT                         STRING -1
OUT_CUM_LOG_PROBS              FP32   -1 until-0.11
OUT_OUTPUT_LOG_PROBS           FP32   -1,-1 until-0.11
OUT_CONTEXT_LOGITS             FP32   -1,-1 until-0.11
OUT_GENERATION_LOGITS          FP32   -1,-1,-1 until-0.11
"""

CORE_INPUTS = """
input_ids?                     INT32  -1 ragged
encoder_input_features?        {encoder_input_features} -1,-1 ragged since-0.19
encoder_output_lengths?        INT32  1 reshape since-0.19
input_lengths                  INT32  1 reshape
request_output_len             INT32  1 reshape
num_return_sequences?          INT32  1 reshape since-0.19
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
min_tokens?                    INT32  1 reshape since-newest
min_length?                    INT32  1 reshape until-0.19
beam_search_diversity_rate?    FP32   1 reshape
presence_penalty?              FP32   1 reshape
frequency_penalty?             FP32   1 reshape
seed?                          UINT64 1 reshape since-newest
random_seed?                   UINT64 1 reshape until-0.19
return_log_probs?              BOOL   1 reshape
return_context_logits?         BOOL   1 reshape
return_generation_logits?      BOOL   1 reshape
return_perf_metrics?           BOOL   1 reshape since-0.19
return_num_input_tokens?       BOOL   1 reshape since-newest
return_num_output_tokens?      BOOL   1 reshape since-newest
exclude_input_in_output?       BOOL   1 reshape since-0.19
stop?                          BOOL   1 reshape
streaming?                     BOOL   1 reshape
prompt_embedding_table?        {prompt_embedding_table} -1,-1 ragged
prompt_table_extra_ids?        UINT64 -1 ragged since-0.19
prompt_vocab_size?             INT32  1 reshape
cross_attention_mask?          BOOL   -1,-1 ragged since-0.19
mrope_rotary_cos_sin?          FP32   -1 since-0.19
mrope_position_deltas?         INT64  1 since-0.19
lora_task_id?                  UINT64 1 reshape
lora_weights?                  FP16   -1,-1 ragged
lora_config?                   INT32  -1,3 ragged
context_phase_params?          UINT8  -1 ragged since-0.19
skip_cross_attn_blocks?        BOOL   1 ragged since-0.19
retention_token_range_starts?  INT32  -1 ragged since-0.19
retention_token_range_ends?    INT32  -1 ragged since-0.19
retention_token_range_priorities? INT32 -1 ragged since-0.19
retention_token_range_durations_ms? INT32 -1 ragged since-0.19
retention_decode_priority?     INT32  1 ragged since-0.19
retention_decode_duration_ms?  INT32  1 ragged since-0.19
guided_decoding_guide_type?    STRING 1 ragged since-0.19
guided_decoding_guide?         STRING 1 ragged since-0.19
lookahead_window_size?         INT32  1 ragged since-0.19
lookahead_ngram_size?          INT32  1 ragged since-0.19
lookahead_verification_set_size? INT32 1 ragged since-0.19
"""

CORE_OUTPUTS = (
    """
output_ids                     INT32  -1,-1
sequence_length                INT32  -1
context_phase_params           UINT8  -1 since-0.19
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


def parse_tensors(text: str, datatypes: Datatypes = Datatypes(), release: Release | None = None) -> tuple[TensorSpec, ...]:
    """The tensors of one of this module's tables that ``release`` has.

    None: those of the newest release, and the names that its renamed inputs had up to v0.19, which our own models accept.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return tuple(_parse_line(line, datatypes) for line in lines if _has(release, line.split()[3:]))


def _has(release: Release | None, flags: Sequence[str]) -> bool:
    """Whether ``release`` has the tensor with these flags."""
    order = list(Release)
    since, until = (
        next((Release(flag.removeprefix(kind)) for flag in flags if flag.startswith(kind)), None)
        for kind in ("since-", "until-")
    )
    if release is None:
        return until is not Release.V0_11
    return order.index(since or order[0]) <= order.index(release) <= order.index(until or order[-1])


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
