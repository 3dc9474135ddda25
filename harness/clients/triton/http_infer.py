"""Triton over HTTP by the inference protocol of KServe v2: ``POST /v2/models/MODEL/infer``, one answer to a request.

github.com/kserve/open-inference-protocol. Tensors are JSON, as most HTTP clients send them; they are those of gRPC, and so are
the outputs that a request names. Triton refuses a decoupled model.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from harness.clients.protocol import NOT_JSON, MalformedResponseError, Response, is_full_message
from harness.clients.server_times import STAMPS
from harness.clients.transport.http1_pool import post_request
from harness.clients.triton.http import Body, TritonHttpClient, response_of
from harness.clients.triton.model import LORA_INPUT
from workloads.elements.request import Request

_Tensor = tuple[str, list[int] | list[bool] | list[str]]
_ANSWERS = ("output_ids", "text_output")


class TritonHttpInferClient(TritonHttpClient, frozen=True, tag="triton_http_infer"):
    """A Client for one model of a Triton server that is not decoupled. Its answers are never streamed."""

    def encode(self, index: int, request: Request) -> bytes:
        tensors = self._core_tensors(request) if self.model.takes_token_ids else self._text_tensors(request)
        ends = self.model.end_and_pad(request.ignore_eos, self.end_id, self.pad_id)
        tensors |= {name: ("INT32", [value]) for name, value in ends.items()}
        if request.variant is not None and request.variant.lora_task_id is not None:
            tensors[LORA_INPUT] = ("UINT64", [request.variant.lora_task_id])
        tensors |= {name: ("BOOL", [True]) for name in self.model.flags}
        body = {
            "id": str(index),
            "inputs": [
                {"name": name, "datatype": datatype, "shape": [1, len(values)], "data": values}
                for name, (datatype, values) in tensors.items()
            ],
            "outputs": [{"name": name} for name in self.model.outputs_read],
        }
        path = f"/v2/models/{quote(self.model.named(request), safe='')}/infer"
        return post_request(self.origin, path, msgspec.json.encode(body), "application/json", self.headers)

    def _core_tensors(self, request: Request) -> dict[str, _Tensor]:
        if request.input_ids is None:
            raise ValueError("the core model takes token ids, and this request has none")
        tensors: dict[str, _Tensor] = {
            "input_ids": ("INT32", list(request.input_ids)),
            "input_lengths": ("INT32", [len(request.input_ids)]),
            "request_output_len": ("INT32", [request.output_tokens]),
        }
        return tensors | ({"streaming": ("BOOL", [False])} if "streaming" in self.model.inputs else {})

    def _text_tensors(self, request: Request) -> dict[str, _Tensor]:
        if request.prompt is None:
            raise ValueError(f"the model {self.model.name} takes text, and this request has none")
        text = request.prompt.encode("utf-8", "replace").decode()
        tensors: dict[str, _Tensor] = {"text_input": ("BYTES", [text]), "max_tokens": ("INT32", [request.output_tokens])}
        return tensors | ({"stream": ("BOOL", [False])} if "stream" in self.model.inputs else {})

    def decode(self, body: bytes) -> Response:
        try:
            answer = _decode(body)
            if answer.error is not None:
                return Response(error=answer.error, refused=is_full_message(answer.error))
            tensors = {tensor.name: tensor.data for tensor in answer.outputs or () if tensor.name in _READ}
            fields = msgspec.convert({**tensors, "id": answer.id}, Body)
        except NOT_JSON as error:
            raise MalformedResponseError(f"not a Triton response: {error}") from error
        return response_of(fields, body, asks_for_times=self.model.asks_for_times)


class _Output(msgspec.Struct, gc=False):
    name: str
    data: Any = None


class _Answer(msgspec.Struct, gc=False):
    id: str | None = None
    outputs: list[_Output] | None = None
    error: str | None = None


_decode = msgspec.json.Decoder(_Answer).decode
_READ = frozenset({*_ANSWERS, "sequence_length", "num_input_tokens", "num_output_tokens", *STAMPS})
