"""``postprocessing``: token ids to text. Streamed pieces join to the unstreamed text (``serving/text/detokenization.py``).

``OUTPUT`` is bytes [rows · beams], without a batch dimension, as upstream's ``postprocessing/1/model.py`` sends it: its clients
read ``output[0].decode()``. Up to release 0.11 log probabilities and logits pass through.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.errors import RequestError
from serving.models.parameters import Parameters, required, response_to_error
from serving.repository.routing import PASSED_THROUGH
from serving.text.detokenization import END_OF_SEQUENCE, MORE_FOLLOWS, decode_piece
from serving.text.tokenizer import load_tokenizer


class TritonPythonModel:
    """One model instance; Triton calls ``initialize`` once and ``execute`` for each batch of requests."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        declared = {tensor["name"] for tensor in json.loads(args["model_config"]).get("input", [])}
        self._passed_through = tuple(name for name in PASSED_THROUGH.values() if name in declared)
        self._tokenizer = load_tokenizer(parameters.folder("tokenizer_dir"))
        self._skip_special_tokens = parameters.boolean("skip_special_tokens", True)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        try:
            texts = self._texts(request)
        except Exception as error:
            return response_to_error(error, "postprocessing failed")
        output = np.array([text.encode("utf-8") for beams in texts for text in beams], dtype=np.object_)
        passed = [(name, pb_utils.get_input_tensor_by_name(request, name)) for name in self._passed_through]
        outputs = [pb_utils.Tensor(f"OUT_{name}", tensor.as_numpy()) for name, tensor in passed if tensor is not None]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", output), *outputs])

    def _texts(self, request: Any) -> list[list[str]]:
        """Text of every beam of every row."""
        tokens, lengths = required(request, "TOKENS_BATCH"), required(request, "SEQUENCE_LENGTH")
        _check(tokens, lengths)
        tensor = pb_utils.get_input_tensor_by_name(request, "DETOKENIZATION_CONTEXT")
        if tensor is None or tensor.as_numpy().size == 0:
            contexts = np.full((tokens.shape[0], 1), END_OF_SEQUENCE)
        else:
            contexts = tensor.as_numpy().reshape(tokens.shape[0], -1)
        return [
            self._beams(row_tokens, row_lengths, context.tolist())
            for row_tokens, row_lengths, context in zip(tokens, lengths, contexts, strict=True)
        ]

    def _beams(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32], context: list[int]) -> list[str]:
        """Texts of one row's beams; tokens [beam, n], lengths [beam], context: a mark and the tokens before the piece."""
        mark, *before = context
        if mark not in (END_OF_SEQUENCE, MORE_FOLLOWS) or any(token < 0 for token in before):
            raise RequestError("DETOKENIZATION_CONTEXT must be a mark (-1 or -2) and the token ids before the piece")
        if before and len(tokens) > 1:
            raise RequestError(f"DETOKENIZATION_CONTEXT belongs to one beam, and TOKENS_BATCH holds {len(tokens)}")
        return [
            decode_piece(self._tokenizer, before, beam[:length].tolist(), mark == END_OF_SEQUENCE, self._skip_special_tokens)
            for beam, length in zip(tokens, lengths.tolist(), strict=True)
        ]


def _check(tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> None:
    if tokens.ndim != 3 or lengths.shape != tokens.shape[:2] or tokens.shape[0] == 0:
        raise RequestError(
            "TOKENS_BATCH must have shape [batch, beam, length] and SEQUENCE_LENGTH [batch, beam], "
            f"but they have {list(tokens.shape)} and {list(lengths.shape)}"
        )
    if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= tokens.shape[2]:
        wrong = lengths[(lengths < 0) | (lengths > tokens.shape[2])][0]
        raise RequestError(f"SEQUENCE_LENGTH holds {wrong}, but TOKENS_BATCH has room for {tokens.shape[2]} tokens")
    shown = np.arange(tokens.shape[2]) < lengths[..., np.newaxis]
    if (tokens[shown] < 0).any():
        raise RequestError(f"TOKENS_BATCH holds {int(tokens[shown].min())}, which is not a token id")
