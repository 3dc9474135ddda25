"""Replies of ``tensorrt_llm_bls``: one sending thread, which joins what accumulates while it is busy.

A response costs several round trips between processes: sending each token on its own would be slower than the core model
generates them.
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
from serving.models.bls.core_calls import CalledModelError, Tensors
from serving.models.bls.request import Array, BlsRequest
from serving.models.parameters import error_response, failure_response
from serving.text.generated_text import GeneratedText

_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
Key = tuple[int, int]  # batch index, sequence index


class Reply:
    """Reply to one request through Triton's response sender; usable from any thread."""

    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._sending = threading.Lock()
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether the last response was sent."""
        return self._finished

    def send(self, response: Any, final: bool = False) -> None:
        """Send a response; None with ``final`` sends the final flag alone. After the end nothing is sent."""
        with self._sending:
            if self._finished:
                return
            self._finished = final
            if response is None:
                self._sender.send(flags=_FINAL)
            else:
                self._sender.send(response, flags=_FINAL if final else 0)

    def fail(self, error: Exception) -> None:
        """End the reply with an error message, never with a traceback."""
        self.send(error_response_of(error), final=True)

    def is_gone(self) -> bool:
        """Whether the client cancelled or the reply ended. Triton 24.10 reads freed memory when queried after the end."""
        with self._sending:
            return self._finished or bool(self._sender.is_cancelled())

    def is_abandoned(self) -> bool:
        """Whether the client cancelled before the reply ended."""
        with self._sending:
            return not self._finished and bool(self._sender.is_cancelled())


@dataclass(slots=True)
class Running:
    """A request in flight, and the core model's request that it waits for."""

    reply: Reply
    model_name: str
    core_id: str
    cancelled: bool = False
    stop_again_s: float = 0.0


def error_response_of(error: Exception) -> Any:
    """Error response with the called model's text and code, INVALID_ARG for a RequestError, or a failure of the server."""
    if isinstance(error, CalledModelError):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), error.code))
    if isinstance(error, RequestError):
        return error_response(str(error))
    return failure_response(f"the BLS model failed: {error}")


@dataclass(slots=True)
class _Piece:
    key: Key
    token_ids: list[int]
    is_last: bool
    others: dict[str, Array]  # further requested outputs of the same core response


@dataclass(slots=True)
class _Sequence:
    """State of one sequence of a streamed reply."""

    text: GeneratedText
    tokens_left: int
    end_id: int
    generating: bool = True  # used by the reading thread
    ended: bool = False  # used by the sending thread


class StreamedText:
    """Text of a streamed reply.

    ``add``, ``close`` and ``fail`` belong to the thread that reads the core model, ``flush`` and ``abort`` to the sending one.
    """

    def __init__(
        self,
        reply: Reply,
        request: BlsRequest,
        new_text: Callable[[int], GeneratedText],
        accumulates: bool,
        outbox: queue.SimpleQueue[Any],
        on_stop: Callable[[], object],
    ) -> None:
        self._reply = reply
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

    def add(self, tensors: Tensors) -> None:
        """Add one response of the core model."""
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
            # The very last piece waits for ``close``, which follows at once, so that it carries the final flag.
            to_queue = self._generating > 0 and not self._queued
            self._queued = self._queued or to_queue
        if to_queue:
            self._outbox.put(self)

    def close(self) -> None:
        """No more pieces: send what is left with the final flag."""
        with self._lock:
            self._closed = True
        self._outbox.put(self)

    def fail(self, error: Exception) -> None:
        """End the reply with an error, after the collected pieces."""
        self._error = error
        self.close()

    def abort(self, error: Exception) -> None:
        """``flush`` failed: send the error if possible, and stop the core model."""
        with suppress(Exception):
            self._reply.fail(error)
        with suppress(Exception):
            self._on_stop()

    def flush(self) -> None:
        """Send all collected pieces."""
        with self._lock:
            pieces, self._pieces = self._pieces, []
            self._queued, closed = False, self._closed
        if self._reply.finished:
            return
        responses = [response for piece in _merged(pieces) if (response := self._response(piece)) is not None]
        if not closed:
            for response in responses:
                self._reply.send(response)
            return
        responses += self._withheld()
        if self._error is not None:
            responses.append(error_response_of(self._error))
        for response in responses[:-1]:
            self._reply.send(response)
        self._reply.send(responses[-1] if responses else None, final=True)

    def _new_sequence(self, key: Key) -> _Sequence:
        row, _ = key
        request = self._request
        return _Sequence(self._new_text(row), request.max_tokens[row], request.end_ids[row])

    def _response(self, piece: _Piece) -> Any:
        sequence = self._sequences[piece.key]
        if sequence.ended:  # outputs of a finished sequence may follow its last token, but not its stop word
            late = piece.others and not sequence.text.stopped
            return self._text_response(piece.key, sequence, "", 0, piece.others) if late else None
        text = sequence.text.add(piece.token_ids, piece.is_last)
        sequence.ended = piece.is_last or sequence.text.stopped
        self._unended -= sequence.ended
        self._stops_early = self._stops_early or (sequence.text.stopped and not piece.is_last)
        if self._unended == 0 and self._stops_early:
            self._on_stop()
        return self._text_response(piece.key, sequence, text, len(piece.token_ids), piece.others)

    def _withheld(self) -> list[Any]:
        """Responses with the withheld text of sequences that ended without a last token (stopped, cancelled)."""
        responses = []
        for key, sequence in self._sequences.items():
            if not sequence.ended:
                sequence.ended = True
                if text := sequence.text.add((), is_last=True):
                    responses.append(self._text_response(key, sequence, text, 0, {}))
        return responses

    def _text_response(self, key: Key, sequence: _Sequence, text: str, tokens: int, others: dict[str, Array]) -> Any:
        text = sequence.text.whole() if self._accumulates else text
        request = self._request
        values = {"text_output": texts([text]), **request.zeros, **others}
        row, index = key
        if len(request.prompts) > 1:
            values["batch_index"] = int32(row)
        if request.num_return_sequences > 1:
            values["sequence_index"] = int32(index)
        if request.flag("return_num_input_tokens"):
            values["num_input_tokens"] = int32(len(request.prompts[row]))
        if request.flag("return_num_output_tokens"):
            values["num_output_tokens"] = int32(tokens)
        return response_of(values, request.wanted)


def key_of(tensors: Tensors) -> Key:
    """Batch row and sequence index of a core response."""
    row, sequence = (
        int(tensors[name].as_numpy().reshape(-1)[0]) if name in tensors else 0 for name in ("batch_index", "sequence_index")
    )
    return row, sequence


def texts(values: list[str]) -> Array:
    """Texts of the beams of one response, bytes [beams], without a batch dimension, as upstream's postprocessing sends them."""
    return np.array([value.encode("utf-8") for value in values], dtype=np.object_)


def int32(value: int) -> Array:
    """A single value, int32 [1, 1]."""
    return np.array([[value]], dtype=np.int32)


def response_of(values: dict[str, Array], wanted: frozenset[str]) -> Any:
    """A response with the requested values only: the stub would drop others without holding the GIL."""
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in values.items() if name in wanted])


def send_until_closed(outbox: queue.SimpleQueue[StreamedText | None], on_error: Callable[[Exception], object]) -> None:
    """Body of the sending thread; None in the outbox ends it."""
    while (stream := outbox.get()) is not None:
        try:
            stream.flush()
        except Exception as error:  # one broken reply must not end the others
            on_error(error)
            stream.abort(error)


def _merged(pieces: list[_Piece]) -> list[_Piece]:
    """Pieces of each sequence joined, where they contain tokens only."""
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
