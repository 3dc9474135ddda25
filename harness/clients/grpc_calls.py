"""gRPC calls of one method over one connection, bytes in and bytes out (gRPC over HTTP/2: ``PROTOCOL-HTTP2.md`` of grpc/grpc).

A unary call and a stream that is half-closed behind its only request are the same bytes, so there is one kind of call.
"""

from __future__ import annotations

import asyncio
import os
import struct
from urllib.parse import unquote

import grpc

from harness.clients.http2 import ErrorCode, Headers, Http2Protocol, literal_headers
from harness.clients.protocol import OnResponse

_PREFIX_BYTES = 5
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_USER_AGENT = "inflight-bench"


class CallFailedError(Exception):
    """A call ended with a status other than OK. ``connected`` False: there was no connection to send it on."""

    def __init__(self, code: grpc.StatusCode, details: str, connected: bool = True) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.connected = connected


class _Call:
    """One call in flight: cuts the stream into messages, and keeps how it ended. Implements ``StreamEvents``."""

    __slots__ = ("_on_response", "_partial", "ended")

    def __init__(self, on_response: OnResponse, ended: asyncio.Future[None]) -> None:
        self._on_response = on_response
        self._partial = b""
        self.ended = ended

    def on_data(self, payload: bytes) -> None:
        data = self._partial + payload if self._partial else payload
        position, end = 0, len(data)
        while end - position >= _PREFIX_BYTES:
            compressed, size = struct.unpack_from(">BI", data, position)
            start = position + _PREFIX_BYTES
            if end - start < size:
                break
            if compressed:
                self.fail(grpc.StatusCode.INTERNAL, "the server compressed a message, which was not offered")
                return
            position = start + size
            self._on_response(data[start:position])
        self._partial = data[position:]

    def on_headers(self, headers: Headers, ended: bool) -> None:
        if not ended:
            return
        status = headers.get("grpc-status")
        if status is None:
            http_status = headers.get(":status", "200")
            self.fail(grpc.StatusCode.UNKNOWN, f"the answer ended without a gRPC status (HTTP status {http_status})")
        elif status != "0":
            code = _STATUS.get(int(status) if status.isdigit() else -1, grpc.StatusCode.UNKNOWN)
            self.fail(code, unquote(headers.get("grpc-message", "")))
        elif self._partial:
            self.fail(grpc.StatusCode.INTERNAL, "the answer ended within a message")
        elif not self.ended.done():
            self.ended.set_result(None)

    def on_reset(self, error_code: int) -> None:
        if error_code in (ErrorCode.REFUSED_STREAM, ErrorCode.ENHANCE_YOUR_CALM):
            self.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the server refused the stream (HTTP/2 error {error_code})")
        else:
            self.fail(grpc.StatusCode.CANCELLED, f"the server reset the stream (HTTP/2 error {error_code})")

    def on_lost(self, reason: str) -> None:
        self.fail(grpc.StatusCode.UNAVAILABLE, reason)

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(CallFailedError(code, details))


class GrpcCaller:
    """Calls one method of the service at ``address`` (``host:port``). Connects again when the connection is gone."""

    def __init__(self, address: str, method: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._headers = literal_headers(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", address),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", _USER_AGENT),
            ]
        )
        self._protocol: Http2Protocol | None = None
        self._connecting: asyncio.Task[Http2Protocol] | None = None

    async def connect(self, timeout_s: float) -> None:
        """Be connected. Raises CallFailedError (UNAVAILABLE, not connected)."""
        await self._connected(timeout_s)

    async def call(self, request: bytes, on_response: OnResponse, timeout_s: float) -> None:
        """Send ``request`` and hand each message of the answer to ``on_response`` as it is read.

        Raises CallFailedError with the status of the call, DEADLINE_EXCEEDED after ``timeout_s``. Breaking it off
        (cancelling the task) tells the server.
        """
        protocol = await self._connected(timeout_s)
        call = _Call(on_response, asyncio.get_running_loop().create_future())
        stream_id = None
        try:
            async with asyncio.timeout(timeout_s):
                body = struct.pack(">BI", 0, len(request)) + request
                stream_id = await protocol.open_stream(self._headers, body, call)
                await call.ended
        except TimeoutError as error:
            raise CallFailedError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no end within {timeout_s:g} s") from error
        except ConnectionError as error:
            raise CallFailedError(grpc.StatusCode.UNAVAILABLE, str(error), connected=False) from error
        finally:
            if stream_id is not None:
                protocol.reset(stream_id)  # nothing where the server has ended it

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._protocol is not None:
            self._protocol.close()

    async def _connected(self, timeout_s: float) -> Http2Protocol:
        """The one connection; whoever comes while it is being made waits for the same attempt."""
        if self._protocol is not None and self._protocol.accepts:
            return self._protocol
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._connecting)
        except TimeoutError:
            problem = f"no connection within {timeout_s:g} s"
        except OSError as error:
            problem = f"cannot connect: {os.strerror(error.errno) if error.errno else error}"
        raise CallFailedError(grpc.StatusCode.UNAVAILABLE, problem, connected=False)

    async def _connect(self) -> Http2Protocol:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(Http2Protocol, self._host.strip("[]"), self._port)
        try:
            await protocol.ready
        except BaseException:
            protocol.close()
            raise
        self._protocol = protocol
        return protocol
