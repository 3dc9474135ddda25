"""The requests of ``bench generate``: prompts, token ids and tensors from arguments and files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from bench_cli.generate.options import AdapterOptions, GenerateOptions, GenerationOptions
    from harness.clients.triton.model import TritonModel
    from serving.client.request import Array, GenerationRequest, Scalar

_TEXT_OUTPUT_LEN, _CORE_OUTPUT_LEN = 100, 16  # upstream's defaults of --request_output_len
_LOOKAHEAD_INPUTS = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")


def make_requests(options: GenerateOptions, model: TritonModel, tokenizer: Any | None) -> list[GenerationRequest]:
    """One request per prompt, or one for all with --batch_inputs."""
    from serving.client.request import GenerationRequest

    prompt, generation = options.prompt, options.generation
    ids_file = prompt.input_tokens_csv
    request = GenerationRequest(
        prompts=() if prompt.prompt is None else parse_prompts(prompt.prompt),
        input_ids=() if ids_file is None else (read_token_ids("--input_tokens_csv", ids_file),),
        scalars=_scalars(options.scalars, model, tokenizer),
        stop_words=generation.stop_words,
        bad_words=generation.bad_words,
        arrays={
            **_generation_arrays(generation),
            **_draft_arrays(prompt.draft_tokens_csv),
            **_adapter_arrays(options.adapters),
        },
        requested_outputs=options.answer.requested_outputs,
        request_id=options.ending.request_id,
        prompt_table_extra_id=options.adapters.prompt_table_extra_id,
        vocab_size=options.adapters.vocab_size,
    )
    if prompt.batch_inputs or request.input_ids:
        return [request]
    return [replace(request, prompts=(text,)) for text in request.prompts]


def parse_prompts(text: str) -> tuple[str, ...]:
    """The texts of a JSON list, otherwise the text itself. Raises UsageError for a list that is empty or has other entries."""
    if not text.lstrip().startswith("["):
        return (text,)
    try:
        prompts = json.loads(text)
    except ValueError:
        return (text,)  # a text that starts with a bracket
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise click.UsageError("--prompt: a JSON list must contain texts, and at least one")
    return tuple(prompts)


def read_token_ids(option: str, path: Path) -> tuple[int, ...]:
    """The token ids in the first line of a CSV file. Raises UsageError."""
    try:
        line = path.read_text(encoding="utf-8").partition("\n")[0]
        ids = tuple(int(cell) for cell in line.split(",") if cell.strip())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option}: {path}: {error}") from error
    if not ids or not all(-(2**31) <= token < 2**31 for token in ids):
        raise click.UsageError(f"{option}: the first line of {path} must contain token ids, separated by commas")
    return ids


def _scalars(given: dict[str, Scalar], model: TritonModel, tokenizer: Any | None) -> dict[str, Scalar]:
    """The given scalars, with the default output length and, for the core model, the tokenizer's end and padding tokens."""
    scalars = dict(given)
    scalars.setdefault("request_output_len", _CORE_OUTPUT_LEN if model.takes_token_ids else _TEXT_OUTPUT_LEN)
    if scalars.get("lora_task_id") == 0:  # upstream's value for none
        del scalars["lora_task_id"]
    if model.takes_token_ids and tokenizer is not None:
        end_id, pad_id = tokenizer.eos_token_id, tokenizer.pad_token_id
        for name, token_id in (("end_id", end_id), ("pad_id", end_id if pad_id is None else pad_id)):
            if token_id is not None:
                scalars.setdefault(name, token_id)
    return scalars


def _generation_arrays(generation: GenerationOptions) -> dict[str, Array]:
    import numpy as np

    arrays: dict[str, Array] = {}
    if generation.embedding_bias_words:
        words = [word.encode() for word in generation.embedding_bias_words]
        arrays["embedding_bias_words"] = np.array(words, dtype=np.object_)
        arrays["embedding_bias_weights"] = np.array(generation.embedding_bias_weights, dtype=np.float32)
    for name, size in zip(_LOOKAHEAD_INPUTS, generation.lookahead_sizes(), strict=False):
        arrays[name] = np.array([size], dtype=np.int32)
    return arrays


def _draft_arrays(draft_tokens_csv: Path | None) -> dict[str, Array]:
    import numpy as np

    if draft_tokens_csv is None:
        return {}
    return {"draft_input_ids": np.array(read_token_ids("--draft_tokens_csv", draft_tokens_csv), dtype=np.int32)}


def _adapter_arrays(adapters: AdapterOptions) -> dict[str, Array]:
    from serving.client.request import load_lora, load_prompt_table

    arrays: dict[str, Array] = {}
    if adapters.lora_path is not None:
        arrays.update(load_lora(adapters.lora_path))
    if adapters.prompt_embedding_table_path is not None:
        arrays.update(load_prompt_table(adapters.prompt_embedding_table_path, adapters.prompt_task_id))
    return arrays
