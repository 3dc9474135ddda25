"""Text to token ids, by upstream's rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.stop_words import from_word_list
from serving.text.tokenizer import load_tokenizer

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
_OUTPUTS = [
    "INPUT_ID",
    "REQUEST_INPUT_LEN",
    "DECODER_INPUT_ID",
    "REQUEST_DECODER_INPUT_LEN",
    "BAD_WORDS_IDS",
    "STOP_WORDS_IDS",
    "EMBEDDING_BIAS",
    "REQUEST_OUTPUT_LEN",
    "OUT_END_ID",
    "OUT_PAD_ID",
    "OUT_PROMPT_TABLE_EXTRA_IDS",
]
_WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=4)


def _bytes(*rows: list[str | bytes]) -> np.ndarray[Any, Any]:
    encoded = [[word if isinstance(word, bytes) else word.encode() for word in row] for row in rows]
    return np.array(encoded, dtype=np.object_).reshape(len(rows), -1)


def _ids(text: str) -> list[int]:
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False)
    return ids


@pytest.fixture(scope="module")
def model(backend: ModuleType) -> Any:
    from serving.models.preprocessing import TritonPythonModel

    model = TritonPythonModel()
    parameters = {"tokenizer_dir": {"string_value": str(DEMO_ENGINE_DIR)}}
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    return model


@pytest.fixture(scope="module")
def ask(model: Any, backend: ModuleType) -> Any:
    def ask(*prompts: str | bytes, outputs: list[str] = _OUTPUTS, **more: Any) -> Any:
        tensors = {
            "QUERY": _bytes(*[[prompt] for prompt in prompts]),
            "REQUEST_OUTPUT_LEN": np.full((len(prompts), 1), 7, np.int32),
            **more,
        }
        [answer] = model.execute(
            [backend.Request({name: value for name, value in tensors.items() if value is not None}, outputs)]
        )
        return answer

    return ask


def test_one_prompt_and_its_defaults(ask: Any) -> None:
    tensors = ask("the sea").tensors
    ids = _TOKENIZER.encode("the sea")
    assert tensors["INPUT_ID"].tolist() == [ids]
    assert tensors["REQUEST_INPUT_LEN"].tolist() == [[len(ids)]]
    assert tensors["REQUEST_OUTPUT_LEN"].tolist() == [[7]]
    assert tensors["OUT_END_ID"].tolist() == [[_TOKENIZER.eos_token_id]]
    assert tensors["OUT_PAD_ID"].tolist() == [[_TOKENIZER.pad_token_id]]
    assert tensors["DECODER_INPUT_ID"].tolist() == [[_TOKENIZER.pad_token_id]]
    assert tensors["REQUEST_DECODER_INPUT_LEN"].tolist() == [[1]]
    assert tensors["BAD_WORDS_IDS"].shape == tensors["STOP_WORDS_IDS"].shape == (1, 2, 0)
    assert tensors["EMBEDDING_BIAS"].shape == tensors["OUT_PROMPT_TABLE_EXTRA_IDS"].shape == (1, 0)


def test_pad_id_defaults_to_end_id_and_end_id_to_none(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from serving.models import preprocessing

    for eos, pad, expected in ((2, 0, (2, 0)), (2, None, (2, 2)), (None, None, (-1, -1))):
        tokenizer = replace(load_tokenizer(DEMO_ENGINE_DIR), eos_token_id=eos, pad_token_id=pad)
        monkeypatch.setattr(preprocessing, "load_tokenizer", lambda folder, tokenizer=tokenizer: tokenizer)
        model = preprocessing.TritonPythonModel()
        model.initialize({"model_config": json.dumps({"parameters": {"tokenizer_dir": {"string_value": "anywhere"}}})})
        request = backend.Request(
            {"QUERY": _bytes(["sea"]), "REQUEST_OUTPUT_LEN": np.int32([[1]])}, ["OUT_END_ID", "OUT_PAD_ID"]
        )
        [answer] = model.execute([request])
        assert (answer.tensors["OUT_END_ID"].item(), answer.tensors["OUT_PAD_ID"].item()) == expected


def test_batch_of_prompts_is_padded_with_each_rows_pad_id(ask: Any) -> None:
    tensors = ask("the sea", "x", PAD_ID=np.int32([[5], [9]]), END_ID=np.int32([[1], [4]])).tensors
    long, short = _TOKENIZER.encode("the sea"), _TOKENIZER.encode("x")
    assert tensors["INPUT_ID"].tolist() == [long, short + [9] * (len(long) - len(short))]
    assert tensors["REQUEST_INPUT_LEN"].tolist() == [[len(long)], [len(short)]]
    assert tensors["OUT_PAD_ID"].tolist() == tensors["DECODER_INPUT_ID"].tolist() == [[5], [9]]
    assert tensors["OUT_END_ID"].tolist() == [[1], [4]]


@settings(max_examples=40)
@given(rows=st.lists(_WORDS, min_size=1, max_size=3))
def test_word_lists_of_a_batch_contain_the_words_of_each_row(ask: Any, rows: list[list[str]]) -> None:
    width = max(len(row) for row in rows)
    words = _bytes(*[row + [""] * (width - len(row)) for row in rows])
    tensors = ask(*["x"] * len(rows), STOP_WORDS_DICT=words, BAD_WORDS_DICT=words).tensors
    assert tensors["STOP_WORDS_IDS"].shape[:2] == (len(rows), 2)
    for row, table in zip(rows, tensors["STOP_WORDS_IDS"], strict=True):
        assert from_word_list(table) == tuple(tuple(_ids(word)) for word in row if word)
    assert (tensors["BAD_WORDS_IDS"] == tensors["STOP_WORDS_IDS"]).all()


def test_embedding_bias_sums_over_the_tokens_of_its_words(ask: Any) -> None:
    weights = np.float32([[0.5, 2.0, 1.0]])
    [bias] = ask("x", EMBEDDING_BIAS_WORDS=_bytes(["sea", "sea", ""]), EMBEDDING_BIAS_WEIGHTS=weights).tensors["EMBEDDING_BIAS"]
    assert bias.shape == (len(_TOKENIZER),)
    assert {token: bias[token] for token in np.flatnonzero(bias)} == dict.fromkeys(_ids("sea"), 2.5)


def test_embedding_bias_without_words_is_empty(ask: Any) -> None:
    empty = ask("x", EMBEDDING_BIAS_WORDS=_bytes([""]), EMBEDDING_BIAS_WEIGHTS=np.float32([[3.0]]))
    assert empty.tensors["EMBEDDING_BIAS"].shape == (1, 0)


def _ask_with_a_first_token(backend: ModuleType, folder: Path, prompt: str, adds_special_tokens: bool) -> Any:
    """The answer of a model whose tokenizer begins each sequence with the token 1."""
    from serving.models.preprocessing import TritonPythonModel

    tokenizer = Tokenizer.from_file(str(DEMO_ENGINE_DIR / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    model = TritonPythonModel()
    parameters = {"tokenizer_dir": str(folder), "add_special_tokens": str(adds_special_tokens).lower()}
    model.initialize({"model_config": json.dumps({"parameters": {key: {"string_value": v} for key, v in parameters.items()}})})
    [answer] = model.execute(
        [backend.Request({"QUERY": _bytes([prompt]), "REQUEST_OUTPUT_LEN": np.int32([[1]])}, ["INPUT_ID"])]
    )
    return answer


@pytest.mark.parametrize(("add", "first"), [(True, [1]), (False, [])])
def test_special_tokens_are_added_only_if_configured(backend: ModuleType, tmp_path: Path, add: bool, first: list[int]) -> None:
    answer = _ask_with_a_first_token(backend, tmp_path, "sea", add)
    assert answer.tensors["INPUT_ID"].tolist() == [[*first, *_TOKENIZER.encode("sea", add_special_tokens=False)]]


def test_an_empty_prompt_has_the_token_that_begins_a_sequence_if_there_is_one(backend: ModuleType, tmp_path: Path) -> None:
    assert _ask_with_a_first_token(backend, tmp_path, "", True).tensors["INPUT_ID"].tolist() == [[1]]
    assert "the prompt is empty" in _ask_with_a_first_token(backend, tmp_path, "", False).error.message


def test_only_requested_outputs_are_sent(ask: Any) -> None:
    assert set(ask("x", outputs=["INPUT_ID", "OUT_END_ID"]).tensors) == {"INPUT_ID", "OUT_END_ID"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"QUERY": _bytes([b"\xff"])}, "the prompt is not valid UTF-8"),
        ({"QUERY": _bytes([""])}, "the prompt is empty"),
        ({"QUERY": _bytes(["a", "b"])}, "QUERY must have shape"),
        ({"STOP_WORDS_DICT": _bytes([b"\xc3"])}, "STOP_WORDS_DICT is not valid UTF-8"),
        ({"BAD_WORDS_DICT": _bytes([b"\xc3"])}, "BAD_WORDS_DICT is not valid UTF-8"),
        ({"BAD_WORDS_DICT": _bytes(["a"], ["b"])}, "BAD_WORDS_DICT must have shape"),
        ({"EMBEDDING_BIAS_WORDS": _bytes(["a"])}, "embedding_bias_words and embedding_bias_weights"),
        ({"EMBEDDING_BIAS_WEIGHTS": np.float32([[1]])}, "embedding_bias_words and embedding_bias_weights"),
        (
            {"EMBEDDING_BIAS_WORDS": _bytes(["a"]), "EMBEDDING_BIAS_WEIGHTS": np.float32([[1, 2]])},
            "one weight per word",
        ),
        (
            {"EMBEDDING_BIAS_WORDS": _bytes(["a"]), "EMBEDDING_BIAS_WEIGHTS": np.float32([[np.nan]])},
            "embedding_bias_weights must be finite numbers, not nan",
        ),
        (
            {"EMBEDDING_BIAS_WORDS": _bytes([b"\xff"]), "EMBEDDING_BIAS_WEIGHTS": np.float32([[1]])},
            "EMBEDDING_BIAS_WORDS is not valid UTF-8",
        ),
        ({"END_ID": np.int32([[1], [2]])}, "END_ID must hold one value per prompt"),
        ({"PAD_ID": np.zeros((1, 0), np.int32)}, "PAD_ID must hold one value per prompt"),
        ({"REQUEST_OUTPUT_LEN": np.int32([[1, 2]])}, "REQUEST_OUTPUT_LEN must hold one value per prompt"),
        ({"QUERY": None}, "QUERY is missing"),
        ({"REQUEST_OUTPUT_LEN": None}, "REQUEST_OUTPUT_LEN is missing"),
        ({"IMAGE_BYTES": np.zeros((1, 1, 1, 1, 1), np.uint8)}, "IMAGE_BYTES: the embedded pipeline serves"),
        ({"IMAGE_URL": _bytes(["u"])}, "IMAGE_URL: "),
        ({"IMAGE_SIZES": np.zeros((1, 1, 2), np.int64)}, "IMAGE_SIZES: "),
        ({"VIDEO_BYTES": np.zeros((1, 1, 1, 1, 1), np.uint8)}, "VIDEO_BYTES: "),
        ({"DECODER_QUERY": _bytes(["d"])}, "DECODER_QUERY: "),
        ({"PROMPT_TABLE_EXTRA_ID": np.uint64([[1]])}, "PROMPT_TABLE_EXTRA_ID: "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_invalid_input_error_names_the_cause(ask: Any, more: dict[str, Any], message: str) -> None:
    answer = ask("x", **more)
    assert answer.error is not None
    assert message in answer.error.message
    assert answer.error.code == "invalid"


@settings(max_examples=60)
@given(prompt=st.binary(max_size=20), words=st.lists(st.binary(max_size=6), min_size=1, max_size=3))
def test_any_bytes_get_a_response_or_an_error_message(ask: Any, prompt: bytes, words: list[bytes]) -> None:
    answer = ask(prompt, STOP_WORDS_DICT=_bytes(words))
    assert answer.error is None or answer.error.code == "invalid"
