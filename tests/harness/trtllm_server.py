"""A server of chat completions that keeps its times of requests as trtllm-serve does.

Written from tensorrt_llm/serve/openai_server.py of NVIDIA/TensorRT-LLM (``get_perf_metrics``, ``_extract_metrics``), and not
tried beside it: a record is kept after the end of the stream was sent, the newest ``most`` are kept, a GET takes all of them.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.harness.chat_server import DONE, Event, chunk
from tests.harness.threaded_http import threaded_http

_TOKENIZE_S, _PREFILL_S, _STEP_S, _NOTED_S = 0.002, 0.01, 0.002, 0.02


@dataclass
class Trtllm:
    """A running server: its port, the bodies of its requests, how many records each GET took, and all records by the number
    of the request that the client gave it.
    """

    port: int
    bodies: list[dict[str, Any]] = field(default_factory=list)
    polls: list[int] = field(default_factory=list)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def trtllm_server(most: int, queue_s: Callable[[int], float], refuses_polls: bool = False) -> Iterator[Trtllm]:
    """A server on a free port of 127.0.0.1. The request with number ``k`` waits for ``queue_s(k)``; ``most`` 0 keeps none."""
    server, lock, numbers, kept = Trtllm(0), threading.Lock(), itertools.count(), deque[dict[str, Any]](maxlen=most)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self._send(200, {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "tensorrt_llm"}]})
            elif self.path == "/perf_metrics" and not refuses_polls:
                with lock:
                    taken = list(kept)
                    kept.clear()
                server.polls.append(len(taken))
                self._send(200, taken)
            else:
                self._send(404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            reached_s = time.monotonic()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.bodies.append(body)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            timing = self._answer(int(body["max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"]))
            self._event(DONE)
            time.sleep(_NOTED_S)
            self._note(timing | {"server_arrival_time": reached_s})
            self.wfile.write(b"0\r\n\r\n")

        def _answer(self, tokens: int) -> dict[str, float]:
            time.sleep(_TOKENIZE_S)
            arrival_s = time.monotonic()
            time.sleep(queue_s(next(numbers)))
            started_s = time.monotonic()
            time.sleep(_PREFILL_S)
            first_s = last_s = time.monotonic()
            for k in range(tokens):
                if k:
                    time.sleep(_STEP_S)
                    last_s = time.monotonic()
                self._event(chunk(content=f" w{k}", reason="length" if k == tokens - 1 else None))
            self._event({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": tokens}})
            return {
                "arrival_time": arrival_s,
                "first_scheduled_time": started_s,
                "first_token_time": first_s,
                "server_first_token_time": first_s,
                "last_token_time": last_s,
            }

        def _note(self, timing: dict[str, float]) -> None:
            blocks = dict.fromkeys(
                ("num_total_allocated_blocks", "num_new_allocated_blocks", "num_reused_blocks", "num_missed_blocks"), 0
            )
            metrics = {"first_iter": 3, "last_iter": 7, "timing_metrics": timing, "kv_cache_metrics": blocks}
            with lock:
                record = {"request_id": len(server.records) + 1, "perf_metrics": metrics}
                kept.append(record)
                server.records[self.headers["X-Request-ID"]] = timing

        def _event(self, event: Event) -> None:
            data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

        def _send(self, status: int, body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with threaded_http(Handler) as port:
        server.port = port
        yield server
