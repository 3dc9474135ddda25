"""How the answers of ``tensorrt_llm_bls`` leave: one sending thread, and what gathers while it is busy goes out together.

A response costs several round trips between processes, so that sending each token by itself would be slower than the core
model makes them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.errors import RequestError
from serving.models.bls.core_calls import CalledModelError
from serving.models.bls.request import Array, BlsRequest
from serving.text.generated_text import GeneratedText

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
Key = tuple[int, int]  # batch index, sequence index


class Reply:
    """The answer to one request: what may be asked and sent, from any thread, until the last response."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._sending = threading.Lock()
        self._finished = False

    def send(self, response: Any, final: bool = False) -> None:
        """Send a response; None with ``final`` ends the answer without one more. After the end nothing is sent."""
        with self._sending:
            if self._finished:
                return
            self._finished = final
            if response is None:
                self._sender.send(flags=_FINAL)
            else:
                self._sender.send(response, flags=_FINAL if final else 0)

    def fail(self, error: Exception) -> None:
        """End the answer with a sentence; never with a traceback."""
        self.send(error_answer(error), final=True)

    def is_gone(self) -> bool:
        """Whether the client gave up, or the answer ended and Triton must not be asked: 24.10 then reads freed memory."""
        with self._sending:
            return self._finished or bool(self._sender.is_cancelled())

    def is_abandoned(self) -> bool:
        """Whether the client gave up before the answer ended."""
        with self._sending:
            return not self._finished and bool(self._sender.is_cancelled())


def error_answer(error: Exception) -> Any:
    """An error as a response: Triton's code where another model gave one, else the request's fault or ours."""
    if isinstance(error, CalledModelError):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), error.code))
    if isinstance(error, RequestError):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))
    message = f"the BLS model failed: {error}"
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INTERNAL))


@dataclass(slots=True)
class _Piece:
    key: Key
    token_ids: list[int]
    is_last: bool
    others: dict[str, Array]  # what the client wants besides, from the same answer of the core model


@dataclass(slots=True)
class _Sequence:
    """One sequence of a streamed answer."""

    text: GeneratedText
    tokens_left: int
    end_id: int
    generating: bool = True  # for the thread that reads the core model
    ended: bool = False  # for the sending thread


class StreamedReply(Reply):
    """A streamed answer. ``add`` and ``close`` belong to the thread that reads the core model, ``flush`` to the sending one."""

    def __init__(
        self,
        sender: Any,
        request: BlsRequest,
        new_text: Callable[[int], GeneratedText],
        accumulates: bool,
        outbox: queue.SimpleQueue[Any],
        on_stop: Callable[[], object],
    ) -> None:
        super().__init__(sender)
        self._request = request
        self._new_text = new_text
        self._accumulates = accumulates
        self._outbox = outbox
        self._on_stop = on_stop
        self._lock = threading.Lock()
        self._pieces: list[_Piece] = []
        self._queued = self._closed = False
        self._error: Exception | None = None
        self._sequences: dict[Key, _Sequence] = {}
        self._generating = self._unended = request.sequences
        self._stops_early = False

    def add(self, tensors: dict[str, Any]) -> None:
        """Take one answer of the core model."""
        key = key_of(tensors)
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = self._sequences[key] = self._new_sequence(key)
        token_ids = tensors["output_ids"].as_numpy().reshape(-1).tolist()
        sequence.tokens_left -= len(token_ids)
        is_last = sequence.tokens_left <= 0 or token_ids[-1:] == [sequence.end_id]
        others = {name: tensor.as_numpy() for name, tensor in tensors.items() if name in self._request.passed_on}
        if is_last and sequence.generating:
            sequence.generating = False
            self._generating -= 1
        with self._lock:
            self._pieces.append(_Piece(key, token_ids, is_last, others))
            # The last piece of all waits for ``close``, which comes at once, and carries the final mark.
            to_queue = self._generating > 0 and not self._queued
            self._queued = self._queued or to_queue
        if to_queue:
            self._outbox.put(self)

    def close(self) -> None:
        """No more pieces: what is left goes out, and the final mark."""
        with self._lock:
            self._closed = True
        self._outbox.put(self)

    def fail(self, error: Exception) -> None:
        self._error = error
        self.close()

    def give_up(self, error: Exception) -> None:
        """``flush`` failed: the sentence goes out as it can, and the core model is stopped."""
        with suppress(Exception):
            super().fail(error)
        with suppress(Exception):
            self._on_stop()

    def flush(self) -> None:
        """Send everything gathered."""
        with self._lock:
            pieces, self._pieces = self._pieces, []
            self._queued, closed = False, self._closed
        if self._finished:
            return
        responses = [response for piece in _merged(pieces) if (response := self._response(piece)) is not None]
        if not closed:
            for response in responses:
                self.send(response)
            return
        responses += self._held_back()
        if self._error is not None:
            responses.append(error_answer(self._error))
        for response in responses[:-1]:
            self.send(response)
        self.send(responses[-1] if responses else None, final=True)

    def _new_sequence(self, key: Key) -> _Sequence:
        row, _ = key
        request = self._request
        return _Sequence(self._new_text(row), request.max_tokens[row], request.end_ids[row])

    def _response(self, piece: _Piece) -> Any:
        sequence = self._sequences[piece.key]
        if sequence.ended:  # what belongs to the end of a sequence may come behind its last token, but not behind a stop word
            late = piece.others and not sequence.text.stopped
            return self._text_response(piece.key, sequence, "", 0, piece.others) if late else None
        text = sequence.text.add(piece.token_ids, piece.is_last)
        sequence.ended = piece.is_last or sequence.text.stopped
        self._unended -= sequence.ended
        self._stops_early = self._stops_early or (sequence.text.stopped and not piece.is_last)
        if self._unended == 0 and self._stops_early:
            self._on_stop()
        return self._text_response(piece.key, sequence, text, len(piece.token_ids), piece.others)

    def _held_back(self) -> list[Any]:
        """What sequences that ended without saying so (stopped, cancelled) still owe."""
        owed = []
        for key, sequence in self._sequences.items():
            if not sequence.ended:
                sequence.ended = True
                if text := sequence.text.add((), is_last=True):
                    owed.append(self._text_response(key, sequence, text, 0, {}))
        return owed

    def _text_response(self, key: Key, sequence: _Sequence, text: str, tokens: int, others: dict[str, Array]) -> Any:
        text = sequence.text.whole() if self._accumulates else text
        request = self._request
        values = {"text_output": texts([text]), **others}
        row, index = key
        if len(request.prompts) > 1:
            values["batch_index"] = int32(row)
        if request.num_return_sequences > 1:
            values["sequence_index"] = int32(index)
        if request.asks("return_num_input_tokens"):
            values["num_input_tokens"] = int32(len(request.prompts[row]))
        if request.asks("return_num_output_tokens"):
            values["num_output_tokens"] = int32(tokens)
        return response_of(values, request.wanted)


def key_of(tensors: dict[str, Any]) -> Key:
    """Which row of the batch and which of its sequences an answer of the core model belongs to."""
    row, sequence = (
        int(tensors[name].as_numpy().reshape(-1)[0]) if name in tensors else 0 for name in ("batch_index", "sequence_index")
    )
    return row, sequence


def texts(values: list[str]) -> Array:
    """Texts of the beams of one answer, bytes [1, beams]."""
    return np.array([[value.encode("utf-8") for value in values]], dtype=np.object_)


def int32(value: int) -> Array:
    """A number [1, 1]."""
    return np.array([[value]], dtype=np.int32)


def response_of(values: dict[str, Array], wanted: frozenset[str]) -> Any:
    """A response with those of the values that the client named; the stub would drop others without holding the GIL."""
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in values.items() if name in wanted])


def send_until_closed(outbox: queue.SimpleQueue[StreamedReply | None], on_error: Callable[[Exception], object]) -> None:
    """The sending thread's work; None in the outbox ends it."""
    while (reply := outbox.get()) is not None:
        try:
            reply.flush()
        except Exception as error:  # one odd answer must not end the others
            on_error(error)
            reply.give_up(error)


def _merged(pieces: list[_Piece]) -> list[_Piece]:
    """Pieces of one sequence joined, where they are tokens alone."""
    merged: list[_Piece] = []
    latest: dict[Key, _Piece] = {}
    for piece in pieces:
        before = latest.get(piece.key)
        if before is not None and not before.others and not piece.others:
            before.token_ids += piece.token_ids
            before.is_last = piece.is_last
        else:
            merged.append(piece)
            latest[piece.key] = piece
    return merged
