"""Responses that are cut into parts by the compiled reader: the same as those that protocol buffers' own parser reads."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.triton import messages
from harness.clients.triton.model import TritonModel

message_reader = pytest.importorskip("harness.clients.triton.message_reader")

_OUTPUTS = frozenset({"output_ids", "text_output", "num_output_tokens"})


def _read(body: bytes, decoupled: bool) -> Response | str:
    try:
        return messages.read_response(body, TritonModel("m", decoupled, frozenset(), _OUTPUTS, ()))
    except MalformedResponseError as error:
        return str(error)


def _specified(body: bytes, decoupled: bool) -> Response | str:
    with patch.object(messages, "parts_of", lambda body, streamed: None):
        return _read(body, decoupled)


def _varint(value: int, extra_bytes: int = 0) -> bytes:
    """A varint, longer than necessary by ``extra_bytes``."""
    groups = []
    while value >= 128:
        groups.append(value % 128)
        value //= 128
    groups += [value, *[0] * extra_bytes]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def _field(number: int, content: bytes, extra_bytes: int = 0) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content), extra_bytes) + content


def _output(name: str, datatype: str, *shape: int) -> bytes:
    return _field(
        5, service_pb2.ModelInferResponse.InferOutputTensor(name=name, datatype=datatype, shape=shape).SerializeToString()
    )


def _parameter(name: str, value: bool) -> bytes:
    message = service_pb2.ModelInferResponse()
    message.parameters[name].bool_param = value
    return bytes(message.SerializeToString())


_TEXT = struct.pack("<I", 2) + b"Hi"
_HEAD = _field(1, b"ensemble") + _field(2, b"1")
_USUAL = _HEAD + _field(3, b"17") + _output("text_output", "BYTES", 1) + _output("num_output_tokens", "INT32", 1, 1)
_USUAL += _field(6, _TEXT) + _field(6, struct.pack("<i", 1))

_field_of_a_response = st.one_of(
    st.builds(_field, st.sampled_from([1, 2, 3]), st.sampled_from([b"", b"17", "Grüße".encode(), b"\xff", b"x" * 200])),
    st.builds(_parameter, st.sampled_from(["triton_final_response", "other"]), st.booleans()),
    st.builds(
        _output, st.sampled_from(["output_ids", "text_output", "num_output_tokens"]), st.sampled_from(["INT32", "BYTES"])
    ),
    st.builds(_field, st.just(6), st.sampled_from([b"", _TEXT, struct.pack("<i", 3), bytes(8), bytes(300)])),
    st.builds(_field, st.integers(1, 15), st.binary(max_size=20), st.integers(0, 5)),
    st.binary(max_size=6),
)
_response = st.one_of(st.just(_USUAL), st.lists(_field_of_a_response, max_size=8).map(b"".join))
_body = st.one_of(
    _response,
    _response.map(lambda response: _field(2, response)),
    st.builds(lambda first, second: _field(2, first) + _field(2, second), _response, _response),
    st.builds(
        lambda error, response: _field(1, error) + _field(2, response), st.sampled_from([b"", b"no", b"\xff"]), _response
    ),
    st.builds(lambda response, extra: _field(2, response, extra), _response, st.integers(0, 9)),
)


@given(_body, st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), max_size=2), st.integers(0, 5000), st.booleans())
@example(_field(2, _USUAL), [], 0, True)
@example(_USUAL, [], 0, False)
@example(b"\x12\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", [], 0, True)  # a varint of eleven bytes
@example(b"\x12\x7f\x0a", [], 0, True)
@example(b"\x0a\x80", [], 0, False)  # a varint that is cut
@settings(max_examples=10 * settings().max_examples)
def test_what_is_cut_is_what_is_specified(body: bytes, flips: list[tuple[int, int]], cut: int, decoupled: bool) -> None:
    changed = bytearray(body)
    for place, flip in flips:
        if changed:
            changed[place % len(changed)] ^= flip
    for each in (bytes(changed), bytes(changed[: cut % (len(changed) + 1)])):
        assert _read(each, decoupled) == _specified(each, decoupled)


@pytest.mark.parametrize("number", range(len(_USUAL)))
def test_a_response_that_is_cut_anywhere_is_what_is_specified(number: int) -> None:
    for body, decoupled in ((_USUAL[:number], False), (_field(2, _USUAL)[:number], True), (_field(2, _USUAL[:number]), True)):
        assert _read(body, decoupled) == _specified(body, decoupled)


def test_the_usual_response_is_cut_and_the_unusual_is_left() -> None:
    outputs = _output("text_output", "BYTES", 1) + _output("num_output_tokens", "INT32", 1, 1)
    parts = ("17", outputs, [_TEXT, struct.pack("<i", 1)], [])
    assert message_reader.parts_of(_USUAL, False) == message_reader.parts_of(_field(2, _USUAL), True) == parts
    assert message_reader.parts_of(_field(1, b"an error"), True) is None
    assert message_reader.parts_of(_USUAL + _field(7, b"unknown"), False) is None
    assert message_reader.parts_of(_USUAL + outputs, False) is None
    assert message_reader.parts_of(_field(3, "Grüße".encode()), False) is None
    assert _read(_USUAL, False) == Response(text="Hi", server_tokens=1, request_id="17")
