"""The null server's gRPC messages. A response is encoded once a kind; the request's id and the stamps are filled in."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from tritonclient.grpc import service_pb2

from harness.calibration.null_server.models import TEXT, TOKEN_ID, BadRequestError, InferenceRequest, NullModel
from harness.calibration.null_server.stamps import TENSOR, TENSOR_BYTES

_MARKER = b"<place of both stamps...>"[: TENSOR_BYTES.size]
_TAG_ID = b"\x1a"  # field 3 of ModelInferResponse
_TAG_INFER_RESPONSE = b"\x12"  # field 2 of ModelStreamInferResponse
_MAX_MESSAGE_BYTES = 65_000  # within the initial window of an HTTP/2 stream


def read_request(request: Any, model: NullModel) -> InferenceRequest:
    """The inference that a ``ModelInferRequest`` to ``model`` requests. Raises BadRequestError."""
    raw = {tensor.name: content for tensor, content in zip(request.inputs, request.raw_input_contents, strict=False)}
    count = raw.get(model.token_count_input, b"")
    if len(count) != 4:
        raise BadRequestError(f"{model.name} needs the input {model.token_count_input}, one INT32 as raw contents")
    (tokens,) = struct.unpack("<i", count)
    return InferenceRequest(tokens, model.decoupled and raw.get(model.streaming_input) == b"\x01", request.id)


def response_template(model: NullModel, request_id: str, tokens: int, received_ns: int) -> tuple[bytearray, int]:
    """A response of ``tokens`` tokens as a gRPC message with its prefix, and the position of its sent stamp.

    Raises BadRequestError where the message would be too long.
    """
    fixed, marker = _without_id(model, tokens)
    id_bytes = request_id.encode()
    response = fixed + (_TAG_ID + _varint(len(id_bytes)) + id_bytes if id_bytes else b"")
    head = _TAG_INFER_RESPONSE + _varint(len(response)) if model.decoupled else b""
    prefix = struct.pack(">BI", 0, len(head) + len(response))
    message = bytearray(prefix + head + response)
    if len(message) > _MAX_MESSAGE_BYTES:
        raise BadRequestError(f"{tokens} tokens do not fit one response; request a stream, or fewer tokens")
    stamps = len(prefix) + len(head) + marker
    TENSOR_BYTES.pack_into(message, stamps, received_ns, 0)
    return message, stamps + TENSOR_BYTES.size // 2


@lru_cache(maxsize=1024)
def _without_id(model: NullModel, tokens: int) -> tuple[bytes, int]:
    """A ModelInferResponse and the position of its stamps, which are first, so that they are in the first frame."""
    response = service_pb2.ModelInferResponse(model_name=model.name, model_version="1")
    _add(response, TENSOR, "INT64", [1, 2], _MARKER)
    if model.takes_text:
        text = (TEXT * tokens).encode()
        _add(response, "text_output", "BYTES", [1], struct.pack("<I", len(text)) + text)
        _add(response, "num_output_tokens", "INT32", [1, 1], struct.pack("<i", tokens))
    else:
        _add(response, "output_ids", "INT32", [1, 1, tokens], struct.pack("<i", TOKEN_ID) * tokens)
        _add(response, "sequence_length", "INT32", [1, 1], struct.pack("<i", tokens))
    raw: bytes = response.SerializeToString()
    return raw, raw.index(_MARKER)


def _add(response: Any, name: str, datatype: str, shape: list[int], raw: bytes) -> None:
    response.outputs.add(name=name, datatype=datatype, shape=shape)
    response.raw_output_contents.append(raw)


def _varint(value: int) -> bytes:
    encoded = b""
    while value >= 128:
        encoded, value = encoded + bytes([value % 128 + 128]), value // 128
    return encoded + bytes([value])
