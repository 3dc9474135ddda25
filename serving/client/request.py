"""A one-shot generation request, and its input tensors for the core model, the ensemble or BLS.

The options are those of upstream's ``inflight_batcher_llm_client.py`` and ``end_to_end_grpc_client.py``. An option for which
the model has no input is an error, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.errors import RequestError
from serving.repository.tensors import OUTPUTS_BY_SWITCH
from serving.text.stop_words import to_word_list

Array = NDArray[Any]
Scalar = int | float | bool | str


@dataclass(frozen=True)
class ModelInterface:
    """The names of a deployed model's tensors."""

    name: str
    inputs: frozenset[str]
    outputs: frozenset[str]

    @property
    def takes_token_ids(self) -> bool:
        """The core model takes token ids; the ensemble and BLS take text."""
        return "input_ids" in self.inputs


@dataclass(frozen=True)
class GenerationRequest:
    """One request, of one row or several.

    Either ``prompts`` or ``input_ids`` has an entry per row. ``scalars`` is keyed by the command line's option names
    (SCALARS). ``arrays`` is keyed by the input's name, without the batch dimension; every row has the same array.
    """

    prompts: tuple[str, ...] = ()
    input_ids: tuple[tuple[int, ...], ...] = ()
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    stop_words: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)
    requested_outputs: tuple[str, ...] = ()
    request_id: str = ""
    prompt_table_extra_id: int | None = None
    vocab_size: int | None = None

    @property
    def rows(self) -> int:
        return len(self.input_ids or self.prompts)

    def scalar(self, option: str, default: Any) -> Any:
        return self.scalars.get(option, default)


# option: (inputs of the core model, inputs of the ensemble and BLS, dtype); older names follow newer ones
SCALARS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], Any]] = {
    "request_output_len": (("request_output_len",), ("max_tokens",), np.int32),
    "streaming": (("streaming",), ("stream",), np.bool_),
    "top_k": (("runtime_top_k",), ("top_k",), np.int32),
    "top_p": (("runtime_top_p",), ("top_p",), np.float32),
    "length_penalty": (("len_penalty",), ("length_penalty",), np.float32),
    "min_tokens": (("min_tokens", "min_length"), ("min_tokens", "min_length"), np.int32),
    "seed": (("seed", "random_seed"), ("seed", "random_seed"), np.uint64),
    **{
        name: ((name,), (name,), dtype)
        for dtype, names in (
            (np.int32, ("beam_width", "num_return_sequences", "end_id", "pad_id", "num_draft_tokens")),
            (np.float32, ("temperature", "repetition_penalty", "presence_penalty", "frequency_penalty")),
            (np.float32, ("beam_search_diversity_rate",)),
            (np.uint64, ("lora_task_id",)),
            (np.bool_, ("early_stopping", "exclude_input_in_output", "return_log_probs", "return_context_logits")),
            (np.bool_, ("return_generation_logits", "return_perf_metrics", "use_draft_logits")),
            (np.bool_, ("return_num_input_tokens", "return_num_output_tokens")),
            (np.object_, ("guided_decoding_guide_type", "guided_decoding_guide")),
        )
        for name in names
    },
}
_OUTPUTS_BY_OPTION: Mapping[str, tuple[str, ...]] = {
    **OUTPUTS_BY_SWITCH,
    "return_num_input_tokens": ("num_input_tokens",),
    "return_num_output_tokens": ("num_output_tokens",),
}


def input_tensors(request: GenerationRequest, model: ModelInterface, tokenizer: Any | None) -> dict[str, Array]:
    """The request's inputs by name, each [rows, …]. Raises RequestError for what the model has no input for."""
    if not model.inputs & {"input_ids", "text_input"}:
        raise RequestError(f"--model {model.name}: the model takes neither input_ids nor text_input")
    if model.takes_token_ids:
        ids = request.input_ids or encode_prompts(request.prompts, tokenizer, model)
        tensors = _core_inputs(ids, int(request.scalar("pad_id", 0)))
        tensors.update(_prompt_table_ids(request, ids))
    else:
        if request.input_ids:
            raise RequestError(f"--input_tokens_csv: the model {model.name} takes text; select the core model with --model")
        tensors = {"text_input": _strings([[prompt] for prompt in request.prompts])}
    for option, value in request.scalars.items():
        tensors[_input_name(option, model)] = _column(value, SCALARS[option][2], request.rows)
    for option, words in (("stop_words", request.stop_words), ("bad_words", request.bad_words)):
        if words:
            tensors.update(_words(option, words, model, tokenizer, request.rows))
    tensors.update({name: np.repeat(array[np.newaxis], request.rows, axis=0) for name, array in request.arrays.items()})
    for name in tensors:
        if name not in model.inputs:
            raise RequestError(f"{_option_of(name)}: the model {model.name} has no input {name}")
    return tensors


def output_names(request: GenerationRequest, model: ModelInterface) -> tuple[str, ...]:
    """The outputs to request: --requested_outputs, else the answer and the outputs that the request switches on."""
    answer = ("output_ids", "sequence_length") if model.takes_token_ids else ("text_output",)
    if request.requested_outputs:
        for name in request.requested_outputs:
            if name not in model.outputs:
                known = ", ".join(sorted(model.outputs))
                raise RequestError(f"--requested_outputs {name}: the model {model.name} has no such output; it has {known}")
        if answer[0] not in request.requested_outputs:
            raise RequestError(f"--requested_outputs must contain {answer[0]}")
        return request.requested_outputs
    names = [*answer]
    for option, outputs in _OUTPUTS_BY_OPTION.items():
        if request.scalars.get(option):
            names.extend(outputs)
    if request.rows > 1:
        names.append("batch_index")
    if int(request.scalar("num_return_sequences", 1)) > 1:
        names.append("sequence_index")
    return tuple(name for name in names if name in model.outputs)


def encode_prompts(prompts: Sequence[str], tokenizer: Any | None, model: ModelInterface) -> tuple[tuple[int, ...], ...]:
    """Token ids of each prompt. Raises RequestError without a tokenizer, and for a prompt without a token."""
    if tokenizer is None:
        raise RequestError(f"--tokenizer_dir is missing: the model {model.name} takes token ids, but the prompt is text")
    rows = tuple(tuple(tokenizer.encode(prompt)) for prompt in prompts)
    if not all(rows):
        raise RequestError("--text: the prompt has no token")
    return rows


def load_lora(folder: Path) -> dict[str, Array]:
    """``lora_weights`` (float16 [modules, size]) and ``lora_config`` (int32 [modules, 3]) from a converted adapter's folder.

    Source: the files that TensorRT-LLM's ``hf_lora_convert.py`` writes. Raises RequestError.
    """
    weights = load_array("--lora_path", folder / "model.lora_weights.npy")
    config = folder / "model.lora_config.npy"
    keys = load_array("--lora_path", config if config.exists() else folder / "model.lora_keys.npy")
    weights, keys = (array[0] if array.ndim == 3 and len(array) == 1 else array for array in (weights, keys))
    if weights.ndim != 2 or keys.ndim != 2 or keys.shape[1] != 3 or len(weights) != len(keys):
        raise RequestError(
            f"--lora_path {folder}: weights must have shape [modules, size] and the configuration [modules, 3], "
            f"but they have {list(weights.shape)} and {list(keys.shape)}"
        )
    return {"lora_weights": weights.astype(np.float16), "lora_config": keys.astype(np.int32)}


def load_prompt_table(path: Path, task_id: int) -> dict[str, Array]:
    """``prompt_embedding_table`` (float16 [tokens, hidden]) and ``prompt_vocab_size`` of one task of a p-tuning table."""
    table = load_array("--prompt_embedding_table_path", path)
    if table.ndim == 3:
        if not 0 <= task_id < len(table):
            raise RequestError(f"--prompt_task_id {task_id}: {path} contains {len(table)} tasks")
        table = table[task_id]
    if table.ndim != 2:
        raise RequestError(f"--prompt_embedding_table_path {path}: shape {list(table.shape)} is not [tasks, tokens, hidden]")
    return {"prompt_embedding_table": table.astype(np.float16), "prompt_vocab_size": np.array([len(table)], np.int32)}


def load_array(option: str, path: Path) -> Array:
    """The array of a numeric .npy file. Pickles are refused, since they can run code. Raises RequestError."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise RequestError(f"{option}: there is no file {path}") from None
    except (OSError, ValueError, EOFError) as error:
        raise RequestError(f"{option}: {path} is not a numeric array in NumPy's format: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise RequestError(f"{option}: {path} is not a numeric array in NumPy's format")
    return array


def _core_inputs(rows: Sequence[Sequence[int]], pad_id: int) -> dict[str, Array]:
    ids = np.full((len(rows), max(len(row) for row in rows)), pad_id, dtype=np.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    return {"input_ids": ids, "input_lengths": np.array([[len(row)] for row in rows], dtype=np.int32)}


def _prompt_table_ids(request: GenerationRequest, rows: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Extra ids distinguish prompt tables where the KV cache is reused: one at each virtual token, 0 elsewhere."""
    if request.prompt_table_extra_id is None:
        return {}
    if request.vocab_size is None:
        raise RequestError("--prompt_table_extra_id needs --vocab_size: ids from this size on are the table's")
    ids = _core_inputs(rows, 0)["input_ids"]
    return {"prompt_table_extra_ids": np.where(ids >= request.vocab_size, request.prompt_table_extra_id, 0).astype(np.uint64)}


def _words(option: str, words: Sequence[str], model: ModelInterface, tokenizer: Any | None, rows: int) -> dict[str, Array]:
    if not model.takes_token_ids:
        return {option: _strings([list(words)] * rows)}
    if tokenizer is None:
        raise RequestError(f"--{option}: the model {model.name} takes token ids; give its tokenizer with --tokenizer_dir")
    table = to_word_list(tokenizer, [word.encode() for word in words])
    return {f"{option}_list": np.repeat(table[np.newaxis], rows, axis=0)}


def _input_name(option: str, model: ModelInterface) -> str:
    core, text, _ = SCALARS[option]
    names = core if model.takes_token_ids else text
    return next((name for name in names if name in model.inputs), names[0])


def _option_of(name: str) -> str:
    """The option that sets an input, for error messages."""
    for option, (core, text, _) in SCALARS.items():
        if name in (*core, *text):
            return f"--{option}"
    prefixes = {"lora_": "--lora_path", "lookahead_": "--lookahead_config", "draft_": "--draft_tokens_csv"}
    prefixes |= {"prompt_table": "--prompt_table_extra_id", "prompt_": "--prompt_embedding_table_path"}
    by_prefix = next((option for prefix, option in prefixes.items() if name.startswith(prefix)), None)
    return by_prefix or f"--{name.removesuffix('_list')}"


def _column(value: Scalar, dtype: Any, rows: int) -> Array:
    if dtype is np.object_:
        return _strings([[str(value)]] * rows)
    return np.full((rows, 1), value, dtype=dtype)


def _strings(rows: Sequence[Sequence[str]]) -> Array:
    return np.array([[text.encode("utf-8", "surrogateescape") for text in row] for row in rows], dtype=np.object_)
