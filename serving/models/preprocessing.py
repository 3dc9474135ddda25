"""``preprocessing``: text to token ids, and defaults for the core model's inputs. Behaviour follows upstream's model."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.errors import RequestError
from serving.models.parameters import Parameters, required, response_to_error
from serving.text.stop_words import to_word_list
from serving.text.tokenizer import load_tokenizer

_UNSUPPORTED = ("IMAGE_BYTES", "IMAGE_URL", "IMAGE_SIZES", "VIDEO_BYTES", "DECODER_QUERY", "PROMPT_TABLE_EXTRA_ID")


class TritonPythonModel:
    """One model instance; Triton calls ``initialize`` once and ``execute`` for each batch of requests."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        self._tokenizer = load_tokenizer(parameters.folder("tokenizer_dir"))
        self._add_special_tokens = parameters.boolean("add_special_tokens", True)
        eos = self._tokenizer.eos_token_id
        self._end_id = -1 if eos is None else int(eos)
        pad = self._tokenizer.pad_token_id
        self._pad_id = self._end_id if pad is None else int(pad)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            outputs = self._preprocess(request)
        except Exception as error:
            return response_to_error(error, "preprocessing failed")
        wanted = set(request.requested_output_names())
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items() if name in wanted])

    def _preprocess(self, request: Any) -> dict[str, NDArray[Any]]:
        for name in _UNSUPPORTED:
            if pb_utils.get_input_tensor_by_name(request, name) is not None:
                raise RequestError(f"{name}: the embedded pipeline serves decoder-only text models, without prompt tables")
        prompts = [self._encode(row) for row in _texts(request, "QUERY")]
        rows = len(prompts)
        pad_ids = _per_row(request, "PAD_ID", rows, self._pad_id)
        input_ids = np.repeat(pad_ids, max(len(ids) for ids in prompts), axis=1)
        for row, ids in enumerate(prompts):
            input_ids[row, : len(ids)] = ids
        return {
            "INPUT_ID": input_ids,
            "REQUEST_INPUT_LEN": np.array([[len(ids)] for ids in prompts], dtype=np.int32),
            "DECODER_INPUT_ID": pad_ids,
            "REQUEST_DECODER_INPUT_LEN": np.ones((rows, 1), dtype=np.int32),
            "BAD_WORDS_IDS": self._word_lists(request, "BAD_WORDS_DICT", rows),
            "STOP_WORDS_IDS": self._word_lists(request, "STOP_WORDS_DICT", rows),
            "EMBEDDING_BIAS": self._embedding_bias(request, rows),
            "REQUEST_OUTPUT_LEN": _per_row(request, "REQUEST_OUTPUT_LEN", rows),
            "OUT_END_ID": _per_row(request, "END_ID", rows, self._end_id),
            "OUT_PAD_ID": pad_ids,
            "OUT_PROMPT_TABLE_EXTRA_IDS": np.zeros((rows, 0), dtype=np.uint64),
        }

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=self._add_special_tokens)
        if not ids:  # an empty text may have the token that begins a sequence
            raise RequestError("the prompt is empty: text_input has no token")
        return ids

    def _word_lists(self, request: Any, name: str, rows: int) -> NDArray[np.int32]:
        words = _word_rows(request, name, rows)
        if words is None:
            return np.zeros((rows, 2, 0), dtype=np.int32)
        try:
            tables = [to_word_list(self._tokenizer, row) for row in words]
        except UnicodeDecodeError as error:
            raise RequestError(f"{name} is not valid UTF-8: {error}") from error
        width = max(table.shape[1] for table in tables)
        lists = np.zeros((rows, 2, width), dtype=np.int32)
        lists[:, 1, :] = -1
        for row, table in enumerate(tables):
            lists[row, :, : table.shape[1]] = table
        return lists

    def _embedding_bias(self, request: Any, rows: int) -> NDArray[np.float32]:
        """Bias of each token, [rows, vocabulary]: the sum over its words' weights; without words [rows, 0]."""
        words = _word_rows(request, "EMBEDDING_BIAS_WORDS", rows)
        tensor = pb_utils.get_input_tensor_by_name(request, "EMBEDDING_BIAS_WEIGHTS")
        weights = None if tensor is None else tensor.as_numpy()
        if words is None and weights is None:
            return np.zeros((rows, 0), dtype=np.float32)
        if words is None or weights is None or words.shape != weights.shape:
            raise RequestError(
                "embedding_bias_words and embedding_bias_weights must be sent together, with one weight per word"
            )
        if not np.isfinite(weights).all():
            raise RequestError(f"embedding_bias_weights must be finite numbers, not {weights[~np.isfinite(weights)][0]}")
        if not any(words.flat):
            return np.zeros((rows, 0), dtype=np.float32)
        bias = np.zeros((rows, len(self._tokenizer)), dtype=np.float32)
        try:
            for (row, column), word in np.ndenumerate(words):
                for token in self._tokenizer.encode(word.decode("utf-8"), add_special_tokens=False):
                    bias[row, token] += weights[row, column]
        except UnicodeDecodeError as error:
            raise RequestError(f"EMBEDDING_BIAS_WORDS is not valid UTF-8: {error}") from error
        return bias


def _word_rows(request: Any, name: str, rows: int) -> NDArray[Any] | None:
    """Words as bytes [rows, n], or None when they were not sent."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    words: NDArray[Any] = tensor.as_numpy()
    if words.ndim != 2 or words.shape[0] != rows:
        raise RequestError(f"{name} must have shape [{rows}, words], but its shape is {list(words.shape)}")
    return words


def _per_row(request: Any, name: str, rows: int, default: int | None = None) -> NDArray[np.int32]:
    """One value per prompt of the batch, int32 [rows, 1]."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None and default is not None:
        return np.full((rows, 1), default, dtype=np.int32)
    values = required(request, name)
    if values.size != rows:
        raise RequestError(f"{name} must hold one value per prompt, but its shape is {list(values.shape)} for {rows} prompts")
    return np.array(values, dtype=np.int32).reshape(rows, 1)


def _texts(request: Any, name: str) -> list[str]:
    values = required(request, name)
    if values.ndim != 2 or values.shape[0] < 1 or values.shape[1] != 1:
        raise RequestError(f"{name} must have shape [batch, 1], but its shape is {list(values.shape)}")
    try:
        return [value.decode("utf-8") for value in values[:, 0]]
    except UnicodeDecodeError as error:
        raise RequestError(f"the prompt is not valid UTF-8: {error}") from error
