"""One request to a running Triton, asked and answered: what ``bench generate`` does. Not for measuring; see ``harness/``.

Every request has a gRPC stream of its own, which serves decoupled and other models alike, and can be cancelled.
"""

from __future__ import annotations

import queue
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import InferResult, service_pb2, service_pb2_grpc

from serving.client.request import Array, Ask, ServedModel, input_tensors, output_names
from serving.errors import ClientError

_FINAL = "triton_final_response"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)
_CONFIG_TIMEOUT_S = 20.0
_DTYPES = {"bool": "BOOL", "int32": "INT32", "uint64": "UINT64", "float16": "FP16", "float32": "FP32", "object": "BYTES"}
_GROWING = {"output_log_probs": -1, "generation_logits": -2}  # streamed in parts, to be joined along this axis


@dataclass(frozen=True)
class Security:
    """TLS files; all None means the system's roots. Compression is gRPC's name for it."""

    tls: bool = False
    root_certificates: bytes | None = None
    private_key: bytes | None = None
    certificate_chain: bytes | None = None
    compression: grpc.Compression = grpc.Compression.NoCompression


@dataclass(frozen=True)
class Early:
    """How to end a request before it ends by itself: after ``after_ms``, by a ``stop`` request or by cancelling the call."""

    after_ms: int
    by_cancelling: bool


@dataclass
class Sequence:
    """One generated sequence of one row: a beam each in ``tokens`` (core model) or ``texts``, and what else came with it."""

    tokens: list[list[int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    extras: dict[str, Array] = field(default_factory=dict)


@dataclass
class Generation:
    """The answer to one request: sequences by (batch_index, sequence_index).

    ``error`` is the server's sentence when it failed; ``stopped`` says that we ended it early; ``outputs`` names every output
    that came.
    """

    sequences: dict[tuple[int, int], Sequence] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    responses: int = 0
    error: str | None = None
    stopped: bool = False


class TritonClient:
    """A channel to one server. ``address`` is host:port of its gRPC endpoint."""

    def __init__(self, address: str, security: Security | None = None) -> None:
        security = security or Security()
        self._address = address
        settings: dict[str, Any] = {"options": _OPTIONS, "compression": security.compression}
        if security.tls:
            credentials = grpc.ssl_channel_credentials(
                security.root_certificates, security.private_key, security.certificate_chain
            )
            self._channel = grpc.secure_channel(address, credentials, **settings)
        else:
            self._channel = grpc.insecure_channel(address, **settings)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> TritonClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._channel.close()

    def describe(self, name: str) -> ServedModel:
        """The model's configuration. Raises ClientError: nobody there, or no such model."""
        try:
            config = self._stub.ModelConfig(service_pb2.ModelConfigRequest(name=name), timeout=_CONFIG_TIMEOUT_S).config
        except grpc.RpcError as error:
            raise ClientError(self._problem(name, error)) from error
        return ServedModel(
            name=name,
            decoupled=config.model_transaction_policy.decoupled,
            inputs=frozenset(tensor.name for tensor in config.input),
            outputs=frozenset(tensor.name for tensor in config.output),
            parameters={key: value.string_value for key, value in config.parameters.items()},
        )

    def _problem(self, name: str, error: Any) -> str:
        match error.code():
            case grpc.StatusCode.NOT_FOUND:
                return f"--model {name}: the server at {self._address} has no such model ({error.details()})"
            case grpc.StatusCode.UNAVAILABLE:
                return f"--url {self._address}: nobody answers there ({error.details()}); is this the server's gRPC port?"
            case code:
                return f"--url {self._address}: asking for model {name} failed with {code.name}: {error.details()}"

    def generate(
        self,
        model: ServedModel,
        ask: Ask,
        message: Any,
        *,
        early: Early | None = None,
        timeout_s: float | None = None,
        overwrite_text: bool = False,
        on_response: Callable[[Sequence, Any], None] = lambda sequence, response: None,
    ) -> Generation:
        """Send ``message`` (``encode(model, ask)``) and gather the whole answer; ``on_response`` sees every response.

        ``timeout_s`` bounds the whole exchange. With ``overwrite_text`` each streamed text replaces the one before it.
        Raises ClientError when the model cannot be stopped as asked; a server's error is in the answer. Interrupting
        cancels the request.
        """
        if early is not None and not early.by_cancelling and "stop" not in model.inputs:
            raise ClientError(
                f"--stop_after_ms: the model {model.name} has no input stop; --stop_via_request_cancel ends the call instead"
            )
        answer = Generation()
        gather = _Gatherer(ask, overwrite_text, answer, on_response)
        exchange = _Exchange(self._stub, message, timeout_s)
        try:
            with _Stopper(exchange, model, ask, early):
                for message in exchange:
                    if message.error_message:
                        answer.error = message.error_message
                        break
                    gather.add(message.infer_response)
        except grpc.RpcError as error:
            if not (exchange.stopped and error.code() is grpc.StatusCode.CANCELLED):
                answer.error = f"{error.code().name}: {error.details()}"
        finally:
            exchange.cancel()
        answer.stopped = exchange.stopped
        return answer


def encode(model: ServedModel, ask: Ask, tokenizer: Any | None = None) -> Any:
    """The ``ModelInferRequest`` of one request. Raises RequestError."""
    message = service_pb2.ModelInferRequest(model_name=model.name, id=ask.request_id)
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, array in input_tensors(ask, model, tokenizer).items():
        add_input(message, name, array)
    for name in output_names(ask, model):
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
    """One stream that carries one request, and perhaps a ``stop`` after it; ends when each has had its final response."""

    def __init__(self, stub: Any, request: Any, timeout_s: float | None) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests.put(request)
        self._awaited = 1
        self._lock = threading.Lock()
        self.stopped = False
        self._call = stub.ModelStreamInfer(iter(self._requests.get, None), timeout=timeout_s)

    def __iter__(self) -> Iterator[Any]:
        for message in self._call:
            yield message
            if message.infer_response.parameters[_FINAL].bool_param and self._is_over():
                return

    def _is_over(self) -> bool:
        with self._lock:
            self._awaited -= 1
            return self._awaited == 0

    def stop(self, request: Any) -> None:
        with self._lock:
            if self._awaited:
                self._awaited += 1
                self.stopped = True
                self._requests.put(request)

    def abandon(self) -> None:
        with self._lock:
            if self._awaited:
                self.stopped = True
                self._call.cancel()

    def cancel(self) -> None:
        """End the call, whatever state it is in."""
        self._requests.put(None)
        self._call.cancel()


class _Stopper:
    """Ends an exchange early from a thread of its own, if it still runs when the time has come."""

    def __init__(self, exchange: _Exchange, model: ServedModel, ask: Ask, early: Early | None) -> None:
        self._timer = None
        if early is not None:
            stop = stop_request(model.name, ask.request_id)
            action = exchange.abandon if early.by_cancelling else lambda: exchange.stop(stop)
            self._timer = threading.Timer(early.after_ms / 1e3, action)

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()


def stop_request(model: str, request_id: str) -> Any:
    """The request that ends every request of the same id: upstream's tensors, with ``stop`` true."""
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    nothing = np.zeros((1, 1), np.int32)
    for name in ("input_ids", "input_lengths", "request_output_len"):
        add_input(message, name, nothing)
    add_input(message, "stop", np.ones((1, 1), np.bool_))
    return message


class _Gatherer:
    """Puts responses together: parts by their batch and sequence index, streamed pieces in order."""

    def __init__(
        self, ask: Ask, overwrite_text: bool, answer: Generation, on_response: Callable[[Sequence, Any], None]
    ) -> None:
        # streamed beams change as they grow, so that each response holds them whole
        self._replaces = overwrite_text or int(ask.scalar("beam_width", 1)) > 1
        self._answer = answer
        self._on_response = on_response

    def add(self, response: Any) -> None:
        if not response.outputs:
            return
        result = InferResult(response)
        values = {output.name: result.as_numpy(output.name) for output in response.outputs}
        place = (_first(values.pop("batch_index", None)), _first(values.pop("sequence_index", None)))
        self._answer.outputs.update(output.name for output in response.outputs)
        self._answer.responses += 1
        sequence = self._answer.sequences.setdefault(place, Sequence())
        self._add_answer(sequence, values)
        for name, value in values.items():
            if name not in ("output_ids", "sequence_length", "text_output"):
                sequence.extras[name] = _joined(name, sequence.extras.get(name), value)
        self._on_response(sequence, values)

    def _add_answer(self, sequence: Sequence, values: Mapping[str, Array]) -> None:
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
