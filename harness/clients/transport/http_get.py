"""Asking a server about itself over HTTP, before a run; blocking, and with no proxy between."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.clients.protocol import NOT_JSON
from harness.clients.transport.http1_pool import server_message
from harness.clients.transport.url import HttpUrl, Origin
from harness.errors import TargetError


class HttpStatusError(Exception):
    """The server answered with a status that is no success; the text is what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def get_json(origin: Origin, path: str, headers: Mapping[str, str], timeout_s: float) -> Any:
    """What the server has at ``path``. Raises HttpStatusError; TargetError when nobody answers, or not in HTTP and JSON."""
    tls = origin.tls()
    if tls is None:
        connection = http.client.HTTPConnection(origin.host, origin.port, timeout=timeout_s)
    else:
        connection = http.client.HTTPSConnection(origin.host, origin.port, timeout=timeout_s, context=tls)
    try:
        connection.request("GET", path, headers={"Host": origin.authority, "Accept": "application/json", **headers})
        response = connection.getresponse()
        body = response.read()
    except TimeoutError as error:
        raise TargetError(f"--url {origin}: no answer in time; is this the server's HTTP port?") from error
    except http.client.HTTPException as error:
        raise TargetError(f"--url {origin}: what answers there does not speak HTTP; is this the server's HTTP port?") from error
    except OSError as error:
        problem = f"nobody answers there ({error.strerror or error}); is the server up, and is this its HTTP port?"
        raise TargetError(f"--url {origin}: {problem}") from error
    finally:
        connection.close()
    if response.status >= 300:
        raise HttpStatusError(response.status, server_message(body))
    try:
        return msgspec.json.decode(body)
    except NOT_JSON as error:
        raise TargetError(f"--url {origin}: what it says at {path} is not JSON; is this the server's HTTP port?") from error


_TIMEOUT_S = 5.0


_LARGEST_BYTES = 32 * 2**20


Headers = tuple[tuple[str, str], ...]


class GetError(Exception):
    """A GET failed; the text says how."""


class Getter:
    """GETs one URL again and again, with ``headers``. Not for several threads at once."""

    def __init__(self, url: HttpUrl, headers: Headers = ()) -> None:
        self._url = url
        self._headers = headers
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.host, url.port, timeout=_TIMEOUT_S)

    def get(self) -> bytes:
        """The body of a 200. Raises GetError; the next call connects anew."""
        try:
            if self._connection.sock is not None:
                try:
                    return self._ask()
                except (http.client.RemoteDisconnected, ConnectionError):  # the server closed it meanwhile, as it may
                    self._connection.close()
            return self._ask()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise GetError(str(error) or type(error).__name__) from error
        except GetError:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def _ask(self) -> bytes:
        deadline_s = time.monotonic() + _TIMEOUT_S
        self._connection.request("GET", self._url.path, headers=dict(self._headers))
        response = self._connection.getresponse()
        body = bytearray()
        while chunk := response.read(65536):
            body += chunk
            if len(body) > _LARGEST_BYTES:
                raise GetError(f"the answer is longer than {_LARGEST_BYTES >> 20} MiB")
            if time.monotonic() > deadline_s:
                raise TimeoutError("the answer takes too long")
        if response.status != 200:
            raise GetError(f"status {response.status} {response.reason}")
        return bytes(body)
