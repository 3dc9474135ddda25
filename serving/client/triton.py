"""A client for single requests to a running Triton, for ``bench generate``; measurements have the clients of ``harness/``.

Every request has its own gRPC stream, which suits decoupled and other models, and can be cancelled.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc

from serving.client.request import Array, GenerationRequest, ModelInterface, input_tensors, output_names
from serving.errors import ClientError

_FINAL = "triton_final_response"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)
_DTYPES = {"bool": "BOOL", "int32": "INT32", "uint64": "UINT64", "float16": "FP16", "float32": "FP32", "object": "BYTES"}
_GROWING = {"output_log_probs": -1, "generation_logits": -2}  # streamed in parts, which are concatenated along this axis


@dataclass(frozen=True)
class ConnectionSecurity:
    """TLS and compression of a connection. ``root_certificates`` None: the system's."""

    tls: bool = False
    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None
    compression: grpc.Compression = grpc.Compression.NoCompression


@dataclass(frozen=True)
class EarlyStop:
    """The early end of a request, ``after_ms`` after its start: by cancelling the call, or else by a ``stop`` request."""

    after_ms: int
    cancel_call: bool


@dataclass(frozen=True)
class CallOptions:
    """Options of one call. ``timeout_s`` bounds all of it; ``overwrite_text``: each streamed text replaces the one before."""

    early_stop: EarlyStop | None = None
    timeout_s: float | None = None
    overwrite_text: bool = False


@dataclass
class GeneratedSequence:
    """One generated sequence of one row: an entry per beam in ``tokens`` (core model) or ``texts``, and its other outputs."""

    tokens: list[list[int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    extras: dict[str, Array] = field(default_factory=dict)


@dataclass
class GenerationResult:
    """The result of one request: sequences by (batch_index, sequence_index).

    ``error`` is the server's error message, if any; ``stopped``: the request was ended early; ``outputs`` has the names of all
    outputs received.
    """

    sequences: dict[tuple[int, int], GeneratedSequence] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    responses: int = 0
    error: str | None = None
    stopped: bool = False


OnResponse = Callable[[GeneratedSequence, Mapping[str, Array]], None]
"""Called with the sequence so far and the outputs of the response, by name."""

_DEFAULT_OPTIONS = CallOptions()


class TritonClient:
    """A gRPC channel to one server. ``address`` is host:port."""

    def __init__(self, address: str, security: ConnectionSecurity | None = None) -> None:
        security = security or ConnectionSecurity()
        self.address = address
        if security.tls:
            credentials = grpc.ssl_channel_credentials(
                security.root_certificates, security.private_key, security.certificate_chain
            )
            self.channel = grpc.secure_channel(address, credentials, _OPTIONS, security.compression)
        else:
            self.channel = grpc.insecure_channel(address, _OPTIONS, security.compression)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def __enter__(self) -> TritonClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.channel.close()

    def generate(
        self,
        model: ModelInterface,
        request: GenerationRequest,
        message: Any,
        options: CallOptions = _DEFAULT_OPTIONS,
        on_response: OnResponse = lambda sequence, values: None,
    ) -> GenerationResult:
        """Send ``message`` (``encode(model, request)``) and collect the result; ``on_response`` is called for every response.

        Raises ClientError when the model has no input for an early stop; a server's error is part of the result. An interrupt
        cancels the request.
        """
        early_stop = options.early_stop
        if early_stop is not None and not early_stop.cancel_call and "stop" not in model.inputs:
            raise ClientError(
                f"--stop_after_ms: the model {model.name} has no input stop; use --stop_via_request_cancel to cancel the call"
            )
        result = GenerationResult()
        assembler = _ResultAssembler(request, options.overwrite_text, result, on_response)
        exchange = _Exchange(self._stub, message, options.timeout_s)
        try:
            with _StopTimer(exchange, stop_request(model.name, request.request_id), early_stop):
                for response in exchange:
                    if response.error_message:
                        result.error = response.error_message
                        break
                    assembler.add(response.infer_response)
        except grpc.RpcError as error:
            if not (exchange.stopped and error.code() is grpc.StatusCode.CANCELLED):
                result.error = f"{error.code().name}: {error.details()}"
        finally:
            exchange.cancel()
        result.stopped = exchange.stopped
        return result


def encode(model: ModelInterface, request: GenerationRequest, tokenizer: Any | None = None) -> Any:
    """The ``ModelInferRequest`` of one request. Raises RequestError."""
    message = service_pb2.ModelInferRequest(model_name=model.name, id=request.request_id)
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, array in input_tensors(request, model, tokenizer).items():
        add_input(message, name, array)
    for name in output_names(request, model):
        message.outputs.add(name=name)
    return message


def add_input(message: Any, name: str, array: Array) -> None:
    """Add a tensor to a ``ModelInferRequest`` as raw contents."""
    message.inputs.add(name=name, datatype=_DTYPES[array.dtype.name], shape=array.shape)
    if array.dtype == np.object_:
        raw = b"".join(struct.pack("<I", len(text)) + text for text in array.reshape(-1))
    else:
        raw = np.ascontiguousarray(array).tobytes()
    message.raw_input_contents.append(raw)


class _Exchange:
    """One stream with one request, and possibly a ``stop`` request; ends with the final response to the last of them."""

    def __init__(self, stub: Any, request: Any, timeout_s: float | None) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests.put(request)
        self._pending = 1  # requests without a final response
        self._lock = threading.Lock()
        self.stopped = False
        self._started: Future[Any] = Future()
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(stub, timeout_s), name="stream", daemon=True).start()

    def _read(self, stub: Any, timeout_s: float | None) -> None:
        """Put each message, and then the error that ended the stream, or None.

        Signals interrupt the main thread alone: one that does so within gRPC leaves its locks taken, and closing the channel
        would wait for them for ever.
        """
        try:
            call = stub.ModelStreamInfer(iter(self._requests.get, None), timeout=timeout_s)
            self._started.set_result(call)
            for message in call:
                self._arrived.put(message)
            self._arrived.put(None)
        except Exception as error:
            if not self._started.done():
                self._started.set_exception(error)
            self._arrived.put(error)

    def __iter__(self) -> Iterator[Any]:
        while (message := self._arrived.get()) is not None:
            if isinstance(message, Exception):
                raise message
            yield message
            if message.infer_response.parameters[_FINAL].bool_param and self._is_over():
                return

    def _is_over(self) -> bool:
        with self._lock:
            self._pending -= 1
            return self._pending == 0

    def stop(self, request: Any) -> None:
        with self._lock:
            if self._pending:
                self._pending += 1
                self.stopped = True
                self._requests.put(request)

    def cancel_early(self) -> None:
        with self._lock:
            if self._pending:
                self.stopped = True
                self._started.result().cancel()

    def cancel(self) -> None:
        """End the call, in whatever state it is."""
        self._requests.put(None)
        if self._started.exception() is None:
            self._started.result().cancel()


class _StopTimer:
    """A timer thread that ends an exchange early, if it still runs then."""

    def __init__(self, exchange: _Exchange, stop_message: Any, early_stop: EarlyStop | None) -> None:
        self._timer = None
        if early_stop is not None:
            action = exchange.cancel_early if early_stop.cancel_call else lambda: exchange.stop(stop_message)
            self._timer = threading.Timer(early_stop.after_ms / 1e3, action)

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()


def stop_request(model: str, request_id: str) -> Any:
    """The request that ends every request with the same id: upstream's tensors, with ``stop`` true."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    zero = np.zeros((1, 1), np.int32)
    for name in ("input_ids", "input_lengths", "request_output_len"):
        add_input(message, name, zero)
    add_input(message, "stop", np.ones((1, 1), np.bool_))
    return message


class _ResultAssembler:
    """Assembles responses: parts by their batch and sequence index, streamed pieces in order."""

    def __init__(
        self, request: GenerationRequest, overwrite_text: bool, result: GenerationResult, on_response: OnResponse
    ) -> None:
        # streamed beams change as they grow, so each response has them in full
        self._replaces = overwrite_text or int(request.scalar("beam_width", 1)) > 1
        self._result = result
        self._on_response = on_response

    def add(self, response: Any) -> None:
        if not response.outputs:
            return
        decoded = InferResult(response)
        values = {output.name: decoded.as_numpy(output.name) for output in response.outputs}
        position = (_first(values.pop("batch_index", None)), _first(values.pop("sequence_index", None)))
        self._result.outputs.update(output.name for output in response.outputs)
        self._result.responses += 1
        sequence = self._result.sequences.setdefault(position, GeneratedSequence())
        self._add_tokens_and_text(sequence, values)
        for name, value in values.items():
            if name not in ("output_ids", "sequence_length", "text_output"):
                sequence.extras[name] = _joined(name, sequence.extras.get(name), value)
        self._on_response(sequence, values)

    def _add_tokens_and_text(self, sequence: GeneratedSequence, values: Mapping[str, Array]) -> None:
        if "output_ids" in values:
            beams = values["output_ids"].reshape(-1, values["output_ids"].shape[-1])
            lengths = values.get("sequence_length", np.full(len(beams), beams.shape[1])).reshape(-1)
            parts = [beam[:length].tolist() for beam, length in zip(beams, lengths, strict=True)]
            sequence.tokens = parts if self._replaces else _appended(sequence.tokens, parts, list)
        if "text_output" in values:
            texts = [text.decode("utf-8", "replace") for text in values["text_output"].reshape(-1)]
            sequence.texts = texts if self._replaces else _appended(sequence.texts, texts, str)


def _appended(earlier: list[Any], parts: list[Any], empty: Callable[[], Any]) -> list[Any]:
    earlier = earlier or [empty() for _ in parts]
    return [before + part for before, part in zip(earlier, parts, strict=True)]


def _joined(name: str, earlier: Array | None, value: Array) -> Array:
    if earlier is None or not earlier.size:
        return value
    if not value.size:
        return earlier
    if name in _GROWING and earlier.shape[: _GROWING[name]] == value.shape[: _GROWING[name]]:
        return np.concatenate([earlier, value], axis=_GROWING[name])
    return earlier + value if name == "num_output_tokens" else value


def _first(value: Array | None) -> int:
    return 0 if value is None or not value.size else int(value.reshape(-1)[0])
