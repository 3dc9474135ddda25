"""Blocking calls without a body over HTTP/1.1, without a proxy: model inspection before a run, telemetry during it."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.clients.protocol import NOT_JSON
from harness.clients.transport.certificates import client_context, refused_client, unencrypted_problem
from harness.clients.transport.http1_pool import redirection, server_message
from harness.clients.transport.tcp import problem_of
from harness.clients.transport.url import HttpUrl, Origin
from harness.errors import TargetError

_TIMEOUT_S = 5.0
_MAX_BODY_BYTES = 32 * 2**20

Headers = tuple[tuple[str, str], ...]


class GetError(Exception):
    """A GET failed; the text is the reason, ``__cause__`` the error of socket or protocol, if any."""


class HttpStatusError(GetError):
    """The server answered with a status other than success. ``message`` is the error that the body contains, or where the
    server redirects to.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"status {status} {reason}")
        self.status = status
        self.message = message


class HttpGetter:
    """GETs one URL, any number of times over one connection, with ``headers``. Not thread-safe.

    ``timeout_s`` limits each GET. ``method`` is another one, of a call with ``body``, which is JSON, or without one.
    """

    def __init__(
        self,
        url: HttpUrl,
        headers: Headers = (),
        timeout_s: float = _TIMEOUT_S,
        method: str = "GET",
        body: bytes | None = None,
    ) -> None:
        self._method = method
        self._body = body
        self._path = url.path
        self._headers = dict(headers) | ({} if body is None else {"Content-Type": "application/json"})
        self._timeout_s = timeout_s
        self._deadline_s = 0.0  # of the GET in progress, of time.monotonic
        if url.scheme == "https":
            context = client_context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                url.host, url.port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(url.host, url.port, timeout=timeout_s)
        self._connection.response_class = self._response  # type: ignore[assignment]

    def get(self) -> bytes:
        """The body of a successful answer. Raises GetError; the next call connects anew."""
        self._deadline_s = time.monotonic() + self._timeout_s
        try:
            if self._connection.sock is not None:
                try:
                    return self._get_once()
                except (http.client.RemoteDisconnected, ConnectionError):  # a server may close an idle connection
                    self._connection.close()
            return self._get_once()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise GetError(self._reason(error)) from error
        except GetError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> HttpGetter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _reason(self, error: OSError | http.client.HTTPException) -> str:
        match error:
            case TimeoutError():
                return f"the answer took longer than {self._timeout_s:g} s"
            case ssl.SSLCertVerificationError():
                return problem_of(error)
            case _:
                return str(error) or type(error).__name__

    def _get_once(self) -> bytes:
        self._connection.request(self._method, self._path, self._body, self._headers)
        response = self._connection.getresponse()
        body = bytearray()
        while chunk := response.read(65536):
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                raise GetError(f"the answer is longer than {_MAX_BODY_BYTES >> 20} MiB")
        if not 200 <= response.status < 300:
            is_elsewhere = 300 <= response.status < 400
            message = redirection(response.headers.get("location", "")) if is_elsewhere else server_message(bytes(body))
            raise HttpStatusError(response.status, response.reason, message)
        return bytes(body)

    def _response(self, end: socket.socket, debuglevel: int = 0, method: str | None = None) -> http.client.HTTPResponse:
        """The answer that is read from ``end`` until the deadline: the socket's own timeout begins anew with each byte."""
        response = http.client.HTTPResponse(end, debuglevel, method)
        response.fp = io.BufferedReader(_UntilDeadline(end, response.fp, self._deadline_s))
        return response


class _UntilDeadline(io.RawIOBase):
    """Reads a socket's ``file``. Raises TimeoutError at ``deadline_s`` of ``time.monotonic``, however steadily bytes arrive."""

    def __init__(self, end: socket.socket, file: io.BufferedReader, deadline_s: float) -> None:
        self._end = end
        self._raw = file.detach()
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._end.settimeout(left_s)
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def get_json(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float) -> Any:
    """The JSON document at ``path``. Raises HttpStatusError, and TargetError where the answer is not HTTP, JSON or in time."""
    url = HttpUrl(origin.scheme, origin.host, origin.port, path)
    try:
        with HttpGetter(url, (("Accept", "application/json"), *headers.items()), timeout_s) as getter:
            body = getter.get()
    except HttpStatusError:
        raise
    except GetError as error:
        raise TargetError(f"--url {origin}: {_problem(error, timeout_s, origin.is_encrypted)}") from error
    try:
        return msgspec.json.decode(body)
    except NOT_JSON as error:
        raise TargetError(
            f"--url {origin}: the answer at {path.partition('?')[0]} is not JSON; is this the server's HTTP port?"
        ) from error


def _problem(error: GetError, timeout_s: float, is_encrypted: bool) -> str:
    refused = refused_client(error.__cause__) if is_encrypted else None
    match error.__cause__:
        case _ if refused is not None:
            return refused
        case TimeoutError():
            return f"no whole answer within {timeout_s:.3g} s; is this the server's HTTP port?"
        case ssl.SSLCertVerificationError() as cause:
            return problem_of(cause)
        case ssl.SSLError(reason=str(words)) if (plain := unencrypted_problem(words)) is not None:
            return plain
        case http.client.HTTPException():
            return "the server there does not speak HTTP; is this the server's HTTP port?"
        case OSError() as cause:
            return f"no server answers there ({cause.strerror or cause}); is the server up, and is this its HTTP port?"
        case _:
            return str(error)
