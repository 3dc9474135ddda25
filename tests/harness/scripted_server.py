"""A gRPC server in a process of its own that speaks Triton's service; what it does with a request, the prompt says.

    python scripted_server.py LOG [STREAMS]

It allows STREAMS streams a connection. It prints its port, writes the id of every request that reaches it to LOG, and ends
when its standard input closes.
"""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2

from workloads.request import Request

SERVICE = "inference.GRPCInferenceService"
FIRST_TOKEN = 5000  # the tokens of every answer count up from here


_TEXT_MODELS = ("text", "uncounted")  # the second does not say how many tokens its text is


class Act(IntEnum):
    """What to do with a request. Far outside any vocabulary, so that no drawn token is one by chance."""

    ANSWER = 1_000_001  # every token asked for: one a response when streaming, else all in one
    ERROR = 1_000_002  # half of the tokens, then an error in the stream
    HANG = 1_000_003  # half of the tokens, then nothing more
    GARBAGE = 1_000_004  # bytes that are no message
    FULL = 1_000_005  # the queue is full
    SILENT = 1_000_006  # ends the answer without a response
    STATUS = 1_000_007  # half of the tokens, then a gRPC status of INTERNAL


def scripted(act: Act, output_tokens: int = 4, gap_ms: int = 0) -> Request:
    """A request that makes the server do ``act``, its tokens ``gap_ms`` apart."""
    return Request(output_tokens=output_tokens, input_ids=(int(act), gap_ms, 1, 2), input_tokens=4)


@dataclass(frozen=True)
class ScriptedServer:
    """A running server. Models: ``scripted``, ``text``, ``uncounted``, ``unary``, ``failing``, ``slow``, ``broken``."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    def received(self) -> list[str]:
        """The ids of the requests that reached the server, in their order."""
        return self.log.read_text().split()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def scripted_server(log: Path, *streams: int) -> Iterator[ScriptedServer]:
    """Start a server; it is gone when the block is left."""
    command = [sys.executable, __file__, str(log), *map(str, streams)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ScriptedServer(f"127.0.0.1:{process.stdout.readline().strip()}", process, log)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@dataclass(frozen=True)
class _Asked:
    act: int
    gap_s: float
    tokens: int
    streaming: bool
    text: bool


def _read(request: service_pb2.ModelInferRequest) -> _Asked:
    raw = {tensor.name: content for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)}
    text = "text_input" in raw
    ids = () if text else struct.unpack(f"<{len(raw['input_ids']) // 4}i", raw["input_ids"])
    scripted_ids = len(ids) > 1 and ids[0] in set(Act)
    act = ids[0] if scripted_ids else Act.ANSWER
    return _Asked(
        act=Act.ERROR if request.model_name == "failing" else act,
        gap_s=ids[1] / 1e3 if scripted_ids else 0.0,
        tokens=struct.unpack("<i", raw["max_tokens" if text else "request_output_len"])[0],
        streaming=raw.get("stream" if text else "streaming") == b"\x01",
        text=text,
    )


def _answer(request_id: str, tokens: list[int], text: bool, counted: bool) -> service_pb2.ModelInferResponse:
    response = service_pb2.ModelInferResponse(model_name="scripted", id=request_id)

    def add(name: str, datatype: str, shape: list[int], raw: bytes) -> None:
        response.outputs.add(name=name, datatype=datatype, shape=shape)
        response.raw_output_contents.append(raw)

    if text:
        words = "".join(f" word{token}" for token in tokens).encode()
        add("text_output", "BYTES", [1, 1], struct.pack("<I", len(words)) + words)
        if counted:
            add("num_output_tokens", "INT32", [1, 1], struct.pack("<i", len(tokens)))
    else:
        add("output_ids", "INT32", [1, 1, len(tokens)], struct.pack(f"<{len(tokens)}i", *tokens))
        add("sequence_length", "INT32", [1, 1], struct.pack("<i", len(tokens)))
    return response


def _error(message: str) -> bytes:
    raw: bytes = service_pb2.ModelStreamInferResponse(error_message=message).SerializeToString()
    return raw


class _Service:
    def __init__(self, log: Path) -> None:
        self._log = log.open("w", buffering=1)

    async def stream(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        async for raw in requests:
            request = service_pb2.ModelInferRequest.FromString(raw)
            self._log.write(f"{request.id}\n")
            async for body in self._stream_one(request, context):
                yield body

    async def _stream_one(
        self, request: service_pb2.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        asked = _read(request)
        if asked.act == Act.SILENT:
            return
        if asked.act == Act.GARBAGE:
            yield b"\xff\xff no message"
            return
        if asked.act == Act.FULL:
            yield _error("[StatusCode.UNAVAILABLE] Exceeds maximum queue size of 8")
            return
        count = asked.tokens if asked.act == Act.ANSWER else asked.tokens // 2
        tokens = list(range(FIRST_TOKEN, FIRST_TOKEN + count))
        for group in [[token] for token in tokens] if asked.streaming else [tokens]:
            await asyncio.sleep(asked.gap_s)
            yield service_pb2.ModelStreamInferResponse(
                infer_response=_answer(request.id, group, asked.text, request.model_name != "uncounted")
            ).SerializeToString()
        if asked.act == Act.ERROR:
            yield _error("the script says so")
        if asked.act == Act.STATUS:
            await context.abort(grpc.StatusCode.INTERNAL, "the script says so")
        if asked.act == Act.HANG:
            await asyncio.sleep(3600)

    async def infer(self, raw: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = service_pb2.ModelInferRequest.FromString(raw)
        self._log.write(f"{request.id}\n")
        asked = _read(request)
        if asked.act == Act.FULL:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
        if asked.act != Act.ANSWER:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the script says so")
        tokens = list(range(FIRST_TOKEN, FIRST_TOKEN + asked.tokens))
        body: bytes = _answer(request.id, tokens, asked.text, counted=True).SerializeToString()
        return body

    async def config(self, raw: bytes, context: grpc.aio.ServicerContext) -> bytes:
        name = service_pb2.ModelConfigRequest.FromString(raw).name
        if name == "slow":
            await asyncio.sleep(3600)
        if name == "broken":
            await context.abort(grpc.StatusCode.INTERNAL, "the script says so")
        if name not in ("scripted", "unary", "failing", "text", "uncounted"):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        response = service_pb2.ModelConfigResponse()
        response.config.name = name
        response.config.model_transaction_policy.decoupled = name != "unary"
        core = ("input_ids", "input_lengths", "request_output_len", "streaming", "end_id", "exclude_input_in_output")
        for tensor in ("text_input", "max_tokens", "stream", "return_num_output_tokens") if name in _TEXT_MODELS else core:
            response.config.input.add(name=tensor)
        for tensor in ("text_output", "num_output_tokens") if name in _TEXT_MODELS else ("output_ids", "sequence_length"):
            response.config.output.add(name=tensor)
        response.config.parameters["engine"].string_value = "script"
        body: bytes = response.SerializeToString()
        return body


async def _serve(log: Path, *streams: str) -> None:
    service = _Service(log)
    server = grpc.aio.server(options=[("grpc.max_concurrent_streams", int(limit)) for limit in streams])
    handlers = {
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(service.stream),
        "ModelInfer": grpc.unary_unary_rpc_method_handler(service.infer),
        "ModelConfig": grpc.unary_unary_rpc_method_handler(service.config),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


def _end_with_owner() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_owner, daemon=True).start()
    asyncio.run(_serve(Path(sys.argv[1]), *sys.argv[2:]))
