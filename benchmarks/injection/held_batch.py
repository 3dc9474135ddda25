"""Users who hold the batch of an OpenAI server for a known time, so that requests wait in its queue."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator

from benchmarks.injection.windows import until_stop_s

_HELD_S = 0.6
_TOKENS = 900  # more than are generated meanwhile
_TIMEOUT_S = 30.0


@contextlib.contextmanager
def held_batch(port: int, users: int) -> Iterator[list[tuple[int, int]]]:
    """Twice in each window with delays, ``users`` have an answer each from the server on loopback at ``port``, as many as its
    batch has places, and break off together. Yields from when to when all of them had one, in ns of the monotonic clock.
    """
    over, held = threading.Event(), list[tuple[int, int]]()
    thread = threading.Thread(target=_hold, args=(port, users, over, held))
    if users:
        thread.start()
    try:
        yield held
    finally:
        over.set()
        if users:
            thread.join()


def _hold(port: int, users: int, over: threading.Event, held: list[tuple[int, int]]) -> None:
    model = served_model(port)
    while not over.wait(until_stop_s(time.monotonic())):
        with contextlib.ExitStack() as answers:
            asked = [answers.enter_context(contextlib.closing(_ask(port, model))) for _ in range(users)]
            for connection in asked:
                connection.getresponse().readline()  # its first token
            from_ns = time.monotonic_ns()
            time.sleep(_HELD_S)
            to_ns = time.monotonic_ns()
        held.append((from_ns, to_ns))


def _ask(port: int, model: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    fields = {"model": model, "prompt": "one two three", "max_tokens": _TOKENS, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(fields), {"content-type": "application/json"})
    return connection


def served_model(port: int) -> str:
    """The first model that the server on loopback at ``port`` names."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)) as connection:
        connection.request("GET", "/v1/models")
        return str(json.loads(connection.getresponse().read())["data"][0]["id"])
