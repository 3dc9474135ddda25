"""``tensorrt_llm``: token ids in, token ids out, over an engine that batches in flight.

``execute`` only reads requests and submits them; answers leave later, through each request's response sender, from a
thread of their own, so that the engine's next step never waits for a response. When responses leave slower than tokens
come, the tokens that gathered meanwhile go out together in one response (see ``stream_pace``).
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.detokenization import CONTEXT_TOKENS, END_OF_SEQUENCE, MORE_FOLLOWS
from serving.engines import open_engine
from serving.engines.protocol import EngineOptions, FinishReason, Increment
from serving.errors import RequestError
from serving.models.core_metrics import CoreMetrics
from serving.models.core_request import CoreRequest, parse_request
from serving.models.parameters import Parameters, error_response
from serving.models.stream_pace import StreamPace

_CANCELLATION_CHECKS = 8  # a period; with 128 requests in flight and 100 ms each is asked about every 1.6 s
_MAX_STREAM_INTERVAL = 4  # tokens
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """One instance; Triton calls ``initialize`` once and ``execute`` as requests arrive."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self._exclude_input = parameters.boolean("exclude_input_in_output", False)
        self._engine = open_engine(
            parameters.text("engine"), Path(parameters.text("gpt_model_path")), _engine_options(parameters)
        )
        self._ids = itertools.count(1)
        self._replies: dict[int, Reply] = {}
        self._outbox: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._pace = StreamPace(parameters.integer("max_stream_interval", _MAX_STREAM_INTERVAL))
        self._closing = threading.Event()
        self._asked = 0
        metrics = CoreMetrics(args["model_name"], args["model_version"])
        cancel_s = parameters.integer("cancellation_check_period_ms", 100) / 1e3
        stats_s = parameters.integer("stats_check_period_ms", 100) / 1e3
        self._threads = [
            threading.Thread(target=self._send_replies, name="replies"),
            threading.Thread(target=self._every, args=(cancel_s, self._cancel_abandoned), name="cancellation"),
            threading.Thread(target=self._every, args=(stats_s, lambda: metrics.update(self._engine.stats())), name="stats"),
        ]
        for thread in self._threads:
            thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            try:
                parsed = parse_request(request, self._engine.limits, self._decoupled, self._exclude_input)
            except RequestError as error:
                sender.send(error_response(str(error)), flags=_FINAL)
                continue
            if parsed is None:
                self._stop(request.request_id())
                sender.send(pb_utils.InferenceResponse([]), flags=_FINAL)
            else:
                self._submit(sender, request.request_id(), parsed)

    def finalize(self) -> None:
        self._closing.set()
        self._engine.close()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join()

    def _submit(self, sender: Any, client_id: str, parsed: CoreRequest) -> None:
        reply = Reply(next(self._ids), client_id, sender, parsed, self._outbox, self._pace)
        self._replies[reply.engine_id] = reply
        self._engine.submit(reply.engine_id, parsed.input_ids, parsed.sampling, reply.add, streaming=parsed.streaming)

    def _stop(self, client_id: str) -> None:
        """Cancel every request in flight that carries the client's id; an unknown id is no error, as upstream's."""
        if not client_id:
            return
        for reply in list(self._replies.values()):
            if reply.client_id == client_id:
                self._engine.cancel(reply.engine_id)

    def _cancel_abandoned(self) -> None:
        """Ask about a few requests, in turn: each question is a round trip to the server, which must not crowd out tokens."""
        waiting = list(self._replies.values())
        self._asked = (self._asked + _CANCELLATION_CHECKS) % max(1, len(waiting))
        for reply in itertools.islice(itertools.chain(waiting[self._asked :], waiting[: self._asked]), _CANCELLATION_CHECKS):
            if reply.is_abandoned():
                self._engine.cancel(reply.engine_id)

    def _send_replies(self) -> None:
        while (reply := self._outbox.get()) is not None:
            started_s = time.monotonic()
            if reply.send():
                self._replies.pop(reply.engine_id, None)
            self._pace.sent(started_s, time.monotonic())

    def _every(self, period_s: float, action: Any) -> None:
        while not self._closing.wait(period_s):
            action()


class Reply:
    """The answer to one request: gathers what the engine delivers, and sends what has gathered."""

    def __init__(
        self,
        engine_id: int,
        client_id: str,
        sender: Any,
        request: CoreRequest,
        outbox: queue.SimpleQueue[Any],
        pace: StreamPace,
    ) -> None:
        self.engine_id = engine_id
        self.client_id = client_id
        self._sender = sender
        self._sending = threading.Lock()
        self._finished = False
        self._request = request
        self._outbox = outbox
        self._pace = pace
        self._begun = False
        self._lock = threading.Lock()
        self._gathered: list[int] = []
        self._end: Increment | None = None
        self._queued = False
        self._context: list[int] = []

    def add(self, increment: Increment) -> None:
        """Take an increment; called on the engine's thread."""
        with self._lock:
            self._gathered.extend(increment.token_ids)
            if increment.is_last:
                self._end = increment
            if self._queued or (self._begun and not increment.is_last and len(self._gathered) < self._pace.interval_tokens):
                return
            self._queued = self._begun = True
        self._outbox.put(self)

    def send(self) -> bool:
        """Send one response with everything gathered; returns whether it was the last. Called on the sending thread."""
        with self._lock:
            tokens, self._gathered = self._gathered, []
            end, self._queued = self._end, False
        with self._sending:
            if end is not None and end.error is not None:
                self._sender.send(error_response(end.error, invalid=False), flags=_FINAL)
            elif end is not None and end.finish is FinishReason.CANCELLED and self._request.streaming and not tokens:
                self._sender.send(flags=_FINAL)
            else:
                response = self._response(tokens, is_last=end is not None)
                self._sender.send(response, flags=_FINAL if end is not None else 0)
            self._finished = end is not None
        return self._finished

    def is_abandoned(self) -> bool:
        """Whether the client gave the request up. Never asked after the last response: Triton 24.10 then reads freed memory."""
        with self._sending:
            return not self._finished and bool(self._sender.is_cancelled())

    def _response(self, tokens: list[int], is_last: bool) -> Any:
        request = self._request
        wanted = request.wanted_outputs
        output_ids = tokens if request.exclude_input else [*request.input_ids, *tokens]
        tensors = []
        if "output_ids" in wanted:
            tensors.append(_int32("output_ids", output_ids, (1, 1, len(output_ids))))
        if "sequence_length" in wanted:
            tensors.append(_int32("sequence_length", [len(output_ids)], (1, 1)))
        if "detokenization_context" in wanted:
            context = [END_OF_SEQUENCE if is_last else MORE_FOLLOWS, *self._context]
            tensors.append(_int32("detokenization_context", context, (1, len(context))))
            self._context = [*self._context, *tokens][-CONTEXT_TOKENS:]
        if "num_input_tokens" in wanted and request.return_num_input_tokens:
            tensors.append(_int32("num_input_tokens", [len(request.input_ids)], (1, 1)))
        if "num_output_tokens" in wanted and request.return_num_output_tokens:
            tensors.append(_int32("num_output_tokens", [len(tokens)], (1, 1)))
        return pb_utils.InferenceResponse(tensors)


def _int32(name: str, values: Sequence[int], shape: tuple[int, ...]) -> Any:
    return pb_utils.Tensor(name, np.array(values, dtype=np.int32).reshape(shape))


def _engine_options(parameters: Parameters) -> EngineOptions:
    default = EngineOptions()
    return EngineOptions(
        max_tokens_in_paged_kv_cache=parameters.integer("max_tokens_in_paged_kv_cache", default.max_tokens_in_paged_kv_cache),
        max_num_sequences=parameters.integer("max_num_sequences", default.max_num_sequences),
        max_num_tokens=parameters.integer("max_num_tokens", default.max_num_tokens),
        enable_kv_cache_reuse=parameters.boolean("enable_kv_cache_reuse", default.enable_kv_cache_reuse),
        enable_chunked_context=parameters.boolean("enable_chunked_context", default.enable_chunked_context),
    )
