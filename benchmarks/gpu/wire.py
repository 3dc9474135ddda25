"""Requests of Triton's gRPC protocol as the kernel stamps their packets on loopback: a witness beside the client's records.

    python -m benchmarks.gpu.wire PORT FILE

Writes every packet of ``PORT`` that has content to ``FILE``, until SIGINT. It needs CAP_NET_RAW.
"""

from __future__ import annotations

import signal
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType as StackFrame
from typing import BinaryIO

import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from bench_records.run_folder import RunFolder
from harness.clients.transport.http2_frames import FRAME_HEADER, FRAME_HEADER_BYTES, PREFACE, Flag, FrameType

_PACKET = struct.Struct("<qHHIBI")  # ns, the client's port, 1 to the server, sequence number, padding, bytes
_MESSAGE = struct.Struct(">BI")
_ETHERNET_BYTES = 14
_IPV4_PROTOCOL, _TCP, _IPV4 = 9, 6, 0x0800
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_BUFFER_BYTES = 256 << 20
_TIMESPEC = struct.Struct("@ll")


@dataclass
class Exchange:
    """Moments of a request on the wire, ns of the wall clock: the end of its message, and those of its answers."""

    sent_ns: int
    answers_ns: list[int] = field(default_factory=list)


def record(port: int, path: Path) -> None:
    """Write the packets of ``port`` on loopback until SIGINT or SIGTERM."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4)) as packets, path.open("wb", 1 << 22) as out:
        packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        packets.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        packets.bind(("lo", _IPV4))
        packets.settimeout(0.2)
        stopped: list[int] = []

        def stop(number: int, _: StackFrame | None) -> None:
            stopped.append(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        print("ready", flush=True)
        while not stopped:
            try:
                packet, ancillary, _, _ = packets.recvmsg(1 << 17, 64)
            except TimeoutError:
                continue
            if packet[_ETHERNET_BYTES + _IPV4_PROTOCOL] == _TCP:
                _write(out, packet[_ETHERNET_BYTES:], port, ancillary)


def _write(out: BinaryIO, packet: bytes, port: int, ancillary: list[tuple[int, int, bytes]]) -> None:
    tcp = (packet[0] & 15) * 4
    source, destination, sequence = struct.unpack_from(">HHI", packet, tcp)
    content = packet[tcp + (packet[tcp + 12] >> 4) * 4 :]
    if not content or port not in (source, destination):
        return
    seconds, ns = next(
        _TIMESPEC.unpack(data) for level, kind, data in ancillary if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)
    )
    to_server = destination == port
    client = source if to_server else destination
    out.write(_PACKET.pack(seconds * 1_000_000_000 + ns, client, to_server, sequence, 0, len(content)) + content)


def read_exchanges(path: Path) -> dict[int, Exchange]:
    """Requests by number: the last with each. Their id is the number, as ``bench`` sends it."""
    exchanges: dict[int, Exchange] = {}
    streams: dict[tuple[int, int], _Messages] = defaultdict(_Messages)
    content = path.read_bytes()
    position = 0
    while position + _PACKET.size <= len(content):
        at_ns, client, to_server, sequence, _, size = _PACKET.unpack_from(content, position)
        position += _PACKET.size
        packet = content[position : position + size]
        position += size
        for message in streams[client, to_server].feed(packet, sequence):
            with suppress(DecodeError):  # a message of another method
                if to_server:
                    request = service_pb2.ModelInferRequest.FromString(message)
                    if request.id.isdigit():
                        exchanges[int(request.id)] = Exchange(at_ns)
                else:
                    answer = service_pb2.ModelStreamInferResponse.FromString(message).infer_response
                    if answer.id.isdigit() and answer.raw_output_contents:
                        exchanges[int(answer.id)].answers_ns.append(at_ns)
    return exchanges


class _Messages:
    """The gRPC messages of one direction of a connection, each with the packet that ends it. Packets are put in order."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._next: int | None = None
        self._early: dict[int, bytes] = {}
        self._bodies: dict[int, bytearray] = defaultdict(bytearray)

    def feed(self, packet: bytes, sequence: int) -> Iterator[bytes]:
        self._early[sequence] = packet
        if self._next is None:
            self._next = sequence
        while (following := self._early.pop(self._next, None)) is not None:
            self._next = (self._next + len(following)) % 2**32
            self._bytes += following
        if self._bytes.startswith(PREFACE):
            del self._bytes[: len(PREFACE)]
        while len(self._bytes) >= FRAME_HEADER_BYTES:
            high, low, kind, flags, stream = FRAME_HEADER.unpack_from(self._bytes)
            size = FRAME_HEADER_BYTES + (high << 8 | low)
            if len(self._bytes) < size:
                return
            frame = bytes(self._bytes[FRAME_HEADER_BYTES:size])
            del self._bytes[:size]
            if kind == FrameType.DATA:
                assert not flags & Flag.PADDED
                yield from self._complete(self._bodies[stream], frame)

    def _complete(self, body: bytearray, frame: bytes) -> Iterator[bytes]:
        body += frame
        while len(body) >= _MESSAGE.size:
            compressed, size = _MESSAGE.unpack_from(body)
            if len(body) < _MESSAGE.size + size:
                return
            assert not compressed
            yield bytes(body[_MESSAGE.size : _MESSAGE.size + size])
            del body[: _MESSAGE.size + size]


def compare(folder: Path, capture: Path) -> dict[str, object]:
    """What the client's durations are longer than those of the wire, in ms: percentiles over the requests of a streamed run."""
    exchanges = read_exchanges(capture)
    records = RunFolder(folder).read_requests(("index", "sent_ns", "token_times_ns")).to_pylist()
    apart: dict[str, list[float]] = {"ttft": [], "e2e": []}
    for request in records:
        exchange, times_ns = exchanges.get(request["index"]), request["token_times_ns"]
        if exchange is None or not times_ns or len(exchange.answers_ns) < len(times_ns):
            continue
        for kind, end_ns, on_wire_ns in (
            ("ttft", times_ns[0], exchange.answers_ns[0]),
            ("e2e", times_ns[-1], exchange.answers_ns[len(times_ns) - 1]),
        ):
            apart[kind].append((end_ns - request["sent_ns"] - (on_wire_ns - exchange.sent_ns)) / 1e6)
    names = ("p1", "p50", "p99")
    return {
        "requests": len(apart["ttft"]),
        **{
            f"{kind}_ms": dict(zip(names, np.percentile(values, (1, 50, 99)).round(4).tolist(), strict=True))
            for kind, values in apart.items()
        },
    }


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]))
