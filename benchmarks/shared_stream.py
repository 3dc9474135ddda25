"""The other way to ask Triton for streams: requests that share a long-lived ModelStreamInfer stream, one on each connection.

An experiment for ``grpc_connections.py``. Triton answers the requests of a stream in any order, so each response's id has to
be read on the hot path, and each request asks for a marker on its last response, since the stream does not end with it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tritonclient.grpc import service_pb2

from bench_records.record import Outcome
from harness.clients.protocol import Connection, ConnectionUsage, ExchangeFailedError, OnResponses
from harness.clients.transport import tcp
from harness.clients.transport.http2 import Http2Protocol
from harness.clients.transport.http2_frames import DEFAULT_WINDOW, Flag, FrameType, Setting, frame, literal_headers
from harness.clients.triton.grpc import TritonGrpcClient
from workloads.elements.request import Request

_ID_TAG, _RESPONSE_TAG = 0x1A, 0x12  # of ModelInferResponse.id, and of ModelStreamInferResponse.infer_response
_PREFIX = struct.Struct(">BI")
_IS_LAST = b"triton_final_response\x12\x02\x08\x01"


def request_id(body: bytes) -> bytes:
    """The id in a ModelStreamInferResponse, read without decoding the rest; empty where there is none."""
    if not body or body[0] != _RESPONSE_TAG:
        return b""
    _, position = _varint(body, 1)
    end = len(body)
    while position < end:
        tag = body[position]
        if tag & 7 != 2:  # every field of it has this wire type
            return b""
        size, start = _varint(body, position + 1)
        position = start + size
        if tag == _ID_TAG:
            return body[start:position]
    return b""


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


@dataclass(slots=True)
class _Asked:
    """A request in flight; ``left`` responses are outstanding, negative where only a marker ends the answer."""

    on_responses: OnResponses
    ended: asyncio.Future[None]
    left: int


class _SharedStream(Http2Protocol):
    """A connection with one stream that stays open. Implements ``StreamEvents`` for it."""

    def __init__(self, arrival: tcp.Arrival) -> None:
        super().__init__(lambda protocol: None)
        self._arrival = arrival
        self.in_flight: dict[bytes, _Asked] = {}
        self._stream_id = 0
        self._stream_window = DEFAULT_WINDOW
        self._to_send = bytearray()
        self._partial = b""

    def open(self, header_block: bytes) -> None:
        self._stream_id, self._next_id = self._next_id, self._next_id + 2
        self._streams[self._stream_id] = self
        self._transport.write(frame(FrameType.HEADERS, Flag.END_HEADERS, self._stream_id, header_block))

    def send(self, message: bytes) -> None:
        self._to_send += _PREFIX.pack(0, len(message)) + message
        self._pump()

    def _pump(self) -> None:
        while (size := min(len(self._to_send), self._window, self._stream_window, self._max_frame_bytes)) > 0:
            self._transport.write(frame(FrameType.DATA, 0, self._stream_id, bytes(self._to_send[:size])))
            del self._to_send[:size]
            self._window -= size
            self._stream_window -= size

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        super()._on_window_update(flags, stream_id, payload)
        if stream_id:
            self._stream_window += int.from_bytes(payload)
        self._pump()

    def _set(self, key: int, value: int) -> None:
        if key == Setting.INITIAL_WINDOW_SIZE:
            self._stream_window += value - self._initial_window
        super()._set(key, value)

    def on_written(self, given_ns: int) -> None:
        """Nothing: when the kernel has a message is not measured."""

    @property
    def takes_messages(self) -> bool:
        return False

    def on_messages(self, times_ns: Sequence[int], messages: Sequence[bytes]) -> None:
        raise NotImplementedError  # it takes none

    def on_data(self, data: bytes, start: int, stop: int) -> None:
        if self._partial:
            data, start = self._partial + data[start:stop], 0
            stop = len(data)
        while stop - start >= 5:
            _, size = _PREFIX.unpack_from(data, start)
            end = start + 5 + size
            if end > stop:
                break
            self._on_message(data[start + 5 : end])
            start = end
        self._partial = data[start:stop]

    def _on_message(self, body: bytes) -> None:
        asked = self.in_flight.get(request_id(body))
        if asked is None:
            return
        asked.on_responses((self._arrival.ns,), (body,))
        asked.left -= 1
        if (_IS_LAST in body or not asked.left) and not asked.ended.done():
            asked.ended.set_result(None)

    def on_headers(self, headers: Mapping[str, str], ended: bool) -> None:
        if ended:
            self.on_lost(f"the server ended the stream: {dict(headers)}")

    def on_reset(self, error_code: int) -> None:
        self.on_lost(f"the server reset the stream ({error_code})")

    def on_unprocessed(self, reason: str) -> None:
        self.on_lost(reason)

    def on_violation(self, problem: str) -> None:
        self.on_lost(problem)

    def on_lost(self, reason: str) -> None:
        for asked in self.in_flight.values():
            if not asked.ended.done():
                asked.ended.set_exception(ExchangeFailedError(Outcome.STREAM_CUT, reason))


def _end_late(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_exception(ExchangeFailedError(Outcome.TIMEOUT, "too late"))


class _SharedStreams:
    """Implements ``Connection``. A request cannot be cancelled here: its caller stops reading."""

    def __init__(self, streams: list[_SharedStream], responses: int, arrival: tcp.Arrival) -> None:
        self.arrival = arrival
        self._streams = streams
        self._responses = responses

    async def prepare(self, in_flight: int, timeout_s: float) -> None:
        """Nothing: a stream carries any number of exchanges."""

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        stream = min(self._streams, key=lambda stream: len(stream.in_flight))
        id_size = payload[-1]  # where the client below puts it
        key = payload[-1 - id_size : -1]
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream.in_flight[key] = _Asked(on_responses, ended, self._responses)
        timer = asyncio.get_running_loop().call_later(timeout_s, _end_late, ended)
        try:
            stream.send(payload[: -1 - id_size])
            await ended
        finally:
            timer.cancel()
            del stream.in_flight[key]

    exchange_at_once = exchange

    def reset_usage(self) -> None: ...

    def usage(self, since_ns: int) -> ConnectionUsage:
        return ConnectionUsage(len(self._streams), len(self._streams))

    async def close(self) -> None:
        for stream in self._streams:
            stream.close()


class SharedStreamClient(TritonGrpcClient, frozen=True, tag="shared_stream"):
    """Asks a decoupled model over ``connections.at_start`` shared streams.

    A request ends with the response that Triton marks as its last, or, since the null server marks none, after ``responses``.
    """

    responses: int = -1

    def encode(self, index: int, request: Request) -> bytes:
        """The request, followed by its id and the id's length, which ``exchange`` takes off again."""
        message: Any = service_pb2.ModelInferRequest.FromString(TritonGrpcClient.encode(self, index, request))
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        key = message.id.encode()
        payload: bytes = message.SerializeToString()
        return b"".join((payload, key, bytes([len(key)])))

    async def connect(self, timeout_s: float) -> Connection:
        host, _, port = self.address.rpartition(":")
        headers = literal_headers(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", "/inference.GRPCInferenceService/ModelStreamInfer"),
                (":authority", self.address),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
            ]
        )
        streams, arrival = [], tcp.Arrival()
        for _ in range(self.connections.at_start):
            stream = await tcp.connect(partial(_SharedStream, arrival), host, int(port), arrival)
            await asyncio.wait_for(stream.ready, timeout_s)
            stream.open(headers)
            streams.append(stream)
        return _SharedStreams(streams, self.responses, arrival)
