"""Emptying the prefix cache of a server over HTTP, by the server's own call.

vLLM has ``POST /reset_prefix_cache``, where it was started with ``VLLM_SERVER_DEV_MODE=1``; SGLang has ``POST /flush_cache``,
in its first versions ``GET``. Neither is below ``/v1``. ``triton/prefix_cache_reset.py`` has the call of the embedded engine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from harness.clients.openai_server import BASE, authorization, base_of
from harness.clients.protocol import NOT_JSON
from harness.clients.transport.http_get import GetError, HttpGetter, HttpStatusError
from harness.clients.transport.url import Origin
from harness.errors import TargetError

_CALLS = (("POST", "/reset_prefix_cache"), ("POST", "/flush_cache"), ("GET", "/flush_cache"))
_ABSENT = (404, 405)
_BUSY_S, _PAUSE_S = 10.0, 0.25  # a server may count the last request as running a moment after its answer


@dataclass(frozen=True)
class PrefixCacheReset:
    """The call that empties the cache of the server at ``origin``, with ``headers``."""

    origin: Origin
    method: str
    path: str
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def __call__(self, timeout_s: float = 60.0) -> None:
        """Empty the cache. A server that refuses is asked again for 10 s. Raises TargetError."""
        deadline_s = time.monotonic() + _BUSY_S
        while True:
            try:
                self._call(timeout_s)
                return
            except GetError as error:
                if time.monotonic() > deadline_s or not isinstance(error, HttpStatusError):
                    raise self._problem(error) from error
            time.sleep(_PAUSE_S)

    def exists(self, timeout_s: float = 60.0) -> bool:
        """Whether the server has this call, which it makes. Raises TargetError where the call fails."""
        try:
            self._call(timeout_s)
        except HttpStatusError as error:
            if error.status in _ABSENT:
                return False
            self(timeout_s)
        except GetError as error:
            raise self._problem(error) from error
        return True

    def _call(self, timeout_s: float) -> None:
        headers = tuple({**authorization(), **self.headers}.items())
        with HttpGetter(self.origin.url(self.path), headers, timeout_s, method=self.method) as call:
            body = call.get()
        try:
            answer = msgspec.json.decode(body)
        except NOT_JSON:  # SGLang answers in prose, vLLM with nothing
            return
        if isinstance(answer, dict) and answer.get("success") is False:
            raise HttpStatusError(200, "but no success", "")

    def _problem(self, error: GetError) -> TargetError:
        detail = f": {error.message}" if isinstance(error, HttpStatusError) and error.message else ""
        return TargetError(f"--reset_prefix_cache: {self} at {self.origin} failed ({error}){detail}")


def find_prefix_cache_reset(origin: Origin, path: str, headers: Mapping[str, str]) -> PrefixCacheReset:
    """The call that this server has, after it has emptied the cache once. ``path`` is that of the requests.

    Raises TargetError where the server has none, or the call fails.
    """
    below = base_of(path) or ""
    base = below.removesuffix(BASE) if below.endswith(BASE) else ""
    for method, call in _CALLS:
        reset = PrefixCacheReset(origin, method, base + call, headers)
        if reset.exists():
            return reset
    raise TargetError(
        f"--reset_prefix_cache: {origin} has neither vLLM's /reset_prefix_cache (start it with VLLM_SERVER_DEV_MODE=1) nor "
        "SGLang's /flush_cache; leave the option out, or restart the server before each run"
    )
