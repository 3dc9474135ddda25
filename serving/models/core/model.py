"""``tensorrt_llm``: token ids in, token ids out, over an engine with in-flight batching.

``execute`` parses and submits requests and returns. Other threads send the responses through each request's response sender,
so the engine's next step never waits for a response: a sent response waits, without the interpreter's lock, until Triton has
taken it. When sending is slower than generation, tokens accumulate and leave together in one response (see ``stream_pace``).

Triton 24.10 never answers the requests that an ended process had, so it sends pulses, and the server's supervisor ends a server
whose pulses stop.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import triton_python_backend_utils as pb_utils

from serving.engines import open_engine, open_shared_engine
from serving.engines.protocol import Engine, EngineOptions, Front
from serving.models.core.metrics import CoreMetrics
from serving.models.core.options import engine_options, logits_dtype, wraps_ids
from serving.models.core.reply import Reply, SharedSender
from serving.models.core.request import CoreRequest, Deployment, parse_request
from serving.models.core.responses import DetailedResponses, ResponseBuilder, TokenResponses
from serving.models.core.sending import SendingThreads, sending_threads
from serving.models.parameters import Parameters, error_response, response_to_error
from serving.models.unrequested import zeros_of_release
from serving.pulse import send_pulses
from serving.text.detokenization import special_token_ids

_CANCELLATION_CHECKS = 8  # per period: with 128 requests in flight and 100 ms, each is checked every 1.6 s
_RESET = "reset_prefix_cache"  # parameter of a request, whose inputs are then not read
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """One model instance; Triton calls ``initialize`` once and ``execute`` as requests arrive."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        options = engine_options(parameters)
        self._logits_dtype = logits_dtype(args["model_config"])
        self._replies: dict[int, Reply[Any]] = {}
        self._is_first = _instance_number(args) == 0
        self._announce_stop: Callable[[str], None] = lambda client_id: None
        self._engine = self._open_engine(args, parameters, options)
        self._deployment = Deployment(
            self._engine.limits,
            self._decoupled,
            parameters.boolean("exclude_input_in_output", False),
            options.max_beam_width,
            options.max_num_sequences,
            special_token_ids(parameters.folder("tokenizer_dir", "")),
            wraps_ids(parameters),
            zeros_of_release(parameters),
        )
        self._ids = itertools.count(1)
        self._sending = SendingThreads(
            sending_threads(parameters.integer("core_instance_count", 1)),
            parameters.integer("max_stream_interval", 1),
            self._send,
        )
        self._closing = threading.Event()
        self._next_check = 0
        self._metrics = CoreMetrics(args["model_name"], args["model_version"])
        cancel_s = parameters.integer("cancellation_check_period_ms", 100) / 1e3
        stats_s = parameters.integer("stats_check_period_ms", 100) / 1e3
        self._threads = [
            threading.Thread(target=self._every, args=(cancel_s, self._cancel_abandoned), name="cancellation"),
            threading.Thread(target=self._every, args=(stats_s, self._publish_stats), name="stats"),
            threading.Thread(target=send_pulses, args=(args["model_name"], self._closing), name="pulses"),
        ]
        self._publish_stats()
        for thread in self._threads:
            thread.start()

    def _open_engine(self, args: dict[str, str], parameters: Parameters, options: EngineOptions) -> Engine:
        name, folder = parameters.text("engine"), parameters.folder("gpt_model_path")
        instances = parameters.integer("core_instance_count", 1)
        if instances == 1:
            return open_engine(name, folder, options)
        front = Front(_instance_number(args), instances, _meeting(args), self._stop_requests)
        shared = open_shared_engine(name, folder, options, front)
        self._announce_stop = shared.announce_stop
        return shared

    def execute(self, requests: list[Any]) -> None:
        arrival_ns = time.monotonic_ns()
        for request in requests:
            sender = request.get_response_sender()
            if _RESET in request.parameters():
                threading.Thread(target=self._reset_prefix_cache, args=(sender,), name="prefix cache").start()
                continue
            try:
                parsed = parse_request(request, self._deployment)
            except Exception as error:
                sender.send(response_to_error(error, "the request could not be read"), flags=_FINAL)
                continue
            if parsed is None:
                self._stop(sender, request.request_id())
                continue
            shared = SharedSender(sender, len(parsed)) if len(parsed) > 1 else sender
            for sequence in parsed:
                self._submit(shared, request.request_id(), sequence, arrival_ns)

    def finalize(self) -> None:
        self._closing.set()
        self._engine.close()
        self._sending.close()
        for thread in self._threads:
            thread.join()

    def _submit(self, sender: Any, client_id: str, parsed: CoreRequest, arrival_ns: int) -> None:
        engine_id = next(self._ids)
        reply = Reply(engine_id, client_id, sender, self._responses(parsed, arrival_ns), self._sending.lane(engine_id))
        self._replies[engine_id] = reply
        if parsed.lora is not None and parsed.sampling.lora_task_id is not None:
            weights, config = parsed.lora.weights.tobytes(), parsed.lora.config.tobytes()
            self._engine.register_lora(parsed.sampling.lora_task_id, weights, config)
        self._engine.submit(
            engine_id, parsed.input_ids, parsed.sampling, reply.add, streaming=parsed.streaming, returns=parsed.returns
        )

    def _responses(self, parsed: CoreRequest, arrival_ns: int) -> ResponseBuilder[Any]:
        if parsed.is_plain:
            return TokenResponses(parsed)
        return DetailedResponses(parsed, arrival_ns, self._logits_dtype, self._engine.limits.vocabulary_size)

    def _stop(self, sender: Any, client_id: str) -> None:
        """Cancel every request in flight with the client's id. An unknown id is no error, as in upstream's model."""
        if not client_id:
            missing = "Trying to stop a request but request ID is not provided"
            sender.send(error_response(missing, invalid=False), flags=_FINAL)
            return
        self._stop_requests(client_id)
        self._announce_stop(client_id)
        sender.send(pb_utils.InferenceResponse([]), flags=_FINAL)

    def _stop_requests(self, client_id: str) -> None:
        for reply in list(self._replies.values()):
            if reply.client_id == client_id:
                self._engine.cancel(reply.engine_id)

    def _reset_prefix_cache(self, sender: Any) -> None:
        """Answer a request with the parameter ``reset_prefix_cache``: nothing where the cache is empty, or else an error."""
        try:
            self._engine.reset_prefix_cache()
        except Exception as error:  # without a response the client would wait until its time-out
            sender.send(response_to_error(error, _RESET), flags=_FINAL)
            return
        sender.send(pb_utils.InferenceResponse([]), flags=_FINAL)

    def _cancel_abandoned(self) -> None:
        """Check a few requests per period, in rotation: each check is a server round trip, which must not delay tokens."""
        waiting = list(self._replies.values())
        self._next_check = (self._next_check + _CANCELLATION_CHECKS) % max(1, len(waiting))
        rotation = itertools.chain(waiting[self._next_check :], waiting[: self._next_check])
        for reply in itertools.islice(rotation, _CANCELLATION_CHECKS):
            if reply.is_abandoned():
                self._engine.cancel(reply.engine_id)

    def _send(self, reply: Reply[Any]) -> None:
        try:
            ended = reply.send()
        except Exception as error:  # for example a full shared memory; it ends this request only
            pb_utils.Logger.log_error(f"tensorrt_llm: {error!r}")
            reply.fail(f"the response could not be sent: {error}")
            self._engine.cancel(reply.engine_id)
            ended = True
        if ended and self._replies.pop(reply.engine_id, None) is not None and reply.is_answered:
            self._metrics.note_answer(reply.input_tokens, reply.output_tokens)

    def _publish_stats(self) -> None:
        """The engine's statistics are published by the first of the instances that share it, lengths of answers by each."""
        if self._is_first:
            self._metrics.update(self._engine.stats())
        else:
            self._metrics.publish_answers()

    def _every(self, period_s: float, action: Any) -> None:
        while not self._closing.wait(period_s):
            try:
                action()
            except Exception as error:  # one failure must not end the periodic work
                pb_utils.Logger.log_error(f"tensorrt_llm: {error!r}")


def _instance_number(args: dict[str, str]) -> int:
    return int(args["model_instance_name"].rpartition("_")[2])


def _meeting(args: dict[str, str]) -> str:
    """The name at which the instances of this model meet: Triton's process is the parent of them all."""
    model = "/".join((str(os.getppid()), args["model_repository"], args["model_name"], args["model_version"]))
    return hashlib.blake2b(model.encode(), digest_size=16).hexdigest()
