"""``tensorrt_llm_bls``: the same pipeline as the ensemble, scripted. Many requests run at once in one instance.

It asks ``preprocessing`` and the core model through Triton, and decodes text itself with the functions that
``postprocessing`` uses: one hop less for every streamed token.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.detokenization import CONTEXT_TOKENS, decode, decode_piece, load_tokenizer
from serving.errors import RequestError
from serving.models.parameters import Parameters, error_response, scalar
from serving.routing import CLIENT_TO_PREPROCESSING, PREPROCESSING_TO_CORE, client_to_core
from serving.tensors import BLS_INPUTS

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_CANCELLATION_CHECK_S = 0.1
_FORGOTTEN_AFTER_S = 10.0
_THREADS = 256

_TO_CORE = client_to_core(BLS_INPUTS)
_UNSUPPORTED = ("image_input", "num_draft_tokens", "use_draft_logits")
_PASSED_ON = ("num_input_tokens", "num_output_tokens")


class TritonPythonModel:
    """One instance; ``execute`` hands each request to a thread and returns."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = Parameters(args["model_config"])
        self._core_name = parameters.text("tensorrt_llm_model_name", "tensorrt_llm")
        self._accumulate = parameters.boolean("accumulate_tokens", False)
        self._tokenizer = load_tokenizer(Path(parameters.text("tokenizer_dir")))
        self._skip_special_tokens = parameters.boolean("skip_special_tokens", True)
        self._kept: deque[tuple[float, Any]] = deque()
        self._keeping = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="bls")

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._pool.submit(self._serve, request, request.get_response_sender())

    def finalize(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _serve(self, request: Any, sender: Any) -> None:
        try:
            self._generate(request, sender)
        except RequestError as error:
            sender.send(error_response(str(error)), flags=_FINAL)
        except Exception as error:  # anything else is ours; the client gets a sentence, the log gets the traceback
            pb_utils.Logger.log_error(f"tensorrt_llm_bls: {error!r}")
            sender.send(error_response(f"the BLS model failed: {error}", invalid=False), flags=_FINAL)

    def _generate(self, request: Any, sender: Any) -> None:
        for name in _UNSUPPORTED:
            if pb_utils.get_input_tensor_by_name(request, name) is not None:
                raise RequestError(f"{name}: the embedded engine does not support it")
        inputs = self._preprocess(request) + _renamed(request, _TO_CORE)
        core_id = uuid.uuid4().hex
        streaming = bool(scalar(request, "stream"))
        core_request = pb_utils.InferenceRequest(
            request_id=core_id,
            model_name=self._core_name,
            inputs=inputs,
            # Only what the client named: the stub would drop the others from a response without holding the GIL.
            requested_output_names=["output_ids", "sequence_length", *_wanted(request)],
        )
        if not streaming:
            self._answer_once(core_request, sender)
        else:
            self._stream(core_request, core_id, sender)

    def _preprocess(self, request: Any) -> list[Any]:
        answer = pb_utils.InferenceRequest(
            model_name="preprocessing",
            inputs=_renamed(request, CLIENT_TO_PREPROCESSING),
            requested_output_names=list(PREPROCESSING_TO_CORE),
        ).exec()
        _raise_error(answer)
        return [pb_utils.Tensor(PREPROCESSING_TO_CORE[tensor.name()], tensor.as_numpy()) for tensor in answer.output_tensors()]

    def _answer_once(self, core_request: Any, sender: Any) -> None:
        with self._core_answers(core_request, sender) as all_answers:
            answers = [answer for answer in all_answers if _has_tokens(answer)]
        if len(answers) != 1:
            raise RequestError(f"{self._core_name} gave {len(answers)} answers to one unstreamed request")
        text = decode(self._tokenizer, _tokens(answers[0]), self._skip_special_tokens)
        sender.send(_text_response(text, answers[0]), flags=_FINAL)

    def _stream(self, core_request: Any, core_id: str, sender: Any) -> None:
        """One response behind the core model, so that the last text response carries the FINAL flag."""
        seen: list[int] = []
        waiting: Any = None
        checked_s = time.monotonic()
        with self._core_answers(core_request, sender) as answers:
            for answer in answers:
                if not _has_tokens(answer):
                    continue
                if waiting is not None:
                    sender.send(self._next_response(seen, waiting, is_last=False))
                waiting = answer
                if time.monotonic() - checked_s > _CANCELLATION_CHECK_S:
                    checked_s = time.monotonic()
                    if sender.is_cancelled():
                        self._stop(core_id, sender)
        if waiting is None:
            sender.send(flags=_FINAL)
        else:
            sender.send(self._next_response(seen, waiting, is_last=True), flags=_FINAL)

    @contextmanager
    def _core_answers(self, core_request: Any, sender: Any) -> Iterator[Iterator[Any]]:
        """The core model's answers, kept alive until Triton's stub has forgotten them. Use before the final send alone.

        The stub of Triton 24.10 forgets an ended iterator on a thread that does not hold the GIL
        (``Stub::SendCleanupId``). Were that the last reference, its tensors' Python objects would be freed there, and the
        heap of this process broken; one in a thousand requests ended so. That thread works first in, first out, so an answer
        to a question asked after the iterator's end says that it has passed. Once the client is gone the stub knows the
        answer by itself, and time must do.
        """
        answers = core_request.exec(decoupled=True)
        try:
            yield answers
        finally:
            for _ in answers:  # an iterator that has not reached its end is never forgotten
                pass
            if sender.is_cancelled():
                self._keep_a_while(answers)

    def _keep_a_while(self, answers: Any) -> None:
        now_s = time.monotonic()
        with self._keeping:
            self._kept.append((now_s + _FORGOTTEN_AFTER_S, answers))
            while self._kept[0][0] < now_s:
                self._kept.popleft()

    def _next_response(self, seen: list[int], answer: Any, is_last: bool) -> Any:
        new = _tokens(answer)
        if self._accumulate:
            text = decode(self._tokenizer, seen + new, self._skip_special_tokens)
        else:
            text = decode_piece(self._tokenizer, seen[-CONTEXT_TOKENS:], new, is_last, self._skip_special_tokens)
        seen.extend(new)
        return _text_response(text, answer)

    def _stop(self, core_id: str, sender: Any) -> None:
        inputs = [
            pb_utils.Tensor("input_ids", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("input_lengths", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("request_output_len", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("stop", np.ones((1, 1), np.bool_)),
        ]
        stop = pb_utils.InferenceRequest(
            request_id=core_id, model_name=self._core_name, inputs=inputs, requested_output_names=["output_ids"]
        )
        with self._core_answers(stop, sender):
            pass


def _renamed(request: Any, names: dict[str, str]) -> list[Any]:
    renamed = []
    for tensor in request.inputs():
        if tensor.name() in names:
            values = tensor.as_numpy()
            values = values[:, np.newaxis] if values.ndim == 1 else values  # undo `reshape: []`
            renamed.append(pb_utils.Tensor(names[tensor.name()], values))
    return renamed


def _wanted(request: Any) -> list[str]:
    """The outputs passed on from the core model that the client asked for; Triton names them all where a client names none."""
    named = request.requested_output_names()
    return [name for name in _PASSED_ON if name in named]


def _raise_error(answer: Any) -> None:
    if answer.has_error():
        raise RequestError(answer.error().message())


def _has_tokens(answer: Any) -> bool:
    _raise_error(answer)
    return len(answer.output_tensors()) > 0


def _tokens(answer: Any) -> list[int]:
    ids = pb_utils.get_output_tensor_by_name(answer, "output_ids").as_numpy().reshape(-1)
    length = pb_utils.get_output_tensor_by_name(answer, "sequence_length").as_numpy().reshape(-1)[0]
    tokens: list[int] = ids[:length].tolist()
    return tokens


def _text_response(text: str, answer: Any) -> Any:
    tensors = [pb_utils.Tensor("text_output", np.array([[text.encode("utf-8")]], dtype=np.object_))]
    for name in _PASSED_ON:
        tensor = pb_utils.get_output_tensor_by_name(answer, name)
        if tensor is not None:
            tensors.append(pb_utils.Tensor(name, tensor.as_numpy()))
    return pb_utils.InferenceResponse(tensors)
