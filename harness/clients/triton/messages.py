"""Parser of Triton's gRPC responses that parses repeated metadata once.

The metadata of an answer's outputs (names, types, shapes) usually repeats from response to response, and parsing it took more
than half of the time of a response. So a response is parsed with its outputs and parameters as plain bytes, which is what
they are on the wire. Outputs that were not seen before are parsed with Triton's own definitions, and cached.

``message_reader.pyx``, where that is compiled, does the same for responses with the usual fields alone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from harness.clients.protocol import MalformedResponseError, Response, is_full_message
from harness.clients.server_times import STAMPS, ServerTimes, of_stamps
from harness.clients.triton.model import TritonModel
from harness.clients.triton.model_kinds import broken_off, finish_reasons

try:
    from harness.clients.triton.message_reader import parts_of
except ImportError:  # installed without a C compiler

    def parts_of(body: bytes, streamed: bool) -> tuple[str, bytes, list[bytes], list[bytes]] | None:
        return None


_ANSWERS = frozenset({"output_ids", "text_output"})
_FINAL = "triton_final_response"
_FINAL_BYTES = _FINAL.encode()
_COUNT, _STAMP = ("INT32", "UINT32"), ("INT64", "BYTES")
_OUTPUT_TYPES = {
    "output_ids": ("INT32",),
    "sequence_length": ("INT32",),
    "text_output": ("BYTES",),
    "finish_reason": ("BYTES",),
    "num_input_tokens": _COUNT,  # of vllm_backend without a sign
    "num_output_tokens": _COUNT,
    **dict.fromkeys(STAMPS, _STAMP),  # of upstream's llmapi as texts, though its configuration has integers
}
_SIZES = {"INT32": 4, "UINT32": 4, "INT64": 8}
_INT32, _INT64, _LENGTH = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<I")
# An unstreamed answer has a shape of its own, and may have its contents in its outputs: such outputs are not cached.
_CACHED_KINDS, _MAX_CACHED_BYTES = 1024, 4096


def _shallow_messages() -> tuple[Any, Any]:
    """``ModelInferResponse`` and ``ModelStreamInferResponse`` with nested messages left as bytes."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="responses.proto", package="shallow", syntax="proto3")
    response, streamed = file.message_type.add(), file.message_type.add()
    service_pb2.ModelInferResponse.DESCRIPTOR.CopyToProto(response)
    service_pb2.ModelStreamInferResponse.DESCRIPTOR.CopyToProto(streamed)
    del response.nested_type[:]
    for part in response.field:
        if part.type == field.TYPE_MESSAGE:
            part.type = field.TYPE_BYTES
            part.ClearField("type_name")
    for part in streamed.field:
        if part.type == field.TYPE_MESSAGE:
            part.type_name = ".shallow.ModelInferResponse"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    one, many = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shallow.{each.name}")) for each in (response, streamed)
    )
    return one, many


_ShallowResponse, _ShallowStreamedResponse = _shallow_messages()


def read_response(body: bytes, model: TritonModel) -> Response:
    """Parse a response of ``model``: a ModelStreamInferResponse where it is decoupled, else a ModelInferResponse.

    Raises MalformedResponseError where it is not one, or its parts contradict each other.
    """
    try:
        parts = parts_of(body, model.decoupled)
        if parts is not None:
            request_id, outputs, contents, parameters = parts
            kind = _cached_kind(outputs) if len(outputs) <= _MAX_CACHED_BYTES else _kind(outputs)
            return _response(kind, contents, request_id, parameters, model)
        if not model.decoupled:
            return _of_message(_ShallowResponse.FromString(body), model)
        streamed = _ShallowStreamedResponse.FromString(body)
        if streamed.error_message:
            return Response(error=streamed.error_message, refused=is_full_message(streamed.error_message))
        return _of_message(streamed.infer_response, model)
    except (DecodeError, struct.error, UnicodeDecodeError) as error:
        raise MalformedResponseError(f"not a Triton response: {error}") from error


def _of_message(message: Any, model: TritonModel) -> Response:
    outputs = tuple(message.outputs[:])  # one slice is faster than item by item
    kind = _cached_kind_of_each(outputs) if sum(map(len, outputs)) <= _MAX_CACHED_BYTES else _kind_of_each(outputs)
    return _response(
        kind, message.raw_output_contents[:], message.id, message.parameters[:] if message.parameters else (), model
    )


def _response(
    kind: _Kind, contents: Sequence[bytes], request_id: str, parameters: Sequence[bytes], model: TritonModel
) -> Response:
    if not kind.has_answer and kind.names and not _ANSWERS.isdisjoint(model.outputs):
        raise MalformedResponseError(f"a response without an answer: {', '.join(kind.names)}")
    _check_sizes(kind, contents)
    ids = None if kind.ids is None else _int32s(contents[kind.ids])
    if kind.length is not None:
        length = _one_count(contents[kind.length], "sequence_length")
        ids = ids if length is None or ids is None else ids[:length]
    reasons = () if kind.reason is None else finish_reasons(_text(contents[kind.reason]))
    final = _final(parameters) if parameters else None
    if reasons and (error := broken_off(reasons)) is not None:
        return Response(error=error, request_id=request_id or None, final=final)
    return Response(
        token_ids=ids,
        text=None if kind.text is None else _text(contents[kind.text]),
        server_tokens=None if kind.count is None else _one_count(contents[kind.count], "num_output_tokens"),
        server_input_tokens=None if kind.input_count is None else _one_count(contents[kind.input_count], "num_input_tokens"),
        request_id=request_id or None,
        final=final,
        server_times=_times(kind.stamps, contents) if kind.stamps else None,
        repetition=model.repetition,
        finish_reasons=reasons,
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """The metadata shared by responses. ``sized`` are the outputs of a fixed size: position, name and size in bytes.

    The others are the positions of the outputs in use, None where there is none; ``stamps`` are those of ``STAMPS`` and whether
    they are texts, or none.
    """

    names: tuple[str, ...]
    has_answer: bool
    sized: tuple[tuple[int, str, int], ...]
    ids: int | None
    length: int | None
    text: int | None
    count: int | None
    input_count: int | None
    reason: int | None
    stamps: tuple[tuple[int, bool], ...]


def _kind_of_each(outputs: tuple[bytes, ...]) -> _Kind:
    return _kind(_ShallowResponse(outputs=outputs).SerializeToString())


def _kind(outputs: bytes) -> _Kind:
    """Parse the metadata of outputs, all of a ModelInferResponse that has nothing else.

    Raises DecodeError, and MalformedResponseError where an output is not of its type.
    """
    deep = service_pb2.ModelInferResponse.FromString(outputs)
    places: dict[str, int] = {}
    sized = []
    for position, output in enumerate(deep.outputs):
        expected = _OUTPUT_TYPES.get(output.name)
        if expected is None:
            continue
        if output.datatype not in (*expected, ""):
            raise MalformedResponseError(f"{output.name} is {output.datatype}, not {' or '.join(expected)}")
        places[output.name] = position
        item = _SIZES.get(output.datatype or expected[0])
        if item is not None and output.shape:
            sized.append((position, output.name, item * math.prod(output.shape)))
    names = tuple(output.name for output in deep.outputs)
    return _Kind(
        names,
        has_answer=not _ANSWERS.isdisjoint(names),
        sized=tuple(sized),
        ids=places.get("output_ids"),
        length=places.get("sequence_length"),
        text=places.get("text_output"),
        count=places.get("num_output_tokens"),
        input_count=places.get("num_input_tokens"),
        reason=places.get("finish_reason"),
        stamps=_stamps(places, {position for position, *_ in sized}),
    )


_cached_kind = lru_cache(_CACHED_KINDS)(_kind)
_cached_kind_of_each = lru_cache(_CACHED_KINDS)(_kind_of_each)


def _final(parameters: Sequence[bytes]) -> bool | None:
    """Whether the server marks a response as final: ``triton_final_response``, the last parameter of that name."""
    final = None
    for parameter in parameters:
        if _FINAL_BYTES in parameter and (value := _final_parameter(parameter)) is not None:
            final = value
    return final


@lru_cache(8)  # there are two
def _final_parameter(parameter: bytes) -> bool | None:
    deep = service_pb2.ModelInferResponse.FromString(_ShallowResponse(parameters=[parameter]).SerializeToString())
    return deep.parameters[_FINAL].bool_param if _FINAL in deep.parameters else None


def _check_sizes(kind: _Kind, contents: Sequence[bytes]) -> None:
    """Raise MalformedResponseError where contents are not of the outputs' sizes, which would make wrong numbers of tokens."""
    if len(contents) != len(kind.names):
        raise MalformedResponseError(f"not a Triton response: {len(kind.names)} outputs with {len(contents)} contents")
    for position, name, size in kind.sized:
        if len(contents[position]) != size:
            raise MalformedResponseError(f"{name} has {len(contents[position])} bytes, which is not the size of its shape")


def _int32s(raw: bytes) -> tuple[int, ...]:
    return _INT32.unpack(raw) if len(raw) == _INT32.size else struct.unpack(f"<{len(raw) // 4}i", raw)


def _one_count(raw: bytes, name: str) -> int | None:
    if not raw:
        return None
    if len(raw) % _INT32.size:
        raise MalformedResponseError(f"{name} has {len(raw)} bytes")
    count: int = _INT32.unpack_from(raw)[0]
    if count < 0:
        raise MalformedResponseError(f"{name} is {count}")
    return count


def _stamps(places: Mapping[str, int], sized: Collection[int]) -> tuple[tuple[int, bool], ...]:
    """The positions of all ``STAMPS``, and whether they are texts; none where one is missing."""
    if not all(name in places for name in STAMPS):
        return ()
    return tuple((places[name], places[name] not in sized) for name in STAMPS)


def _times(stamps: Sequence[tuple[int, bool]], contents: Sequence[bytes]) -> ServerTimes | None:
    """The engine's times; None where one is empty, as in a server's mark of the end, or is no number."""
    raws = [(contents[place], is_text) for place, is_text in stamps]
    if not all(raw for raw, _ in raws):
        return None
    return of_stamps(*(_text(raw, "replace") if is_text else _INT64.unpack_from(raw)[0] for raw, is_text in raws))


def _text(raw: bytes, errors: Literal["strict", "replace"] = "strict") -> str:
    if not raw:
        return ""
    (length,) = _LENGTH.unpack_from(raw)
    end = _LENGTH.size + length
    if end > len(raw):
        raise MalformedResponseError(f"a text of {length} bytes has only {len(raw) - _LENGTH.size}")
    return str(raw[_LENGTH.size : end], "utf-8", errors)
