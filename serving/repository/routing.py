"""Tensor routes of the pipeline, for the ensemble's configuration and the BLS model.

Each table maps a tensor of the sender to its name in the next model. A client's tensor that the core model declares under the
same name is not listed: it is routed there unless ``preprocessing`` produces it (``end_id``, ``pad_id``).
Source: ``ensemble/config.pbtxt`` and ``tensorrt_llm_bls`` of tensorrtllm_backend v0.19 and newer.
"""

from __future__ import annotations

from serving.repository import tensors

CLIENT_TO_PREPROCESSING = {
    "text_input": "QUERY",
    "decoder_text_input": "DECODER_QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "bad_words": "BAD_WORDS_DICT",
    "stop_words": "STOP_WORDS_DICT",
    "embedding_bias_words": "EMBEDDING_BIAS_WORDS",
    "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS",
    "end_id": "END_ID",
    "pad_id": "PAD_ID",
    "prompt_table_extra_id": "PROMPT_TABLE_EXTRA_ID",
    "image_bytes_input": "IMAGE_BYTES",  # from here on: declared by the BLS model only
    "image_url_input": "IMAGE_URL",
    "image_sizes_input": "IMAGE_SIZES",
    "video_bytes_input": "VIDEO_BYTES",
}
PREPROCESSING_TO_CORE = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "DECODER_INPUT_ID": "decoder_input_ids",
    "REQUEST_DECODER_INPUT_LEN": "decoder_input_lengths",
    "BAD_WORDS_IDS": "bad_words_list",
    "STOP_WORDS_IDS": "stop_words_list",
    "EMBEDDING_BIAS": "embedding_bias",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "OUT_END_ID": "end_id",
    "OUT_PAD_ID": "pad_id",
    "OUT_PROMPT_TABLE_EXTRA_IDS": "prompt_table_extra_ids",
}
CORE_TO_POSTPROCESSING = {
    "output_ids": "TOKENS_BATCH",
    "sequence_length": "SEQUENCE_LENGTH",
    "detokenization_context": "DETOKENIZATION_CONTEXT",
}
# Up to v0.11: each is an input of postprocessing, and with "OUT_" before its name an output.
PASSED_THROUGH = {
    "cum_log_probs": "CUM_LOG_PROBS",
    "output_log_probs": "OUTPUT_LOG_PROBS",
    "context_logits": "CONTEXT_LOGITS",
    "generation_logits": "GENERATION_LOGITS",
}
_RENAMED_FOR_CORE = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "length_penalty": "len_penalty",
    "stream": "streaming",
}
CLIENT_NAMES = {
    **{inner: name for name, inner in CLIENT_TO_PREPROCESSING.items()},
    **{inner: name for name, inner in _RENAMED_FOR_CORE.items()},
    "request_output_len": "max_tokens",
    "bad_words_list": "bad_words",
    "stop_words_list": "stop_words",
}
"""What a client of the text models sends for a tensor of an inner model that has another name there."""


def client_to_core(client_inputs: str) -> dict[str, str]:
    """Routes from a text model's inputs directly to the core model; ``client_inputs`` is a table of tensors."""
    core = {tensor.name for tensor in tensors.parse_tensors(tensors.CORE_INPUTS)} - set(PREPROCESSING_TO_CORE.values())
    names = (tensor.name for tensor in tensors.parse_tensors(client_inputs))
    routes = {name: _RENAMED_FOR_CORE.get(name, name) for name in names}
    return {name: core_name for name, core_name in routes.items() if core_name in core}
