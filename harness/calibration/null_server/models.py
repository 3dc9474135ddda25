"""The null server's models: named and shaped as the deployed ones, so that every client knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from tritonclient.grpc import model_config_pb2

from harness.calibration.null_server.stamps import TENSOR

TOKEN_ID = 1000
TEXT = " token"

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
    """A model that answers with as many tokens as it is asked for. ``takes_text``: text in and out, else token ids."""

    name: str
    takes_text: bool
    decoupled: bool

    @property
    def asked_tokens_input(self) -> str:
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

    def config_json(self) -> dict[str, Any]:
        """The same as Triton's HTTP endpoint shows it: numbers as numbers, what is off as false."""
        document: dict[str, Any] = MessageToDict(self.config(), preserving_proto_field_name=True)
        for tensor in [*document["input"], *document["output"]]:
            tensor["dims"] = [int(size) for size in tensor["dims"]]
        return document | {"model_transaction_policy": {"decoupled": self.decoupled}}


NULL_MODELS = {
    model.name: model
    for model in (
        NullModel("tensorrt_llm", takes_text=False, decoupled=True),
        NullModel("tensorrt_llm_unary", takes_text=False, decoupled=False),
        NullModel("ensemble", takes_text=True, decoupled=True),
        NullModel("ensemble_unary", takes_text=True, decoupled=False),
    )
}
