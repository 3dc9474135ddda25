"""Users of an OpenAI server who send requests in windows with delays alone, so that what is measured waits in its queue."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator

from benchmarks.injection.windows import WINDOW_S, injects

_ENDS_S = 2.8  # of a window: what is in flight then ends before the next one
_POLL_S = 0.01
_TOKENS = 48
_TIMEOUT_S = 30.0


@contextlib.contextmanager
def bursts(port: int, users: int) -> Iterator[None]:
    """``users`` send a request after the other to the server on loopback at ``port``, in windows with delays."""
    if not users:
        yield
        return
    over = threading.Event()
    threads = [threading.Thread(target=_send, args=(port, _model(port), over)) for _ in range(users)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _send(port: int, model: str, over: threading.Event) -> None:
    body = json.dumps({"model": model, "prompt": "one two three", "max_tokens": _TOKENS, "ignore_eos": True})
    while not over.wait(_POLL_S):
        now_s = time.monotonic()
        if injects(now_s) and now_s % WINDOW_S < _ENDS_S:
            _answer(port, "POST", "/v1/completions", body)


def _model(port: int) -> str:
    return str(json.loads(_answer(port, "GET", "/v1/models"))["data"][0]["id"])


def _answer(port: int, method: str, path: str, body: str | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"content-type": "application/json"})
        return connection.getresponse().read()
