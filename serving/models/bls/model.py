"""``tensorrt_llm_bls``: the ensemble's pipeline as a script. One instance runs many requests at once.

It calls ``preprocessing`` and the core model through Triton, and decodes text itself with the functions that
``postprocessing`` uses: one hop less for every streamed token. Beyond the ensemble, text ends before a stop word wherever its
token boundaries are, streamed text can be accumulated, and a draft model can speculate.

Triton 24.10 can deadlock its process, so that sends pulses, and the server's supervisor ends a server whose pulses stop.
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.errors import RequestError, ServingError
from serving.models.bls.core_calls import CoreCalls, Tensors
from serving.models.bls.reply import Reply, Running, StreamedText, int32, key_of, response_of, send_until_closed, texts
from serving.models.bls.request import BlsRequest, core_tensors, read_request
from serving.models.bls.speculative import Speculation, check_speculation
from serving.models.parameters import Parameters
from serving.models.unrequested import zeros_of_release
from serving.pulse import send_pulses
from serving.text.detokenization import special_token_ids
from serving.text.generated_text import GeneratedText, TextStream
from serving.text.tokenizer import load_tokenizer

_CANCELLATION_PERIOD_S = 0.1
_CANCELLATION_CHECKS = 8  # per period: each is a server round trip
_STOP_AGAIN_AFTER_S = 1.0
_THREADS = 256
_SHORT_WAIT_S = 0.1


class TritonPythonModel:
    """One model instance; ``execute`` submits each request to a thread pool and returns."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        tokenizer_dir = parameters.folder("tokenizer_dir")
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))
        self._core_name = parameters.text("tensorrt_llm_model_name", "tensorrt_llm")
        self._draft_name = parameters.text("tensorrt_llm_draft_model_name", "")
        self._exclude_input = parameters.boolean("exclude_input_in_output", False)
        self._zeros = zeros_of_release(parameters)
        self._accumulate = parameters.boolean("accumulate_tokens", False)
        self._tokenizer = load_tokenizer(tokenizer_dir)
        self._special_ids = special_token_ids(tokenizer_dir)
        self._skip_special_tokens = parameters.boolean("skip_special_tokens", True)
        self._core = CoreCalls()
        self._running: dict[str, Running] = {}
        self._next_check = 0
        self._closing = threading.Event()
        self._outbox: queue.SimpleQueue[StreamedText | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="bls")
        self._stopping = ThreadPoolExecutor(2, thread_name_prefix="stopping")  # must not queue behind running requests
        self._threads = [
            threading.Thread(target=send_until_closed, args=(self._outbox, _log), name="replies"),
            threading.Thread(target=self._watch_for_cancellation, name="cancellation"),
            threading.Thread(target=send_pulses, args=(args["model_name"], self._closing), name="pulses"),
        ]
        for thread in self._threads:
            thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._pool.submit(self._serve, request, request.get_response_sender(), time.monotonic())

    def finalize(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._closing.set()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join()
        self._stopping.shutdown(wait=True)

    def _serve(self, triton_request: Any, sender: Any, arrived_s: float) -> None:
        reply = Reply(sender)
        if time.monotonic() - arrived_s > _SHORT_WAIT_S and reply.is_abandoned():  # while queued for a thread
            reply.fail(RequestError("the client cancelled the request"))
            return
        try:
            request = read_request(triton_request, self._exclude_input, self._decoupled, self._zeros)
            running = Running(reply, self._core_name, uuid.uuid4().hex)
            if request.num_draft_tokens or request.use_draft_logits:
                check_speculation(request, self._draft_name)
                serve = self._speculate
            elif request.streaming:
                if request.beam_width > 1:
                    raise RequestError(
                        f"stream: not supported with a beam_width of {request.beam_width}; beams are known at their end"
                    )
                serve = self._stream
            elif self._may_stop_early(request):
                serve = self._answer_up_to_stop_word
            else:
                serve = self._answer_whole
            self._running[running.core_id] = running
            try:
                serve(request, running)
            finally:
                self._running.pop(running.core_id, None)
        except Exception as error:
            _log_if_internal(error)
            reply.fail(error)

    def _new_text(self, request: BlsRequest, row: int) -> GeneratedText:
        stream = TextStream(self._tokenizer, self._skip_special_tokens, self._special_ids)
        return GeneratedText(stream, request.stop_words[row], () if request.excludes_input else request.prompts[row])

    def _may_stop_early(self, request: BlsRequest) -> bool:
        """Whether to read an unstreamed answer token by token, so that a stop word ends generation and not only the text."""
        return bool(
            self._decoupled and request.sequences == 1 and request.stop_words[0] and request.beam_width == 1
            and not request.passed_on
        )  # fmt: skip

    def _core_responses(self, request: BlsRequest, running: Running, streaming: bool, counts: bool = False) -> Any:
        inputs = request.core_inputs | {"streaming": np.full((len(request.prompts), 1), streaming)}
        outputs = request.core_outputs + request.counts * counts
        return self._core.responses(running.model_name, running.core_id, core_tensors(inputs), outputs, running.reply.is_gone)

    def _answer_whole(self, request: BlsRequest, running: Running) -> None:
        """One response per sequence; the last carries the final flag."""
        unanswered = request.sequences
        last = None
        with self._core_responses(request, running, streaming=False, counts=True) as responses:
            for tensors in responses:
                unanswered -= 1
                response = self._whole_response(request, tensors)
                if unanswered == 0:
                    last = response
                else:
                    running.reply.send(response)
        if unanswered == request.sequences:
            raise ServingError(f"{running.model_name} ended the request without a response")
        running.reply.send(last, final=True)

    def _whole_response(self, request: BlsRequest, tensors: Tensors) -> Any:
        row, _ = key_of(tensors)
        beams = tensors["output_ids"].as_numpy()[0]
        lengths = [beams.shape[1]] * len(beams)
        if "sequence_length" in tensors:
            lengths = tensors["sequence_length"].as_numpy().reshape(-1).tolist()
        values = {**request.zeros, **{name: tensor.as_numpy() for name, tensor in tensors.items()}}
        values["text_output"] = texts(
            [self._whole_text(request, row, beam[:length].tolist()) for beam, length in zip(beams, lengths, strict=True)]
        )
        return response_of(values, request.wanted)

    def _whole_text(self, request: BlsRequest, row: int, token_ids: list[int]) -> str:
        text = self._new_text(request, row)
        text.add(token_ids, is_last=True)
        return text.whole()

    def _answer_up_to_stop_word(self, request: BlsRequest, running: Running) -> None:
        text = self._new_text(request, 0)
        tokens = 0
        with self._core_responses(request, running, streaming=True) as responses:
            for tensors in responses:
                token_ids = tensors["output_ids"].as_numpy().reshape(-1).tolist()
                tokens += len(token_ids)
                text.add(token_ids)
                if text.stopped:
                    self._stop(running)
                    break
        text.add((), is_last=True)
        values = {"text_output": texts([text.whole()]), **request.zeros}
        if request.flag("return_num_input_tokens"):
            values["num_input_tokens"] = int32(len(request.prompts[0]))
        if request.flag("return_num_output_tokens"):
            values["num_output_tokens"] = int32(tokens)
        running.reply.send(response_of(values, request.wanted), final=True)

    def _stream(self, request: BlsRequest, running: Running) -> None:
        stream = StreamedText(
            running.reply,
            request,
            lambda row: self._new_text(request, row),
            self._accumulate,
            self._outbox,
            on_stop=lambda: self._stopping.submit(self._stop, running),
        )
        try:
            with self._core_responses(request, running, streaming=True) as responses:
                for tensors in responses:
                    stream.add(tensors)
        except Exception as error:  # the error is sent after the text generated before it
            _log_if_internal(error)
            stream.fail(error)
        else:
            stream.close()

    def _speculate(self, request: BlsRequest, running: Running) -> None:
        Speculation(self._core, request, running, self._core_name, self._draft_name, self._new_text(request, 0)).run()

    def _stop(self, running: Running) -> None:
        self._core.stop(running.model_name, running.core_id, running.reply.is_gone)

    def _watch_for_cancellation(self) -> None:
        """Check a few requests per period, in rotation, and more at once as long as some of them are abandoned."""
        while not self._closing.wait(_CANCELLATION_PERIOD_S):
            waiting = list(self._running.values())
            self._next_check = (self._next_check + _CANCELLATION_CHECKS) % max(1, len(waiting))
            rotation = iter([*waiting[self._next_check :], *waiting[: self._next_check]])
            try:
                while any(self._stop_abandoned(running) for running in itertools.islice(rotation, _CANCELLATION_CHECKS)):
                    pass
            except Exception as error:  # one failure must not end the periodic work
                _log(error)

    def _stop_abandoned(self, running: Running) -> bool:
        """Stop an abandoned request in the core model; repeated after a while, as a stop may arrive before its request."""
        now_s = time.monotonic()
        if now_s < running.stop_again_s or not running.reply.is_abandoned():
            return False
        running.cancelled = True
        running.stop_again_s = now_s + _STOP_AGAIN_AFTER_S
        self._stopping.submit(self._stop, running)
        return True


def _log_if_internal(error: Exception) -> None:
    """Log the traceback of an unexpected error; the client gets the message only."""
    if not isinstance(error, ServingError):
        _log(error)


def _log(error: Exception) -> None:
    pb_utils.Logger.log_error(f"tensorrt_llm_bls: {''.join(traceback.format_exception(error))}")
