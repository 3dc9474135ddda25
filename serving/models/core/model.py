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
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.engines import open_engine
from serving.engines.protocol import FinishReason, Increment
from serving.models.core.metrics import CoreMetrics
from serving.models.core.options import engine_options, logits_dtype
from serving.models.core.reply import RichAnswer, SharedSender
from serving.models.core.request import CoreRequest, Deployment, parse_request
from serving.models.core.stream_pace import StreamPace
from serving.models.parameters import Parameters, error_response, refusal
from serving.text.detokenization import END_OF_SEQUENCE, MORE_FOLLOWS, next_context, special_token_ids

_CANCELLATION_CHECKS = 8  # a period; with 128 requests in flight and 100 ms each is asked about every 1.6 s
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """One instance; Triton calls ``initialize`` once and ``execute`` as requests arrive."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        options = engine_options(parameters)
        self._logits_dtype = logits_dtype(args["model_config"])
        self._engine = open_engine(parameters.text("engine"), Path(parameters.text("gpt_model_path")), options)
        self._deployment = Deployment(
            self._engine.limits,
            self._decoupled,
            parameters.boolean("exclude_input_in_output", False),
            options.max_beam_width,
            options.max_num_sequences,
            special_token_ids(Path(parameters.text("tokenizer_dir", ""))),
        )
        self._ids = itertools.count(1)
        self._replies: dict[int, Reply] = {}
        self._outbox: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._pace = StreamPace(parameters.integer("max_stream_interval", 1))
        self._closing = threading.Event()
        self._asked = 0
        self._metrics = CoreMetrics(args["model_name"], args["model_version"])
        cancel_s = parameters.integer("cancellation_check_period_ms", 100) / 1e3
        stats_s = parameters.integer("stats_check_period_ms", 100) / 1e3
        self._threads = [
            threading.Thread(target=self._send_replies, name="replies"),
            threading.Thread(target=self._every, args=(cancel_s, self._cancel_abandoned), name="cancellation"),
            threading.Thread(target=self._every, args=(stats_s, self._tell_stats), name="stats"),
        ]
        self._tell_stats()
        for thread in self._threads:
            thread.start()

    def execute(self, requests: list[Any]) -> None:
        arrival_ns = time.monotonic_ns()
        for request in requests:
            sender = request.get_response_sender()
            try:
                parsed = parse_request(request, self._deployment)
            except Exception as error:
                sender.send(refusal(error, "the request could not be read"), flags=_FINAL)
                continue
            if parsed is None:
                self._stop(sender, request.request_id())
                continue
            shared = SharedSender(sender, len(parsed)) if len(parsed) > 1 else sender
            for one in parsed:
                self._submit(shared, request.request_id(), one, arrival_ns)

    def finalize(self) -> None:
        self._closing.set()
        self._engine.close()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join()

    def _submit(self, sender: Any, client_id: str, parsed: CoreRequest, arrival_ns: int) -> None:
        engine_id = next(self._ids)
        if parsed.is_plain:
            reply = Reply(engine_id, client_id, sender, parsed, self._outbox, self._pace)
        else:
            answer = RichAnswer(parsed, arrival_ns, self._logits_dtype, self._engine.limits.vocabulary_size)
            reply = RichReply(engine_id, client_id, sender, parsed, self._outbox, self._pace, answer)
        self._replies[engine_id] = reply
        if parsed.lora is not None and parsed.sampling.lora_task_id is not None:
            weights, config = parsed.lora.weights.tobytes(), parsed.lora.config.tobytes()
            self._engine.register_lora(parsed.sampling.lora_task_id, weights, config)
        self._engine.submit(
            engine_id, parsed.input_ids, parsed.sampling, reply.add, streaming=parsed.streaming, returns=parsed.returns
        )

    def _stop(self, sender: Any, client_id: str) -> None:
        """Cancel every request in flight that carries the client's id; an unknown id is no error, as upstream's."""
        if not client_id:
            missing = "Trying to stop a request but request ID is not provided"
            sender.send(error_response(missing, invalid=False), flags=_FINAL)
            return
        for reply in list(self._replies.values()):
            if reply.client_id == client_id:
                self._engine.cancel(reply.engine_id)
        sender.send(pb_utils.InferenceResponse([]), flags=_FINAL)

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
            try:
                ended = reply.send()
            except Exception as error:  # Triton's shared memory is full, say: that request's end, and no other's
                pb_utils.Logger.log_error(f"tensorrt_llm: {error!r}")
                reply.fail(f"the response could not be sent: {error}")
                self._engine.cancel(reply.engine_id)
                ended = True
            if ended and self._replies.pop(reply.engine_id, None) is not None and reply.is_answered:
                self._metrics.note_answer(reply.input_tokens, reply.output_tokens)
            self._pace.sent(started_s, time.monotonic())

    def _tell_stats(self) -> None:
        self._metrics.update(self._engine.stats())

    def _every(self, period_s: float, action: Any) -> None:
        while not self._closing.wait(period_s):
            try:
                action()
            except Exception as error:  # once is no reason never to do it again
                pb_utils.Logger.log_error(f"tensorrt_llm: {error!r}")


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
        self._failed = False
        self._request = request
        self._outbox = outbox
        self._pace = pace
        self._begun = False
        self._lock = threading.Lock()
        self.input_tokens = len(request.input_ids)
        self.output_tokens = 0
        self._gathered: list[Any] = []  # tokens
        self._end: Increment | None = None
        self._queued = False
        self._context: list[int] = []

    def add(self, increment: Increment) -> None:
        """Take an increment; called on the engine's thread."""
        with self._lock:
            self._gather(increment)
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
        self.output_tokens += self._count(tokens)
        with self._sending:
            if self._finished:  # it failed, and the engine still had something to deliver
                return True
            if end is not None and end.error is not None:
                self._sender.send(error_response(end.error, invalid=False), flags=_FINAL)
            elif end is not None and end.finish is FinishReason.CANCELLED and self._request.streaming and not tokens:
                self._sender.send(flags=_FINAL)
            else:
                response = self._response(tokens, is_last=end is not None)
                self._sender.send(response, flags=_FINAL if end is not None else 0)
            self._finished = end is not None
        return self._finished

    def fail(self, message: str) -> None:
        """End the reply with an error, if Triton still takes one."""
        with self._sending:
            self._finished = self._failed = True
            with suppress(Exception):
                self._sender.send(error_response(message, invalid=False), flags=_FINAL)

    @property
    def is_answered(self) -> bool:
        """Whether it ended, and not with an error."""
        return self._end is not None and self._end.error is None and not self._failed

    def is_abandoned(self) -> bool:
        """Whether the client gave the request up. Never asked after the last response: Triton 24.10 then reads freed memory."""
        with self._sending:
            return not self._finished and bool(self._sender.is_cancelled())

    def _gather(self, increment: Increment) -> None:
        self._gathered.extend(increment.token_ids)

    def _count(self, gathered: list[Any]) -> int:
        return len(gathered)

    def _response(self, tokens: list[Any], is_last: bool) -> Any:
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
            self._context = next_context(self._context, tokens, request.special_ids)
        if "num_input_tokens" in wanted and request.return_num_input_tokens:
            tensors.append(_int32("num_input_tokens", [len(request.input_ids)], (1, 1)))
        if "num_output_tokens" in wanted and request.return_num_output_tokens:
            tensors.append(_int32("num_output_tokens", [len(tokens)], (1, 1)))
        return pb_utils.InferenceResponse(tensors)


class RichReply(Reply):
    """A reply whose responses hold more than tokens; it gathers increments whole."""

    def __init__(
        self,
        engine_id: int,
        client_id: str,
        sender: Any,
        request: CoreRequest,
        outbox: queue.SimpleQueue[Any],
        pace: StreamPace,
        answer: RichAnswer,
    ) -> None:
        super().__init__(engine_id, client_id, sender, request, outbox, pace)
        self._answer = answer

    def _gather(self, increment: Increment) -> None:
        if increment.token_ids or increment.details is not None:
            self._gathered.append(increment)

    def _count(self, gathered: list[Any]) -> int:
        beams = [beam for increment in gathered if increment.details for beam in increment.details.beams]
        return sum(len(one.token_ids) for one in [*gathered, *beams])

    def _response(self, tokens: list[Any], is_last: bool) -> Any:
        try:
            return pb_utils.InferenceResponse(self._answer.tensors(tokens, is_last))
        except MemoryError:
            return error_response("the answer does not fit into memory; ask for fewer logits", invalid=False)


def _int32(name: str, values: Sequence[int], shape: tuple[int, ...]) -> Any:
    return pb_utils.Tensor(name, np.array(values, dtype=np.int32).reshape(shape))
