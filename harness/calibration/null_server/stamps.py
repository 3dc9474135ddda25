"""The null server's stamps in a response: when its request was received, and when it was itself handed to the socket.

Both are ns of ``harness.host.clock.now_ns``, the clock of the client on the same machine. Over gRPC they are the output tensor
``received_and_sent_ns`` (INT64, shape [1, 2]); in a server-sent event they are two fields of its JSON object.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

TENSOR = "received_and_sent_ns"
TENSOR_BYTES = struct.Struct("<qq")
_JSON = re.compile(rb'"received_ns": *(\d+), *"sent_ns": *(\d+)')


@dataclass(frozen=True, slots=True)
class Stamps:
    """The stamps of one response."""

    received_ns: int
    sent_ns: int


def stamps_of_event(body: bytes) -> Stamps | None:
    """The stamps in the JSON of one server-sent event, or None where there are none."""
    match = _JSON.search(body)
    return None if match is None else Stamps(int(match[1]), int(match[2]))


def stamps_of_message(body: bytes) -> Stamps | None:
    """The stamps in one message of gRPC, streamed or not, or None where there are none."""
    for outer in (service_pb2.ModelStreamInferResponse, service_pb2.ModelInferResponse):
        try:
            message = outer.FromString(body)
        except DecodeError:
            continue
        response = getattr(message, "infer_response", message)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
            if output.name == TENSOR and len(raw) == TENSOR_BYTES.size:
                return Stamps(*TENSOR_BYTES.unpack(raw))
    return None
