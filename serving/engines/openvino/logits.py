"""Exact logits: a second, float32 compilation of the engine's network that returns the logits of every token.

The continuous-batching pipeline exposes no logits. This is the same IR with a KV state of its own, for the tokens of one
request. It is compiled on first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
CHUNK_TOKENS = 256  # limit of one call, so that other requests in the batch wait only briefly


class LogitsModel:
    """The network of an engine folder, from its IR."""

    def __init__(self, model: Any) -> None:
        """``model`` is an ``openvino.Model`` with inputs as optimum-intel exports them."""
        self._model = model
        self._free: list[Any] = []

    @classmethod
    def read(cls, engine_dir: Path) -> LogitsModel:
        return cls(ov.Core().read_model(engine_dir / "openvino_model.xml"))

    @cached_property
    def _compiled(self) -> Any:
        return ov.Core().compile_model(self._model, "CPU", EXACT)

    @cached_property
    def _inputs(self) -> frozenset[str]:
        return frozenset(name for node in self._model.inputs for name in node.get_names())

    def session(self) -> LogitsSession:
        """A new empty sequence; ``close`` it to make its memory available to another."""
        request = self._free.pop() if self._free else self._compiled.create_infer_request()
        request.reset_state()
        return LogitsSession(request, self._inputs, self._free)


class LogitsSession:
    """One sequence that grows."""

    def __init__(self, request: Any, inputs: frozenset[str], free: list[Any]) -> None:
        self._request = request
        self._inputs = inputs
        self._free = free
        self.tokens = 0

    def extend(self, token_ids: Sequence[int], skip: int = 0) -> NDArray[np.float32]:
        """Append tokens; returns the logits after each token except the first ``skip``, float32 [tokens - skip, vocabulary]."""
        rows = []
        for at in range(0, len(token_ids), CHUNK_TOKENS):
            chunk = self._extend(token_ids[at : at + CHUNK_TOKENS])
            rows.append(chunk[max(0, skip - at) :])
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def restart(self) -> None:
        self._request.reset_state()
        self.tokens = 0

    def close(self) -> None:
        self._request.reset_state()
        self._free.append(self._request)

    def _extend(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        count = len(token_ids)
        feed: Mapping[str, NDArray[Any]] = {
            "input_ids": np.array([token_ids], dtype=np.int64),
            "attention_mask": np.ones((1, self.tokens + count), dtype=np.int64),
            "position_ids": np.arange(self.tokens, self.tokens + count, dtype=np.int64)[np.newaxis],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        outputs = self._request.infer({name: value for name, value in feed.items() if name in self._inputs})
        self.tokens += count
        logits: NDArray[np.float32] = np.array(outputs[0][0], dtype=np.float32)
        return logits
