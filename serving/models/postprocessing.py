"""``postprocessing``: token ids to text. Streamed pieces join to the unstreamed text; see ``serving/detokenization.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.detokenization import END_OF_SEQUENCE, decode, decode_piece, load_tokenizer
from serving.errors import RequestError
from serving.models.parameters import Parameters, error_response, required


class TritonPythonModel:
    """One instance; Triton calls ``initialize`` once and ``execute`` for each batch of requests."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        self._tokenizer = load_tokenizer(Path(parameters.text("tokenizer_dir")))
        self._skip_special_tokens = parameters.boolean("skip_special_tokens", True)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        context = pb_utils.get_input_tensor_by_name(request, "DETOKENIZATION_CONTEXT")
        try:
            tokens, lengths = required(request, "TOKENS_BATCH"), required(request, "SEQUENCE_LENGTH")
            if context is None or context.as_numpy().size == 0:
                texts = self._whole(tokens, lengths)
            else:
                texts = self._piece(tokens, lengths, context.as_numpy().reshape(-1).tolist())
        except (RequestError, OverflowError) as error:
            return error_response(str(error))
        except Exception as error:  # one odd request must not fail the others of its batch
            return error_response(f"postprocessing failed: {error}", invalid=False)
        output = np.array([text.encode("utf-8") for text in texts], dtype=np.object_).reshape(tokens.shape[0], -1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", output)])

    def _whole(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32]) -> list[str]:
        """Texts of every row and beam: tokens [batch, beam, n], lengths [batch, beam]."""
        if tokens.ndim != 3 or lengths.shape != tokens.shape[:2]:
            raise RequestError(
                "TOKENS_BATCH must have shape [batch, beam, length] and SEQUENCE_LENGTH [batch, beam], "
                f"but they have {list(tokens.shape)} and {list(lengths.shape)}"
            )
        return [
            decode(self._tokenizer, beam[: max(0, length)].tolist(), self._skip_special_tokens)
            for row, row_lengths in zip(tokens, lengths, strict=True)
            for beam, length in zip(row, row_lengths, strict=True)
        ]

    def _piece(self, tokens: NDArray[np.int32], lengths: NDArray[np.int32], context: list[int]) -> list[str]:
        mark, *before = context
        new = tokens.reshape(-1)[: int(lengths.reshape(-1)[0])].tolist()
        return [decode_piece(self._tokenizer, before, new, mark == END_OF_SEQUENCE, self._skip_special_tokens)]
