"""HTTP/1.1 of Triton through bounds: a request is read whole and sent on with its length, an answer passes as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import ClientConnectionError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from aiohttp.web_protocol import RequestHandler
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from serving.proxy.json_depth import is_too_deep
from serving.proxy.request_guard import refusal
from serving.proxy.settings import MIB, ProxyBounds

_HEADER_BYTES = 16384  # of one field; Triton's key and a trace context have about a hundred
_HEADERS = 64
_LINGER_S = 2.0  # to read on after a refusal, so that the client reads it
_CONNECT_S = 10.0
_MOST_BUFFERED_BYTES = 256 * MIB  # of all bodies at a time, or two of the longest, beyond the first _FREE_BYTES of each
_FREE_BYTES = 65536  # so that clients with long bodies do not keep out others
_LEAST_CHUNK_BYTES = 16  # on average, beyond the first _FREE_CHUNKS of a body
_FREE_CHUNKS = 4096
_SMALL_BODY_BYTES = MIB  # its check takes the event loop a few milliseconds at most
_ENCODINGS = ("gzip", "deflate", "identity")
# RFC 9110, 7.6.1. The rest: the proxy answers or makes them itself.
_HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
_OWN_REQUEST_HEADERS = _HOP_BY_HOP | {"host", "content-length", "content-encoding", "expect"}
_BINARY_HEAD = "Inference-Header-Content-Length"  # bytes of JSON before the tensors. Source: Triton's binary data extension


@dataclass(frozen=True, slots=True)
class Route:
    """What may be asked of one port: paths that begin with ``prefix``, with ``methods``."""

    prefix: str
    methods: tuple[str, ...]


INFERENCE = Route("/v2/", ("GET", "POST"))
METRICS = Route("/metrics", ("GET",))


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpProxy:
    """Forwards the requests of one port to ``upstream``, Triton's URL without a path."""

    def __init__(self, upstream: str, route: Route, bounds: ProxyBounds, session: ClientSession) -> None:
        self._upstream = upstream
        self._route = route
        self._bounds = bounds
        self._session = session
        self._is_ending = False
        self._buffered_bytes = 0
        self.in_flight = 0
        self._most_buffered_bytes = max(_MOST_BUFFERED_BYTES, 2 * bounds.body_bytes)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Triton's answer, or the proxy's own refusal in the form of Triton's errors."""
        held = _HeldBody(self)
        self.in_flight += 1
        try:
            self._check_head(request)
            body = await self._read_body(request, held)
            await _check_depth(request, body)
            return await self._forward(request, body)
        except _RefusedError as error:
            return await _refuse(request, error)
        finally:
            held.release()
            self.in_flight -= 1

    def refuse_requests(self) -> None:
        """Take no more requests; those in flight go on."""
        self._is_ending = True

    def _check_head(self, request: web.BaseRequest) -> None:
        if self._is_ending:
            raise _RefusedError(503, "the server is ending")
        headers = request.headers
        reason = refusal(headers.get("Host"), headers.get("Origin"), headers.get("Sec-Fetch-Site"), self._bounds.allowed_hosts)
        if reason is not None:
            raise _RefusedError(403, reason)
        if not request.raw_path.startswith(self._route.prefix):
            raise _RefusedError(404, f"the proxy forwards {self._route.prefix} alone")
        if request.method not in self._route.methods:
            raise _RefusedError(405, f"the proxy forwards {' and '.join(self._route.methods)} alone")
        if headers.get("Content-Encoding", "identity").lower() not in _ENCODINGS:
            raise _RefusedError(415, f"Content-Encoding: use {', '.join(_ENCODINGS)}")

    async def _read_body(self, request: web.BaseRequest, held: _HeldBody) -> bytes:
        """The whole body, decompressed. Raises _RefusedError for one that is too long, too slow or in too small chunks."""
        most = self._bounds.body_bytes
        if (request.content_length or 0) > most:
            raise _RefusedError(413, f"the body is longer than {most} bytes")
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # as aiohttp does, which otherwise takes the answer as started
        body = bytearray()
        try:
            async with asyncio.timeout(self._bounds.receive_timeout_s):
                async for part in _parts(request):
                    if len(body) + len(part) > most:
                        raise _RefusedError(413, f"the body is longer than {most} bytes")
                    held.add(len(part))
                    body += part
        except TimeoutError:
            raise _RefusedError(408, f"the body took longer than {self._bounds.receive_timeout_s:g} s") from None
        except web.RequestPayloadError as error:
            raise _RefusedError(400, f"the body cannot be read: {error}") from None
        return bytes(body)

    def hold(self, count: int) -> None:
        """Count bytes of a body in memory. Raises _RefusedError where all bodies together have too many."""
        if self._buffered_bytes + count > self._most_buffered_bytes:
            raise _RefusedError(503, "the proxy has too many long requests at a time; try again")
        self._buffered_bytes += count

    def release(self, count: int) -> None:
        self._buffered_bytes -= count

    async def _forward(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        headers = _passed(request.headers, _OWN_REQUEST_HEADERS)
        url = URL(f"{self._upstream}{request.raw_path}", encoded=True)
        data = body if request.method == "POST" else None
        try:
            answer = await self._session.request(request.method, url, data=data, headers=headers, allow_redirects=False)
        except (ClientConnectionError, TimeoutError):
            raise _RefusedError(502, "Triton does not answer: it is starting, ending or overloaded") from None
        except ValueError as error:  # a header or path that cannot be sent
            raise _RefusedError(400, f"the request cannot be forwarded: {error}") from None
        async with answer:
            return await self._pass_answer(request, answer)

    async def _pass_answer(self, request: web.BaseRequest, answer: ClientResponse) -> web.StreamResponse:
        """Each part of the answer as it comes. An end before its end, of either side, ends the other's connection."""
        passed = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_passed(answer.headers, _HOP_BY_HOP))
        await passed.prepare(request)
        while part := await answer.content.readany():
            async with asyncio.timeout(self._bounds.receive_timeout_s):
                await passed.write(part)
        await passed.write_eof()
        return passed


class _HeldBody:
    """The bytes of one body in memory, until it is released."""

    def __init__(self, proxy: HttpProxy) -> None:
        self._proxy = proxy
        self._count = 0

    def add(self, count: int) -> None:
        held = max(0, self._count - _FREE_BYTES)
        self._proxy.hold(max(0, self._count + count - _FREE_BYTES) - held)
        self._count += count

    def release(self) -> None:
        self._proxy.release(max(0, self._count - _FREE_BYTES))
        self._count = 0


async def _parts(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """The body as it comes. Raises _RefusedError for many small chunks, of which each takes microseconds to parse."""
    chunks = received = 0
    while not request.content.at_eof():
        part, ends_chunk = await request.content.readchunk()
        if part:
            yield part
        chunks += ends_chunk
        received += len(part)
        if chunks > _FREE_CHUNKS and received < chunks * _LEAST_CHUNK_BYTES:
            raise _RefusedError(400, f"the body has chunks of less than {_LEAST_CHUNK_BYTES} bytes")


async def _refuse(request: web.BaseRequest, error: _RefusedError) -> web.StreamResponse:
    """Answer, and read on for a while: a client that still sends when the connection ends would not read the answer."""
    refused = web.json_response({"error": str(error)}, status=error.status)
    refused.force_close()
    await refused.prepare(request)
    await refused.write_eof()
    if error.status != HTTPStatus.REQUEST_TIMEOUT:
        with suppress(_RefusedError, TimeoutError, web.RequestPayloadError):
            async with asyncio.timeout(_LINGER_S):
                async for _ in _parts(request):
                    pass
    return refused


async def _check_depth(request: web.BaseRequest, body: bytes) -> None:
    """Raise _RefusedError for JSON that is nested too deeply. What follows the JSON of a binary request is not read."""
    head = request.headers.get(_BINARY_HEAD)
    text = body[: int(head)] if head is not None and head.isdecimal() else body
    deep = is_too_deep(text) if len(text) <= _SMALL_BODY_BYTES else await asyncio.to_thread(is_too_deep, text)
    if deep:
        raise _RefusedError(400, "the JSON of this request is nested too deeply")


def _passed(headers: CIMultiDictProxy[str], own: Iterable[str]) -> CIMultiDict[str]:
    """``headers`` less ``own`` and those that Connection names."""
    dropped = {*own, *(name.strip().lower() for name in ",".join(headers.getall("Connection", ())).split(","))}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


class _BoundedServer(web.Server):
    """aiohttp's server, which closes connections beyond ``most`` at once."""

    def __init__(self, proxy: HttpProxy, bounds: ProxyBounds) -> None:
        super().__init__(
            proxy.handle,
            handler_cancellation=True,  # a client that is gone ends its request to Triton
            access_log=None,
            keepalive_timeout=bounds.receive_timeout_s,  # also until the head of a first request is complete
            lingering_time=0,  # it would parse any number of small chunks
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            max_headers=_HEADERS,
        )
        self._most = bounds.connections
        self._open = 0

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open += 1
        if self._open > self._most:
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open -= 1


def open_session(bounds: ProxyBounds) -> ClientSession:
    """The connections to Triton, of both ports. To be closed by the caller."""
    return ClientSession(
        connector=TCPConnector(limit=2 * bounds.connections, keepalive_timeout=bounds.receive_timeout_s),
        timeout=ClientTimeout(total=None, sock_connect=_CONNECT_S),  # an answer may take as long as the model does
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


async def listen(proxy: HttpProxy, host: str, port: int, bounds: ProxyBounds) -> asyncio.Server:
    """A server that listens at ``host``:``port``. Raises OSError."""
    return await asyncio.get_running_loop().create_server(_BoundedServer(proxy, bounds), host, port, backlog=1024)
