from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client.request import (
    SCALARS,
    GenerationRequest,
    ModelInterface,
    input_tensors,
    load_lora,
    load_prompt_table,
    output_names,
)
from serving.errors import RequestError
from serving.repository import tensors
from serving.repository.tensors import PERF_METRICS


def _model(name: str, inputs: str, outputs: str) -> ModelInterface:
    names = [frozenset(spec.name for spec in tensors.parse_tensors(text)) for text in (inputs, outputs)]
    return ModelInterface(name, *names)


CORE = _model("tensorrt_llm", tensors.CORE_INPUTS, tensors.CORE_OUTPUTS)
ENSEMBLE = _model("ensemble", tensors.ENSEMBLE_INPUTS, tensors.TEXT_OUTPUTS)
BLS = _model("tensorrt_llm_bls", tensors.BLS_INPUTS, tensors.TEXT_OUTPUTS)


class WordTokenizer:
    """One token per word: its length."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [len(word) for word in text.split()]


def test_token_ids_give_upstreams_core_tensors() -> None:
    request = GenerationRequest(
        input_ids=((5, 6, 7),), scalars={"request_output_len": 16, "end_id": 2, "top_k": 1, "streaming": True}
    )
    inputs = input_tensors(request, CORE, None)
    assert {name: (array.dtype.name, array.tolist()) for name, array in inputs.items()} == {
        "input_ids": ("int32", [[5, 6, 7]]),
        "input_lengths": ("int32", [[3]]),
        "request_output_len": ("int32", [[16]]),
        "end_id": ("int32", [[2]]),
        "runtime_top_k": ("int32", [[1]]),
        "streaming": ("bool", [[True]]),
    }


def test_text_gives_the_ensembles_tensors() -> None:
    scalars = {"request_output_len": 9, "top_p": 0.5, "length_penalty": 2.0, "streaming": False, "seed": 2**64 - 1}
    inputs = input_tensors(GenerationRequest(prompts=("é",), scalars=scalars, stop_words=("a", "b")), ENSEMBLE, None)
    assert inputs["text_input"].tolist() == [["é".encode()]]
    assert inputs["max_tokens"].tolist() == [[9]]
    assert inputs["seed"].tolist() == [[2**64 - 1]]
    assert inputs["stop_words"].tolist() == [[b"a", b"b"]]
    assert {"top_p", "length_penalty", "stream"} <= set(inputs)


def test_text_is_tokenised_for_the_core_model_and_rows_are_padded() -> None:
    request = GenerationRequest(prompts=("one three", "two"), scalars={"pad_id": 9}, stop_words=("stop it", "now"))
    inputs = input_tensors(request, CORE, WordTokenizer())
    assert inputs["input_ids"].tolist() == [[3, 5], [3, 9]]
    assert inputs["input_lengths"].tolist() == [[2], [1]]
    assert inputs["stop_words_list"].tolist() == [[[4, 2, 3], [2, 3, -1]]] * 2
    assert inputs["pad_id"].tolist() == [[9], [9]]


@given(
    rows=st.integers(1, 5), options=st.sets(st.sampled_from(sorted(set(SCALARS) - {"num_draft_tokens", "use_draft_logits"})))
)
def test_every_tensor_has_one_row_per_prompt(rows: int, options: set[str]) -> None:
    request = GenerationRequest(
        prompts=("a b",) * rows, scalars=dict.fromkeys(options, 1), arrays={"draft_input_ids": np.array([1, 2], np.int32)}
    )
    inputs = input_tensors(request, CORE, WordTokenizer())
    assert {len(array) for array in inputs.values()} == {rows}
    assert len(inputs) == 3 + len(options)


@pytest.mark.parametrize("model", [CORE, ENSEMBLE, BLS], ids=lambda model: model.name)
def test_dtypes_are_those_of_the_models_configuration(model: ModelInterface) -> None:
    text = {"tensorrt_llm": tensors.CORE_INPUTS, "ensemble": tensors.ENSEMBLE_INPUTS, "tensorrt_llm_bls": tensors.BLS_INPUTS}
    declared = {spec.name: spec.dtype for spec in tensors.parse_tensors(text[model.name])}
    kinds = {"BOOL": "bool", "INT32": "int32", "UINT64": "uint64", "FP32": "float32", "STRING": "object"}
    for option, (core, texts, dtype) in SCALARS.items():
        name = (core if model.takes_token_ids else texts)[0]
        if name in declared:
            assert kinds[declared[name]] == np.dtype(dtype).name, option


def test_older_servers_receive_the_older_names() -> None:
    old = ModelInterface("ensemble", (ENSEMBLE.inputs - {"seed", "min_tokens"}), ENSEMBLE.outputs)
    inputs = input_tensors(GenerationRequest(prompts=("x",), scalars={"seed": 3, "min_tokens": 2}), old, None)
    assert {"random_seed", "min_length"} <= set(inputs)


@pytest.mark.parametrize(
    ("generation_request", "model", "message"),
    [
        (
            GenerationRequest(prompts=("x",), scalars={"early_stopping": True}),
            ENSEMBLE,
            "--early_stopping: the model ensemble has no input",
        ),
        (
            GenerationRequest(input_ids=((1,),), scalars={"num_draft_tokens": 3}),
            CORE,
            "--num_draft_tokens: the model tensorrt_llm has no",
        ),
        (
            GenerationRequest(prompts=("x",), arrays={"lookahead_window_size": np.int32([1])}),
            ENSEMBLE,
            "--lookahead_config: the model ensemble",
        ),
        (
            GenerationRequest(prompts=("x",), arrays={"draft_input_ids": np.int32([1])}),
            BLS,
            "--draft_tokens_csv: the model tensorrt_llm_bls",
        ),
        (
            GenerationRequest(input_ids=((1,),), arrays={"embedding_bias_words": np.array([b"x"], object)}),
            CORE,
            "--embedding_bias_words",
        ),
        (GenerationRequest(input_ids=((1,),)), ENSEMBLE, "--input_tokens_csv: the model ensemble takes text"),
        (GenerationRequest(prompts=("x",)), CORE, "--tokenizer_dir is missing"),
        (GenerationRequest(input_ids=((1,),), bad_words=("x",)), CORE, "--bad_words: the model tensorrt_llm takes token ids"),
        (GenerationRequest(input_ids=((1,),), prompt_table_extra_id=4), CORE, "--prompt_table_extra_id needs --vocab_size"),
        (GenerationRequest(prompts=("x",)), ModelInterface("odd", frozenset({"INPUT"}), frozenset()), "takes neither"),
    ],
)
def test_option_without_an_input_is_refused_by_name(
    generation_request: GenerationRequest, model: ModelInterface, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        input_tensors(generation_request, model, None)


def test_outputs_are_those_that_the_request_switches_on() -> None:
    assert output_names(GenerationRequest(prompts=("x",)), ENSEMBLE) == ("text_output",)
    everything = {"return_log_probs": True, "return_perf_metrics": True, "num_return_sequences": 2}
    named = output_names(GenerationRequest(prompts=("x", "y"), scalars=everything), ENSEMBLE)
    assert set(named) == {"text_output", "cum_log_probs", "output_log_probs", *PERF_METRICS, "batch_index", "sequence_index"}
    assert output_names(GenerationRequest(input_ids=((1,),), scalars={"return_context_logits": True}), CORE) == (
        "output_ids",
        "sequence_length",
        "context_logits",
    )


@pytest.mark.parametrize(
    ("names", "message"), [(("nosuch",), "no such output"), (("sequence_length",), "must contain output_ids")]
)
def test_requested_outputs_must_exist_and_include_the_answer(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        output_names(GenerationRequest(input_ids=((1,),), requested_outputs=names), CORE)


def _save(folder: Path, name: str, array: Any) -> None:
    np.save(folder / name, array)


@pytest.mark.parametrize("config_name", ["model.lora_config.npy", "model.lora_keys.npy"])
def test_an_adapter_is_read_with_or_without_its_leading_dimension(tmp_path: Path, config_name: str) -> None:
    _save(tmp_path, "model.lora_weights.npy", np.ones((1, 2, 6), np.float32))
    _save(tmp_path, config_name, np.array([[0, 1, 8], [1, 1, 8]], np.int64))
    arrays = load_lora(tmp_path)
    assert (arrays["lora_weights"].dtype, arrays["lora_weights"].shape) == (np.float16, (2, 6))
    assert (arrays["lora_config"].dtype, arrays["lora_config"].shape) == (np.int32, (2, 3))
    inputs = input_tensors(GenerationRequest(input_ids=((1,), (2,)), arrays=arrays), CORE, None)
    assert inputs["lora_weights"].shape == (2, 2, 6)


def test_a_pickled_adapter_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "model.lora_weights.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(RequestError, match=r"--lora_path: .*model.lora_weights.npy is not a numeric array"):
        load_lora(tmp_path)


def test_adapters_with_contradicting_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        load_lora(tmp_path)
    _save(tmp_path, "model.lora_weights.npy", np.ones((2, 6)))
    _save(tmp_path, "model.lora_config.npy", np.ones((3, 3)))
    with pytest.raises(RequestError, match=r"have \[2, 6\] and \[3, 3\]"):
        load_lora(tmp_path)


def test_prompt_table_of_one_task(tmp_path: Path) -> None:
    _save(tmp_path, "table.npy", np.arange(24).reshape(2, 3, 4))
    arrays = load_prompt_table(tmp_path / "table.npy", 1)
    assert arrays["prompt_embedding_table"].tolist() == np.arange(12, 24).reshape(3, 4).tolist()
    assert arrays["prompt_vocab_size"].tolist() == [3]
    with pytest.raises(RequestError, match=r"--prompt_task_id 2: .* contains 2 tasks"):
        load_prompt_table(tmp_path / "table.npy", 2)


def test_extra_ids_are_at_the_tables_tokens() -> None:
    inputs = input_tensors(GenerationRequest(input_ids=((5, 100, 101),), prompt_table_extra_id=7, vocab_size=100), CORE, None)
    assert inputs["prompt_table_extra_ids"].tolist() == [[0, 7, 7]]
