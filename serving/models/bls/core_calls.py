"""Asking another model on the same Triton, safely: its errors, its many answers, and stopping it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.errors import ServingError

_FORGOTTEN_AFTER_S = 10.0


class CalledModelError(ServingError):
    """Another model refused or failed; ``code`` is Triton's, to be passed on."""

    def __init__(self, message: str, code: Any) -> None:
        super().__init__(message)
        self.code = code


def ask_once(model_name: str, inputs: list[Any], outputs: list[str]) -> dict[str, Any]:
    """The output tensors, by name, of a model that answers once. Raises CalledModelError."""
    request = pb_utils.InferenceRequest(model_name=model_name, inputs=inputs, requested_output_names=outputs)
    return tensors_of(request.exec())


def tensors_of(answer: Any) -> dict[str, Any]:
    """The output tensors of an answer by name. Raises CalledModelError."""
    if answer.has_error():
        error = answer.error()
        raise CalledModelError(error.message(), error.code())
    return {tensor.name(): tensor for tensor in answer.output_tensors()}


class CoreCalls:
    """Calls of a core model: an answer for every piece, and ``stop``."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Any]] = deque()
        self._keeping = threading.Lock()

    @contextmanager
    def answers(
        self, model_name: str, request_id: str, inputs: list[Any], outputs: Sequence[str], is_gone: Callable[[], bool]
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The tensors of every answer that has any, as they come. Leaving early stops the request. Raises CalledModelError.

        ``outputs`` must name only what is wanted: the stub would drop other tensors from an answer without holding the GIL.
        ``is_gone`` asks the server whether the client gave up, and says True when that cannot be asked any more.
        """
        request = pb_utils.InferenceRequest(
            request_id=request_id, model_name=model_name, inputs=inputs, requested_output_names=list(outputs)
        )
        with self._kept_alive(request.exec(decoupled=True), is_gone) as answers:
            try:
                yield (tensors for answer in answers if (tensors := tensors_of(answer)))
            except BaseException:
                self.stop(model_name, request_id, is_gone)
                raise

    def stop(self, model_name: str, request_id: str, is_gone: Callable[[], bool]) -> None:
        """End the requests of that id at once, wherever they are in the core model; an unknown id is no error."""
        inputs = [
            pb_utils.Tensor("input_ids", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("input_lengths", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("request_output_len", np.zeros((1, 1), np.int32)),
            pb_utils.Tensor("stop", np.ones((1, 1), np.bool_)),
        ]
        request = pb_utils.InferenceRequest(
            request_id=request_id, model_name=model_name, inputs=inputs, requested_output_names=["output_ids"]
        )
        with self._kept_alive(request.exec(decoupled=True), is_gone):
            pass

    @contextmanager
    def _kept_alive(self, answers: Any, is_gone: Callable[[], bool]) -> Iterator[Any]:
        """Read an iterator of answers to its end and keep it until Triton's stub has forgotten it.

        The stub of Triton 24.10 forgets an ended iterator on a thread that does not hold the GIL
        (``Stub::SendCleanupId``). Were that the last reference, its tensors' Python objects would be freed there, and the
        heap of this process broken; one in a thousand requests ended so. That thread works first in, first out, so an answer
        to a question asked after the iterator's end says that it has passed. Once the client is gone the stub knows the
        answer by itself, and time must do.
        """
        try:
            yield answers
        finally:
            for _ in answers:  # an iterator that has not reached its end is never forgotten
                pass
            if is_gone():
                self._keep_a_while(answers)

    def _keep_a_while(self, answers: Any) -> None:
        now_s = time.monotonic()
        with self._keeping:
            self._kept.append((now_s + _FORGOTTEN_AFTER_S, answers))
            while self._kept[0][0] < now_s:
                self._kept.popleft()
