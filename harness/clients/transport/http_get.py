"""Blocking calls without a body over HTTP/1.1, without a proxy: model inspection before a run, telemetry during it."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.clients.protocol import NOT_JSON
from harness.clients.transport.http1_pool import server_message
from harness.clients.transport.url import HttpUrl, Origin
from harness.errors import TargetError

_TIMEOUT_S = 5.0
_MAX_BODY_BYTES = 32 * 2**20

Headers = tuple[tuple[str, str], ...]


class GetError(Exception):
    """A GET failed; the text is the reason, ``__cause__`` the error of socket or protocol, if any."""


class HttpStatusError(GetError):
    """The server answered with a status other than success. ``message`` is the error that the body contains."""

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
        if url.scheme == "https":
            context = ssl.create_default_context()
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                url.host, url.port, timeout=timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(url.host, url.port, timeout=timeout_s)

    def get(self) -> bytes:
        """The body of a successful answer. Raises GetError; the next call connects anew."""
        try:
            if self._connection.sock is not None:
                try:
                    return self._get_once()
                except (http.client.RemoteDisconnected, ConnectionError):  # a server may close an idle connection
                    self._connection.close()
            return self._get_once()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise GetError(str(error) or type(error).__name__) from error
        except GetError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> HttpGetter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _get_once(self) -> bytes:
        deadline_s = time.monotonic() + self._timeout_s
        self._connection.request(self._method, self._path, self._body, self._headers)
        response = self._connection.getresponse()
        body = bytearray()
        while chunk := response.read(65536):
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                raise GetError(f"the answer is longer than {_MAX_BODY_BYTES >> 20} MiB")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the answer took longer than {self._timeout_s:g} s")
        if not 200 <= response.status < 300:
            raise HttpStatusError(response.status, response.reason, server_message(bytes(body)))
        return bytes(body)


def get_json(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float) -> Any:
    """The JSON document at ``path``. Raises HttpStatusError, and TargetError where the answer is not HTTP, JSON or in time."""
    url = HttpUrl(origin.scheme, origin.host, origin.port, path)
    try:
        with HttpGetter(url, (("Accept", "application/json"), *headers.items()), timeout_s) as getter:
            body = getter.get()
    except HttpStatusError:
        raise
    except GetError as error:
        raise TargetError(f"--url {origin}: {_problem(error)}") from error
    try:
        return msgspec.json.decode(body)
    except NOT_JSON as error:
        raise TargetError(f"--url {origin}: the answer at {path} is not JSON; is this the server's HTTP port?") from error


def _problem(error: GetError) -> str:
    match error.__cause__:
        case TimeoutError():
            return "no answer in time; is this the server's HTTP port?"
        case http.client.HTTPException():
            return "the server there does not speak HTTP; is this the server's HTTP port?"
        case OSError() as cause:
            return f"no server answers there ({cause.strerror or cause}); is the server up, and is this its HTTP port?"
        case _:
            return str(error)
