"""Token ids to text: batches, beams, pieces. See test_streaming.py for complete streams."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.detokenization import END_OF_SEQUENCE, MORE_FOLLOWS
from serving.text.tokenizer import load_tokenizer

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)


def _ids(text: str) -> list[int]:
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def _padded(rows: list[list[str]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Tokens [row, beam, n] and lengths of texts."""
    encoded = [[_ids(text) for text in beams] for beams in rows]
    lengths = np.array([[len(beam) for beam in beams] for beams in encoded], np.int32)
    tokens = np.zeros((*lengths.shape, lengths.max()), np.int32)
    for row, beams in enumerate(encoded):
        for beam, ids in enumerate(beams):
            tokens[row, beam, : len(ids)] = ids
    return tokens, lengths


@pytest.fixture
def decode(backend: ModuleType) -> Any:
    from serving.models.postprocessing import TritonPythonModel

    def decode(tokens: Any, lengths: Any, context: Any = None, skip: bool = True) -> Any:
        model = TritonPythonModel()
        parameters = {"tokenizer_dir": str(DEMO_ENGINE_DIR), "skip_special_tokens": str(skip)}
        model.initialize(
            {"model_config": json.dumps({"parameters": {key: {"string_value": v} for key, v in parameters.items()}})}
        )
        tensors = {"TOKENS_BATCH": np.asarray(tokens, np.int32), "SEQUENCE_LENGTH": np.asarray(lengths, np.int32)}
        if context is not None:
            tensors["DETOKENIZATION_CONTEXT"] = np.asarray(context, np.int32)
        [answer] = model.execute([backend.Request(tensors)])
        return answer

    return decode


_ROWS = [["the sea", "a queen and a king"], ["海 😀", ""], ["x", "two words"]]


@pytest.mark.parametrize("context", [None, [[END_OF_SEQUENCE]] * 3, np.zeros((3, 0))], ids=["none", "whole", "empty"])
def test_every_beam_of_every_row_is_decoded(decode: Any, context: Any) -> None:
    output = decode(*_padded(_ROWS), context).tensors["OUTPUT"]
    assert output.shape == (6,)  # no batch dimension, as upstream's
    assert [text.decode() for text in output] == [text for beams in _ROWS for text in beams]


def test_each_row_of_pieces_has_its_context(decode: Any) -> None:
    [first, second] = [_ids("€")[:1], _ids("sea")[:1]]
    tokens, context = [[_ids("€")[1:2]], [_ids(" a")[:1]]], [[MORE_FOLLOWS, *first], [MORE_FOLLOWS, *second]]
    output = decode(tokens, [[1], [1]], context).tensors["OUTPUT"]
    assert output[0].decode() == ""  # two of three bytes
    assert output[1].decode() == " a"


def test_special_tokens_are_kept_if_configured(decode: Any) -> None:
    ids = [[[*_ids("sea"), _TOKENIZER.eos_token_id]]]
    lengths = [[len(ids[0][0])]]
    assert decode(ids, lengths).tensors["OUTPUT"].item() == b"sea"
    assert decode(ids, lengths, skip=False).tensors["OUTPUT"].item() == b"sea</s>"


@pytest.mark.parametrize(
    ("tokens", "lengths", "context", "message"),
    [
        ([[5]], [[1]], None, "TOKENS_BATCH must have shape"),
        ([[[5]]], [1], None, "SEQUENCE_LENGTH [batch, beam]"),
        ([[[5]]], [[2]], None, "SEQUENCE_LENGTH holds 2, but TOKENS_BATCH has room for 1"),
        ([[[5]]], [[-1]], None, "SEQUENCE_LENGTH holds -1"),
        ([[[-5]]], [[1]], None, "TOKENS_BATCH holds -5, which is not a token id"),
        ([[[5]]], [[1]], [[7, 5]], "DETOKENIZATION_CONTEXT must be a mark"),
        ([[[5]]], [[1]], [[MORE_FOLLOWS, -9]], "DETOKENIZATION_CONTEXT must be a mark"),
        ([[[5], [6]]], [[1, 1]], [[MORE_FOLLOWS, 5]], "belongs to one beam"),
    ],
)
def test_invalid_input_error_names_the_cause(decode: Any, tokens: Any, lengths: Any, context: Any, message: str) -> None:
    answer = decode(tokens, lengths, context)
    assert answer.error is not None
    assert message in answer.error.message
    assert answer.error.code == "invalid"
