"""Calls to other models on the same Triton: errors, streams of responses, cancellation, and a memory bug of Triton 24.10."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.errors import ServingError

_RELEASED_AFTER_S = 10.0


class OutputTensor(Protocol):
    """A tensor in a response of Triton."""

    def name(self) -> str: ...

    def as_numpy(self) -> NDArray[Any]: ...


Tensors = dict[str, OutputTensor]


class CalledModelError(ServingError):
    """The called model returned an error; ``code`` is Triton's error code, which is passed on."""

    def __init__(self, message: str, code: Any) -> None:
        super().__init__(message)
        self.code = code


def call_once(model_name: str, inputs: list[Any], outputs: list[str]) -> Tensors:
    """Output tensors by name of a model with a single response. Raises CalledModelError."""
    request = pb_utils.InferenceRequest(model_name=model_name, inputs=inputs, requested_output_names=outputs)
    return tensors_of(request.exec())


def tensors_of(response: Any) -> Tensors:
    """Output tensors of a response by name. Raises CalledModelError."""
    if response.has_error():
        error = response.error()
        raise CalledModelError(error.message(), error.code())
    return {tensor.name(): tensor for tensor in response.output_tensors()}


class CoreCalls:
    """Decoupled calls to a core model, and their cancellation."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, Any]] = deque()
        self._keeping = threading.Lock()

    @contextmanager
    def responses(
        self, model_name: str, request_id: str, inputs: list[Any], outputs: Sequence[str], is_gone: Callable[[], bool]
    ) -> Iterator[Iterator[Tensors]]:
        """Tensors of each non-empty response, as they arrive. Leaving early stops the request. Raises CalledModelError.

        ``outputs`` must contain only what is used: the stub would drop other tensors of a response without holding the GIL.
        ``is_gone`` queries the server for cancellation by the client; it is True once the server must not be queried any more.
        """
        request = pb_utils.InferenceRequest(
            request_id=request_id, model_name=model_name, inputs=inputs, requested_output_names=list(outputs)
        )
        with self._kept_alive(request.exec(decoupled=True), is_gone) as responses:
            try:
                yield (tensors for response in responses if (tensors := tensors_of(response)))
            except BaseException:
                self.stop(model_name, request_id, is_gone)
                raise

    def stop(self, model_name: str, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Cancel the core model's requests with this id, queued or running; an unknown id is no error."""
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
    def _kept_alive(self, responses: Any, is_gone: Callable[[], bool]) -> Iterator[Any]:
        """Exhaust an iterator of responses, and keep a reference until Triton's stub has released its own.

        The stub of Triton 24.10 releases an ended iterator on a thread that does not hold the GIL
        (``Stub::SendCleanupId``). If that were the last reference, the Python objects of its tensors would be freed there and
        corrupt the heap of this process; one in a thousand requests ended that way. That thread is first in, first out: a
        reply to a query sent after the iterator's end proves that the release has happened. Once the client is gone, the stub
        answers that query locally, so a delay replaces the proof.
        """
        try:
            yield responses
        finally:
            for _ in responses:  # an iterator that has not reached its end is never released
                pass
            if is_gone():
                self._keep_a_while(responses)

    def _keep_a_while(self, responses: Any) -> None:
        now_s = time.monotonic()
        with self._keeping:
            self._kept.append((now_s + _RELEASED_AFTER_S, responses))
            while self._kept[0][0] < now_s:
                self._kept.popleft()
