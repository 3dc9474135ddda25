"""Servers that misbehave, for ``hostile_servers``: each a script of one connection, over HTTP/1.1, server-sent events or gRPC.

They write raw bytes, since no library sends what they send. Each ends when the client closes its connection.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from hpack import Decoder
from tritonclient.grpc import service_pb2

from harness.clients.transport.http2_frames import Flag, FrameType, frame, literal_headers

Attack = Callable[["Wire"], None]
_FLOOD_S = 30.0  # a flood that the client does not end
_OPENING = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_JSON_HEAD = _OPENING + b"Content-Type: application/json\r\n"
_EVENTS = _OPENING + b"Content-Type: text/event-stream\r\n" + _CHUNKED
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'

_COUNT = b'data: {"choices":[],"usage":{"completion_tokens":1%b}}\n\n'


@dataclass
class Wire:
    """The server's end of a connection; ``stream`` is the HTTP/2 stream to answer on."""

    end: socket.socket
    stream: int = 0
    unread: bytearray = field(default_factory=bytearray)

    def send(self, *parts: bytes) -> None:
        self.end.sendall(b"".join(parts))

    def flood(self, part: bytes) -> None:
        """Send ``part`` again and again, many at once."""
        many = part * max(1, 65_536 // len(part))
        end_s = time.monotonic() + _FLOOD_S
        while time.monotonic() < end_s:
            self.end.sendall(many)

    def drip(self, part: bytes) -> None:
        """Send ``part`` every 0.3 s."""
        for _ in range(int(_FLOOD_S / 0.3)):
            self.end.sendall(part)
            time.sleep(0.3)

    def take(self, count: int) -> bytes:
        """The next ``count`` received bytes. Raises ConnectionError at the end."""
        while len(self.unread) < count:
            received = self.end.recv(65_536)
            if not received:
                raise ConnectionError
            self.unread += received
        taken = bytes(self.unread[:count])
        del self.unread[:count]
        return taken

    def take_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self.take(1)
        return line


@contextmanager
def listening(serve: Attack, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a server on loopback that runs ``serve`` in a thread for each connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def follow(end: socket.socket) -> None:
            with suppress(OSError), end:
                end.settimeout(_FLOOD_S)
                if tls is not None:
                    end = tls.wrap_socket(end, server_side=True)
                serve(Wire(end))

        def accept() -> None:
            with suppress(OSError):
                while True:
                    end, _ = server.accept()
                    threading.Thread(target=follow, args=(end,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def over_http(attack: Attack, listing: Attack | None = None) -> Attack:
    """Answers a POST by ``attack``, and a GET, which asks for the models, by ``listing`` or status 404."""

    def serve(wire: Wire) -> None:
        while True:
            first, length = wire.take_line(), 0
            while (line := wire.take_line()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            wire.take(length)
            if first.startswith(b"POST"):
                attack(wire)
            elif listing is not None:
                listing(wire)
            else:
                wire.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    return serve


def _closing(*parts: bytes) -> Attack:
    def attack(wire: Wire) -> None:
        wire.send(*parts)
        raise ConnectionError

    return attack


def _flooding(opening: bytes, part: bytes) -> Attack:
    def attack(wire: Wire) -> None:
        wire.send(opening)
        wire.flood(part)

    return attack


def _dripping(opening: bytes, part: bytes) -> Attack:
    def attack(wire: Wire) -> None:
        wire.send(opening)
        wire.drip(part)

    return attack


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def _whole(body: bytes, status: bytes = b"200 OK", header: bytes = b"") -> Attack:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n" % (status, header, len(body))
    return lambda wire: wire.send(head, body)


HTTP_ATTACKS: dict[str, Attack] = {
    "headers without end": _flooding(_OPENING, b"X-More: 1234567890\r\n"),
    "one header line without end": _flooding(_OPENING + b"X-Long: ", b"x" * 1024),
    "status 100 without end": _flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a body without length and end": _flooding(_JSON_HEAD + b"\r\n", b"x" * 1024),
    "a length of 2^60 bytes": _flooding(_JSON_HEAD + b"Content-Length: %d\r\n\r\n" % 2**60, b"x" * 1024),
    "chunks of one byte without end": _flooding(_JSON_HEAD + _CHUNKED, _chunk(b"x")),
    "a chunk extension without end": _flooding(_JSON_HEAD + _CHUNKED + b"1;name=", b"x" * 1024),
    "trailers without end": _flooding(_JSON_HEAD + _CHUNKED + b"0\r\n", b"X-More: 1234567890\r\n"),
    "an error of 40 MB": _whole(b"x" * 40_000_000, b"500 Internal Server Error"),
    "JSON nested 100,000 deep": _whole(b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "an answer that was compressed": _whole(b"x" * 100, header=b"Content-Encoding: gzip\r\n"),
    "a byte every 0.3 s": _dripping(_JSON_HEAD + b"Content-Length: 10000\r\n\r\n", b"x"),
    "half a head, then the end": _closing(_OPENING + b"X-Ha"),
    "bytes that are not HTTP": _closing(b"\x00\xff" * 5_000),
}  # fmt: skip
SSE_ATTACKS: dict[str, Attack] = {
    "valid events without end": _flooding(_EVENTS, _chunk(_EVENT)),
    "long valid events without end": _flooding(_EVENTS, _chunk(_EVENT.replace(b'"a"', b'"%b"' % (b"a" * 4_000)))),
    "comments without end": _flooding(_EVENTS, _chunk(b": still here " + b"." * 1_000 + b"\n\n")),
    "a line without end": _flooding(_EVENTS + _chunk(b"data: "), _chunk(b"x" * 1024)),
    "a line without end, in chunks of 2 bytes": _flooding(_EVENTS + _chunk(b"data: "), _chunk(b"xx")),
    "an event of lines without end": _flooding(_EVENTS, _chunk(b"data: x\n" * 100)),
    "events after the end marker": _flooding(_EVENTS + _chunk(_EVENT + b"data: [DONE]\n\n"), _chunk(_EVENT)),
    "an event named error of 40 MB": _flooding(_EVENTS + _chunk(b"event: error\ndata: "), _chunk(b"x" * 4_000)),
    "a token count of 10^30": _closing(_EVENTS, _chunk(_COUNT % (b"0" * 30)), b"0\r\n\r\n"),
    "half an event, then silence": _dripping(_EVENTS + _chunk(_EVENT[:20]), b""),
}  # fmt: skip


def _config() -> bytes:
    answer = service_pb2.ModelConfigResponse()
    answer.config.name = "m"
    answer.config.model_transaction_policy.decoupled = True
    for name in ("input_ids", "input_lengths", "request_output_len", "streaming"):
        answer.config.input.add(name=name)
    answer.config.output.add(name="output_ids")
    body: bytes = answer.SerializeToString()
    return body


def _message(body: bytes) -> bytes:
    return struct.pack(">BI", 0, len(body)) + body


def _token() -> bytes:
    answer = service_pb2.ModelStreamInferResponse()
    answer.infer_response.outputs.add(name="output_ids", datatype="INT32", shape=(1, 1, 1))
    answer.infer_response.raw_output_contents.append(struct.pack("<i", 7))
    body: bytes = answer.SerializeToString()
    return body


_RESPONSE_HEADERS = literal_headers([(":status", "200"), ("content-type", "application/grpc")])
_TRAILERS = literal_headers([("grpc-status", "0")])


def _answer_config(wire: Wire) -> None:
    wire.send(
        frame(FrameType.HEADERS, Flag.END_HEADERS, wire.stream, _RESPONSE_HEADERS),
        frame(FrameType.DATA, 0, wire.stream, _message(_config())),
        frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, wire.stream, _TRAILERS),
    )


def over_grpc(attack: Attack, listing: Attack = _answer_config) -> Attack:
    """Answers the call for the model's configuration by ``listing``, and every other one by ``attack``."""

    def serve(wire: Wire) -> None:
        wire.take(24)
        wire.send(frame(FrameType.SETTINGS, 0, 0, b""))
        decoder, configured = Decoder(), set[int]()
        while True:
            high, low, kind, flags, stream = struct.unpack(">HBBBI", wire.take(9))
            payload = wire.take(high << 8 | low)
            if kind == FrameType.HEADERS:
                if any(str(value).endswith("/ModelConfig") for _, value in decoder.decode(payload)):
                    configured.add(stream)
            elif kind == FrameType.SETTINGS and not flags & Flag.ACK:
                wire.send(frame(FrameType.SETTINGS, Flag.ACK, 0, b""))
            elif kind == FrameType.PING and not flags & Flag.ACK:
                wire.send(frame(FrameType.PING, Flag.ACK, 0, payload))
            if kind in (FrameType.HEADERS, FrameType.DATA) and flags & Flag.END_STREAM:
                wire.stream = stream
                (listing if stream in configured else attack)(wire)

    return serve


def _frames(kind: FrameType, payload: bytes, flags: int = 0, opened: bool = True) -> Attack:
    """Floods with one frame of the stream, after the headers of an answer where ``opened``."""

    def attack(wire: Wire) -> None:
        if opened:
            wire.send(frame(FrameType.HEADERS, Flag.END_HEADERS, wire.stream, _RESPONSE_HEADERS))
        wire.flood(frame(kind, flags, wire.stream if kind != FrameType.PING else 0, payload))

    return attack


def _begun(opening: Callable[[int], bytes], then: Attack) -> Attack:
    def attack(wire: Wire) -> None:
        wire.send(opening(wire.stream))
        then(wire)

    return attack


def _prefix_of_4_gib(wire: Wire) -> None:
    wire.send(
        frame(FrameType.HEADERS, Flag.END_HEADERS, wire.stream, _RESPONSE_HEADERS),
        frame(FrameType.DATA, 0, wire.stream, struct.pack(">BI", 0, 2**32 - 1)),
    )
    wire.flood(frame(FrameType.DATA, 0, wire.stream, bytes(16_000)))


def _ended_with(*frames: tuple[FrameType, int, bytes]) -> Attack:
    return lambda wire: wire.send(*(frame(kind, flags, wire.stream, payload) for kind, flags, payload in frames))


_HEAD = (FrameType.HEADERS, Flag.END_HEADERS, _RESPONSE_HEADERS)
_END = (FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, _TRAILERS)
GRPC_ATTACKS: dict[str, Attack] = {
    "a length of 4 GiB": _prefix_of_4_gib,
    "valid messages without end": _frames(FrameType.DATA, _message(_token())),
    "empty messages without end": _frames(FrameType.DATA, _message(b"") * 3_000),
    "messages of 16 kB without end": _frames(FrameType.DATA, _message(bytes(16_000))),
    "a header block without end": _begun(
        lambda stream: frame(FrameType.HEADERS, 0, stream, _RESPONSE_HEADERS),
        _frames(FrameType.CONTINUATION, literal_headers([("x-more", "x" * 1_000)]), opened=False),
    ),
    "one header of 500 kB": _begun(
        lambda stream: frame(FrameType.HEADERS, 0, stream, literal_headers([("x-long", "x" * 500_000)])[:16_000]),
        _frames(FrameType.CONTINUATION, b"x" * 16_000, opened=False),
    ),
    "header blocks without end": _frames(FrameType.HEADERS, _RESPONSE_HEADERS, Flag.END_HEADERS),
    "pings without end, answers unread": _frames(FrameType.PING, bytes(8)),
    "a compressed message": _ended_with(_HEAD, (FrameType.DATA, 0, b"\x01\x00\x00\x00\x01x"), _END),
    "half a message, then the end": _ended_with(_HEAD, (FrameType.DATA, 0, _message(_token())[:-2]), _END),
    "a reset stream": _ended_with(_HEAD, (FrameType.RST_STREAM, 0, struct.pack(">I", 2))),
    "no answer": lambda wire: None,
}  # fmt: skip


def dripping_models(wire: Wire) -> None:
    wire.send(_JSON_HEAD + b"Content-Length: 10000\r\n\r\n")
    wire.drip(b" ")


def dripping_head(wire: Wire) -> None:
    wire.send(_OPENING + b"X-Slow: ")
    wire.drip(b"x")
