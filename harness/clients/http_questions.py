"""Asking a server about itself over HTTP, before a run; blocking, and with no proxy between."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any

import msgspec

from harness.clients.http_calls import Origin, server_message
from harness.clients.protocol import NOT_JSON
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
