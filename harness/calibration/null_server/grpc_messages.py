"""The null server's gRPC messages. A response is encoded once for each kind; a request adds its id, a send its stamp."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from tritonclient.grpc import service_pb2

from harness.calibration.null_server.models import TEXT, TOKEN_ID, NullModel
from harness.calibration.null_server.request import Asked, BadRequestError, check_tokens
from harness.calibration.null_server.stamps import TENSOR, TENSOR_BYTES

_MARKER = b"<here stand two stamps.>"[: TENSOR_BYTES.size]
_TAG_ID = b"\x1a"  # field 3 of ModelInferResponse
_TAG_INFER_RESPONSE = b"\x12"  # field 2 of ModelStreamInferResponse
_MOST_MESSAGE_BYTES = 65_000  # within the window that HTTP/2 gives every stream at first


def read_request(request: Any, model: NullModel) -> Asked:
    """What a ``ModelInferRequest`` asks of ``model``. Raises BadRequestError."""
    raw = {tensor.name: content for tensor, content in zip(request.inputs, request.raw_input_contents, strict=False)}
    asked = raw.get(model.asked_tokens_input, b"")
    if len(asked) != 4:
        raise BadRequestError(f"{model.name} needs the input {model.asked_tokens_input}, one INT32 as raw contents")
    (tokens,) = struct.unpack("<i", asked)
    check_tokens(tokens)
    return Asked(tokens, model.decoupled and raw.get(model.streaming_input) == b"\x01", request.id)


def response_template(model: NullModel, asked: Asked, tokens: int, received_ns: int) -> tuple[bytearray, int]:
    """One response of ``tokens`` tokens as a gRPC message behind its prefix, and where in it the sent stamp goes.

    Raises BadRequestError where it would be too long for one.
    """
    fixed, marker = _without_id(model, tokens)
    request_id = asked.id.encode()
    response = fixed + (_TAG_ID + _varint(len(request_id)) + request_id if request_id else b"")
    head = _TAG_INFER_RESPONSE + _varint(len(response)) if model.decoupled else b""
    prefix = struct.pack(">BI", 0, len(head) + len(response))
    message = bytearray(prefix + head + response)
    if len(message) > _MOST_MESSAGE_BYTES:
        raise BadRequestError(f"{tokens} tokens do not fit one response; ask for a stream, or for fewer")
    stamps = len(prefix) + len(head) + marker
    TENSOR_BYTES.pack_into(message, stamps, received_ns, 0)
    return message, stamps + TENSOR_BYTES.size // 2


@lru_cache(maxsize=1024)
def _without_id(model: NullModel, tokens: int) -> tuple[bytes, int]:
    """A ModelInferResponse, and where its stamps stand: first, so that they are in the first frame of a long one."""
    response = service_pb2.ModelInferResponse(model_name=model.name, model_version="1")
    _add(response, TENSOR, "INT64", [1, 2], _MARKER)
    if model.takes_text:
        text = (TEXT * tokens).encode()
        _add(response, "text_output", "BYTES", [1, 1], struct.pack("<I", len(text)) + text)
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
