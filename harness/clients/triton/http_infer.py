"""Triton over HTTP by the inference protocol of KServe v2: ``POST /v2/models/MODEL/infer``, one answer to a request.

github.com/kserve/open-inference-protocol. Tensors are JSON, as most HTTP clients send them; they are those of gRPC, and so are
the outputs that a request names. Triton refuses a decoupled model.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from harness.clients.protocol import NOT_JSON, MalformedResponseError, Response, read_json
from harness.clients.server_times import STAMPS
from harness.clients.transport.http1_pool import post_request
from harness.clients.triton.http import NOUN, Body, TritonHttpClient, error_of, response_of
from workloads.elements.request import Request

_ANSWERS = ("output_ids", "text_output")


class TritonHttpInferClient(TritonHttpClient, frozen=True, tag="triton_http_infer"):
    """A Client for one model of a Triton server that is not decoupled. Its answers are never streamed."""

    def encode(self, index: int, request: Request) -> bytes:
        body = {
            "id": str(index),
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": self.model.shape(tensor),
                    "data": list(tensor.values),
                }
                for tensor in self._tensors(request)
            ],
            "outputs": [{"name": name} for name in self.model.outputs_read],
        }
        path = f"/v2/models/{quote(self.model.named(request), safe='')}/infer"
        return post_request(self.origin, path, msgspec.json.encode(body), "application/json", self.headers)

    def decode(self, body: bytes) -> Response:
        answer = read_json(_decode, body, NOUN)
        if answer.error:
            return error_of(body)
        tensors = {tensor.name: tensor.data for tensor in answer.outputs or () if tensor.name in _READ}
        try:
            fields = msgspec.convert({**tensors, "id": answer.id}, Body)
        except NOT_JSON as error:
            raise MalformedResponseError(f"not {NOUN}: {error}") from error
        return response_of(fields, body, self.model)


class _Output(msgspec.Struct, gc=False):
    name: str
    data: Any = None


class _Answer(msgspec.Struct, gc=False):
    id: str | None = None
    outputs: list[_Output] | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Answer).decode
_READ = frozenset({*_ANSWERS, "sequence_length", "num_input_tokens", "num_output_tokens", "finish_reason", *STAMPS})
