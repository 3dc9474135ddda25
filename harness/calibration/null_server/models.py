"""The null server's models, with the names and shapes of deployed ones, and the inference requests to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import model_config_pb2

from harness.calibration.null_server.stamps import TENSOR

TOKEN_ID = 1000
TEXT = " token"
_MAX_TOKENS = 1_000_000

_CORE_INPUTS = (
    ("input_ids", "TYPE_INT32"),
    ("input_lengths", "TYPE_INT32"),
    ("request_output_len", "TYPE_INT32"),
    ("streaming", "TYPE_BOOL"),
    ("end_id", "TYPE_INT32"),
    ("pad_id", "TYPE_INT32"),
    ("exclude_input_in_output", "TYPE_BOOL"),
)
_TEXT_INPUTS = (
    ("text_input", "TYPE_STRING"),
    ("max_tokens", "TYPE_INT32"),
    ("stream", "TYPE_BOOL"),
    ("end_id", "TYPE_INT32"),
    ("pad_id", "TYPE_INT32"),
    ("exclude_input_in_output", "TYPE_BOOL"),
    ("return_num_output_tokens", "TYPE_BOOL"),
)


@dataclass(frozen=True, slots=True)
class NullModel:
    """A model that answers with as many tokens as requested. ``takes_text``: text in and out, else token ids."""

    name: str
    takes_text: bool
    decoupled: bool

    @property
    def token_count_input(self) -> str:
        return "max_tokens" if self.takes_text else "request_output_len"

    @property
    def streaming_input(self) -> str:
        return "stream" if self.takes_text else "streaming"

    def config(self) -> Any:
        """Triton's ``ModelConfig`` message."""
        config = model_config_pb2.ModelConfig(name=self.name, platform="null", backend="null", max_batch_size=1)
        config.model_transaction_policy.decoupled = self.decoupled
        for name, kind in _TEXT_INPUTS if self.takes_text else _CORE_INPUTS:
            config.input.add(name=name, data_type=kind, dims=[-1])
        outputs = (
            [("text_output", "TYPE_STRING"), ("num_output_tokens", "TYPE_INT32")]
            if self.takes_text
            else [("output_ids", "TYPE_INT32"), ("sequence_length", "TYPE_INT32")]
        )
        for name, kind in [*outputs, (TENSOR, "TYPE_INT64")]:
            config.output.add(name=name, data_type=kind, dims=[-1])
        return config

    def config_json(self) -> Mapping[str, object]:
        """The same as Triton's HTTP endpoint renders it: numbers as numbers, defaults as false."""
        document = MessageToDict(self.config(), preserving_proto_field_name=True)
        for tensor in [*document["input"], *document["output"]]:
            tensor["dims"] = [int(size) for size in tensor["dims"]]
        return {**document, "model_transaction_policy": {"decoupled": self.decoupled}}


NULL_MODELS = {
    model.name: model
    for model in (
        NullModel("tensorrt_llm", takes_text=False, decoupled=True),
        NullModel("tensorrt_llm_unary", takes_text=False, decoupled=False),
        NullModel("ensemble", takes_text=True, decoupled=True),
        NullModel("ensemble_unary", takes_text=True, decoupled=False),
    )
}


class BadRequestError(Exception):
    """A request cannot be answered; the text is the reason."""


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request for ``tokens`` tokens, each in its own response (``streaming``) or all in one; the same over every protocol.

    Raises BadRequestError where ``tokens`` is out of range.
    """

    tokens: int
    streaming: bool
    id: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= _MAX_TOKENS:
            raise BadRequestError(f"from 1 to {_MAX_TOKENS} tokens can be requested, not {self.tokens}")
