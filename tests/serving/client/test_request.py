from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client.request import (
    SCALARS,
    Ask,
    ServedModel,
    input_tensors,
    load_lora,
    load_prompt_table,
    output_names,
)
from serving.errors import RequestError
from serving.repository import tensors
from serving.repository.tensors import PERF_METRICS


def _model(name: str, inputs: str, outputs: str) -> ServedModel:
    names = [frozenset(spec.name for spec in tensors.parse_tensors(text)) for text in (inputs, outputs)]
    return ServedModel(name, True, *names, parameters={})


CORE = _model("tensorrt_llm", tensors.CORE_INPUTS, tensors.CORE_OUTPUTS)
ENSEMBLE = _model("ensemble", tensors.ENSEMBLE_INPUTS, tensors.TEXT_OUTPUTS)
BLS = _model("tensorrt_llm_bls", tensors.BLS_INPUTS, tensors.TEXT_OUTPUTS)


class WordTokenizer:
    """A token is the length of a word."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [len(word) for word in text.split()]


def test_ids_make_upstreams_core_tensors() -> None:
    ask = Ask(input_ids=((5, 6, 7),), scalars={"request_output_len": 16, "end_id": 2, "top_k": 1, "streaming": True})
    made = input_tensors(ask, CORE, None)
    assert {name: (array.dtype.name, array.tolist()) for name, array in made.items()} == {
        "input_ids": ("int32", [[5, 6, 7]]),
        "input_lengths": ("int32", [[3]]),
        "request_output_len": ("int32", [[16]]),
        "end_id": ("int32", [[2]]),
        "runtime_top_k": ("int32", [[1]]),
        "streaming": ("bool", [[True]]),
    }


def test_text_makes_the_ensembles_tensors_under_its_names() -> None:
    scalars = {"request_output_len": 9, "top_p": 0.5, "length_penalty": 2.0, "streaming": False, "seed": 2**64 - 1}
    made = input_tensors(Ask(prompts=("é",), scalars=scalars, stop_words=("a", "b")), ENSEMBLE, None)
    assert made["text_input"].tolist() == [["é".encode()]]
    assert made["max_tokens"].tolist() == [[9]]
    assert made["seed"].tolist() == [[2**64 - 1]]
    assert made["stop_words"].tolist() == [[b"a", b"b"]]
    assert {"top_p", "length_penalty", "stream"} <= set(made)


def test_text_is_tokenised_for_the_core_model_and_rows_are_padded() -> None:
    ask = Ask(prompts=("one three", "two"), scalars={"pad_id": 9}, stop_words=("stop it", "now"))
    made = input_tensors(ask, CORE, WordTokenizer())
    assert made["input_ids"].tolist() == [[3, 5], [3, 9]]
    assert made["input_lengths"].tolist() == [[2], [1]]
    assert made["stop_words_list"].tolist() == [[[4, 2, 3], [2, 3, -1]]] * 2
    assert made["pad_id"].tolist() == [[9], [9]]


@given(
    rows=st.integers(1, 5), options=st.sets(st.sampled_from(sorted(set(SCALARS) - {"num_draft_tokens", "use_draft_logits"})))
)
def test_every_tensor_has_a_row_for_each_prompt(rows: int, options: set[str]) -> None:
    ask = Ask(
        prompts=("a b",) * rows, scalars=dict.fromkeys(options, 1), arrays={"draft_input_ids": np.array([1, 2], np.int32)}
    )
    made = input_tensors(ask, CORE, WordTokenizer())
    assert {len(array) for array in made.values()} == {rows}
    assert len(made) == 3 + len(options)


@pytest.mark.parametrize("model", [CORE, ENSEMBLE, BLS], ids=lambda model: model.name)
def test_dtypes_are_those_of_the_models_configuration(model: ServedModel) -> None:
    text = {"tensorrt_llm": tensors.CORE_INPUTS, "ensemble": tensors.ENSEMBLE_INPUTS, "tensorrt_llm_bls": tensors.BLS_INPUTS}
    declared = {spec.name: spec.dtype for spec in tensors.parse_tensors(text[model.name])}
    kinds = {"BOOL": "bool", "INT32": "int32", "UINT64": "uint64", "FP32": "float32", "STRING": "object"}
    for option, (core, texts, dtype) in SCALARS.items():
        name = (core if model.takes_token_ids else texts)[0]
        if name in declared:
            assert kinds[declared[name]] == np.dtype(dtype).name, option


def test_older_servers_get_the_older_names() -> None:
    old = ServedModel("ensemble", True, (ENSEMBLE.inputs - {"seed", "min_tokens"}), ENSEMBLE.outputs, {})
    made = input_tensors(Ask(prompts=("x",), scalars={"seed": 3, "min_tokens": 2}), old, None)
    assert {"random_seed", "min_length"} <= set(made)


@pytest.mark.parametrize(
    ("ask", "model", "message"),
    [
        (Ask(prompts=("x",), scalars={"early_stopping": True}), ENSEMBLE, "--early_stopping: the model ensemble has no input"),
        (Ask(input_ids=((1,),), scalars={"num_draft_tokens": 3}), CORE, "--num_draft_tokens: the model tensorrt_llm has no"),
        (
            Ask(prompts=("x",), arrays={"lookahead_window_size": np.int32([1])}),
            ENSEMBLE,
            "--lookahead_config: the model ensemble",
        ),
        (Ask(prompts=("x",), arrays={"draft_input_ids": np.int32([1])}), BLS, "--draft_tokens_csv: the model tensorrt_llm_bls"),
        (Ask(input_ids=((1,),), arrays={"embedding_bias_words": np.array([b"x"], object)}), CORE, "--embedding_bias_words"),
        (Ask(input_ids=((1,),)), ENSEMBLE, "--input_tokens_csv: the model ensemble takes text"),
        (Ask(prompts=("x",)), CORE, "--tokenizer_dir is missing"),
        (Ask(input_ids=((1,),), bad_words=("x",)), CORE, "--bad_words: the model tensorrt_llm takes token ids"),
        (Ask(input_ids=((1,),), prompt_table_extra_id=4), CORE, "--prompt_table_extra_id needs --vocab_size"),
        (Ask(prompts=("x",)), ServedModel("odd", True, frozenset({"INPUT"}), frozenset(), {}), "takes neither"),
    ],
)
def test_what_a_model_cannot_be_asked_is_refused_by_the_options_name(ask: Ask, model: ServedModel, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        input_tensors(ask, model, None)


def test_outputs_named_are_those_that_the_request_switches_on() -> None:
    assert output_names(Ask(prompts=("x",)), ENSEMBLE) == ("text_output",)
    everything = {"return_log_probs": True, "return_perf_metrics": True, "num_return_sequences": 2}
    named = output_names(Ask(prompts=("x", "y"), scalars=everything), ENSEMBLE)
    assert set(named) == {"text_output", "cum_log_probs", "output_log_probs", *PERF_METRICS, "batch_index", "sequence_index"}
    assert output_names(Ask(input_ids=((1,),), scalars={"return_context_logits": True}), CORE) == (
        "output_ids",
        "sequence_length",
        "context_logits",
    )


@pytest.mark.parametrize(
    ("names", "message"), [(("nosuch",), "no such output"), (("sequence_length",), "must contain output_ids")]
)
def test_requested_outputs_must_exist_and_hold_the_answer(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        output_names(Ask(input_ids=((1,),), requested_outputs=names), CORE)


def _save(folder: Path, name: str, array: Any) -> None:
    np.save(folder / name, array)


@pytest.mark.parametrize("config_name", ["model.lora_config.npy", "model.lora_keys.npy"])
def test_an_adapter_is_read_with_or_without_its_leading_dimension(tmp_path: Path, config_name: str) -> None:
    _save(tmp_path, "model.lora_weights.npy", np.ones((1, 2, 6), np.float32))
    _save(tmp_path, config_name, np.array([[0, 1, 8], [1, 1, 8]], np.int64))
    arrays = load_lora(tmp_path)
    assert (arrays["lora_weights"].dtype, arrays["lora_weights"].shape) == (np.float16, (2, 6))
    assert (arrays["lora_config"].dtype, arrays["lora_config"].shape) == (np.int32, (2, 3))
    made = input_tensors(Ask(input_ids=((1,), (2,)), arrays=arrays), CORE, None)
    assert made["lora_weights"].shape == (2, 2, 6)


def test_a_pickled_adapter_is_refused_unread(tmp_path: Path) -> None:
    np.save(tmp_path / "model.lora_weights.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(RequestError, match=r"--lora_path: .*model.lora_weights.npy is no array of numbers"):
        load_lora(tmp_path)


def test_adapters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no file"):
        load_lora(tmp_path)
    _save(tmp_path, "model.lora_weights.npy", np.ones((2, 6)))
    _save(tmp_path, "model.lora_config.npy", np.ones((3, 3)))
    with pytest.raises(RequestError, match=r"have \[2, 6\] and \[3, 3\]"):
        load_lora(tmp_path)


def test_a_prompt_table_gives_its_tasks_row(tmp_path: Path) -> None:
    _save(tmp_path, "table.npy", np.arange(24).reshape(2, 3, 4))
    arrays = load_prompt_table(tmp_path / "table.npy", 1)
    assert arrays["prompt_embedding_table"].tolist() == np.arange(12, 24).reshape(3, 4).tolist()
    assert arrays["prompt_vocab_size"].tolist() == [3]
    with pytest.raises(RequestError, match=r"--prompt_task_id 2: .* holds 2 tasks"):
        load_prompt_table(tmp_path / "table.npy", 2)


def test_extra_ids_stand_at_the_tables_tokens() -> None:
    made = input_tensors(Ask(input_ids=((5, 100, 101),), prompt_table_extra_id=7, vocab_size=100), CORE, None)
    assert made["prompt_table_extra_ids"].tolist() == [[0, 7, 7]]
