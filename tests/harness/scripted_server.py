"""A gRPC server in a process of its own that speaks Triton's service; the prompt determines the answer to a request.

    python scripted_server.py LOG STREAMS PORT SETTING

It allows STREAMS streams a connection (0: as many as there are) and listens on PORT (0: a free one). With a SETTING, not "",
it describes itself as Triton does: metadata, models, and the setting as a parameter of these. It prints its port, adds
the id of every request that reaches it to LOG, and ends when its standard input closes. On SIGTERM it takes no more requests,
finishes those that it has, and ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
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

from workloads.elements.request import Request

SERVICE = "inference.GRPCInferenceService"
FIRST_TOKEN = 5000  # the tokens of every answer count up from here


_TEXT_MODELS = (
    "text",
    "uncounted",
    "unlimited",
)  # the second does not return the number of tokens, the third has no limit of it


class Act(IntEnum):
    """What to do with a request. Far outside any vocabulary, so that no drawn token is one by chance."""

    ANSWER = 1_000_001  # every requested token: one a response when streaming, else all in one
    ERROR = 1_000_002  # half of the tokens, then an error in the stream
    HANG = 1_000_003  # half of the tokens, then nothing more
    GARBAGE = 1_000_004  # bytes that are no message
    FULL = 1_000_005  # the queue is full
    SILENT = 1_000_006  # ends the answer without a response
    STATUS = 1_000_007  # half of the tokens, then a gRPC status of INTERNAL
    MUTE = 1_000_008  # nothing at all, ever
    # Every token, but the messages that carry them are not as they should be:
    DOUBLED = 1_000_009  # each but the last comes twice
    DOUBLED_LAST = 1_000_010  # the last comes twice
    SWAPPED = 1_000_011  # the first two in the wrong order
    SWAPPED_LAST = 1_000_012  # the last two in the wrong order
    FOREIGN = 1_000_013  # the second is an answer to another request
    CUT_BODY = 1_000_014  # the second has lost its second half
    WIDE = 1_000_015  # the second declares its tokens as INT64


# What models do with every request, and how far apart their tokens are, in ms. Any other does what the prompt requests.
_BY_MODEL = {
    "failing": (Act.ERROR, 0),
    "mute": (Act.MUTE, 0),
    "paced": (Act.ANSWER, 20),
    "held": (Act.ANSWER, 1_500),
}


def scripted(act: Act, output_tokens: int = 4, gap_ms: int = 0) -> Request:
    """A request that makes the server do ``act``, its tokens ``gap_ms`` apart."""
    return Request(output_tokens=output_tokens, input_ids=(int(act), gap_ms, 1, 2), input_tokens=4)


@dataclass(frozen=True)
class ScriptedServer:
    """A running server. Models: ``scripted``, ``text`` and its kind, ``unary``, ``slow``, ``broken``, and by model."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    def received(self) -> list[str]:
        """The ids of the requests that reached the server, in their order."""
        return self.log.read_text().split()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        """Stop accepting requests, and wait until those in progress are finished."""
        self.process.terminate()
        self.process.wait()


@contextmanager
def scripted_server(log: Path, streams: int = 0, port: int = 0, setting: str = "") -> Iterator[ScriptedServer]:
    """Start a server that allows ``streams`` streams a connection on ``port``, and whose models have the parameter ``setting``;
    it is gone when the block is left.
    """
    command = [sys.executable, __file__, str(log), str(streams), str(port), setting]
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
    act, gap_ms = _BY_MODEL.get(request.model_name, (ids[0], ids[1]) if scripted_ids else (Act.ANSWER, 0))
    return _Asked(
        act=act,
        gap_s=gap_ms / 1e3,
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
        add("text_output", "BYTES", [1], struct.pack("<I", len(words)) + words)
        if counted:
            add("num_output_tokens", "INT32", [1, 1], struct.pack("<i", len(tokens)))
    else:
        add("output_ids", "INT32", [1, 1, len(tokens)], struct.pack(f"<{len(tokens)}i", *tokens))
        add("sequence_length", "INT32", [1, 1], struct.pack("<i", len(tokens)))
    return response


def _streamed(request: service_pb2.ModelInferRequest, asked: _Asked) -> list[bytes]:
    """The messages of a streamed answer, marked as Triton marks them, then disturbed as requested."""
    whole = asked.act not in (Act.ERROR, Act.HANG, Act.STATUS)
    tokens = list(range(FIRST_TOKEN, FIRST_TOKEN + (asked.tokens if whole else asked.tokens // 2)))
    groups = [[token] for token in tokens] if asked.streaming else [tokens]
    answers = [_answer(request.id, group, asked.text, request.model_name != "uncounted") for group in groups]
    for number, answer in enumerate(answers):
        answer.parameters["triton_final_response"].bool_param = whole and number == len(answers) - 1
    match asked.act:
        case Act.DOUBLED:
            answers = [answer for answer in answers[:-1] for _ in range(2)] + answers[-1:]
        case Act.DOUBLED_LAST:
            answers = [*answers, answers[-1]]
        case Act.SWAPPED:
            answers[:2] = reversed(answers[:2])
        case Act.SWAPPED_LAST:
            answers[-2:] = reversed(answers[-2:])
        case Act.FOREIGN:
            answers[1].id += "0"
        case Act.WIDE:
            answers[1].outputs[0].datatype = "INT64"
    bodies = [service_pb2.ModelStreamInferResponse(infer_response=answer).SerializeToString() for answer in answers]
    if asked.act == Act.CUT_BODY:
        bodies[1] = bodies[1][: len(bodies[1]) // 2]
    return bodies


def _error(message: str) -> bytes:
    raw: bytes = service_pb2.ModelStreamInferResponse(error_message=message).SerializeToString()
    return raw


class _Service:
    def __init__(self, log: Path, setting: str) -> None:
        self._setting = setting
        self._log = log.open("a", buffering=1)

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
        if asked.act == Act.MUTE:
            await asyncio.sleep(3600)
        for body in _streamed(request, asked):
            await asyncio.sleep(asked.gap_s)
            yield body
        if asked.act == Act.ERROR:
            yield _error("scripted error")
        if asked.act == Act.STATUS:
            await context.abort(grpc.StatusCode.INTERNAL, "scripted error")
        if asked.act == Act.HANG:
            await asyncio.sleep(3600)

    async def infer(self, raw: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = service_pb2.ModelInferRequest.FromString(raw)
        self._log.write(f"{request.id}\n")
        asked = _read(request)
        if asked.act == Act.FULL:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
        if asked.act != Act.ANSWER:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "scripted error")
        tokens = list(range(FIRST_TOKEN, FIRST_TOKEN + asked.tokens))
        body: bytes = _answer(request.id, tokens, asked.text, counted=True).SerializeToString()
        return body

    async def config(self, raw: bytes, context: grpc.aio.ServicerContext) -> bytes:
        name = service_pb2.ModelConfigRequest.FromString(raw).name
        if name == "slow":
            await asyncio.sleep(3600)
        if name == "broken":
            await context.abort(grpc.StatusCode.INTERNAL, "scripted error")
        if name not in ("scripted", "unary", *_TEXT_MODELS, *_BY_MODEL):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}' is not found")
        response = service_pb2.ModelConfigResponse()
        response.config.name = name
        response.config.max_batch_size = 8
        response.config.model_transaction_policy.decoupled = name != "unary"
        core = ("input_ids", "input_lengths", "request_output_len", "streaming", "end_id", "exclude_input_in_output")
        text = ("text_input", "stream", "return_num_output_tokens", *(() if name == "unlimited" else ("max_tokens",)))
        for tensor in text if name in _TEXT_MODELS else core:
            response.config.input.add(name=tensor)
        for tensor in ("text_output", "num_output_tokens") if name in _TEXT_MODELS else ("output_ids", "sequence_length"):
            response.config.output.add(name=tensor)
        response.config.parameters["engine"].string_value = "script"
        if self._setting:
            response.config.parameters["max_num_sequences"].string_value = self._setting
        body: bytes = response.SerializeToString()
        return body

    async def metadata(self, raw: bytes, context: grpc.aio.ServicerContext) -> bytes:
        body: bytes = service_pb2.ServerMetadataResponse(
            name="script", version="1.0", extensions=["model_configuration"]
        ).SerializeToString()
        return body

    async def statistics(self, raw: bytes, context: grpc.aio.ServicerContext) -> bytes:
        response = service_pb2.ModelStatisticsResponse()
        for name in ("text", "scripted", "gone"):  # the last is unloaded before its configuration is asked
            response.model_stats.add(name=name, version="1")
        body: bytes = response.SerializeToString()
        return body


async def _serve(log: Path, streams: int, port: int, setting: str) -> None:
    service = _Service(log, setting)
    options = [
        (f"grpc.server.max_pending_requests{which}", 1_000_000) for which in ("", "_hard_limit")
    ]  # else it turns some away
    if streams:  # and not refused where one was answered whose call, on a busy machine, is not yet cleared away here
        options += [("grpc.max_concurrent_streams", streams), ("grpc.http.overload_protection", 0)]
    server = grpc.aio.server(options=options)
    handlers = {
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(service.stream),
        "ModelInfer": grpc.unary_unary_rpc_method_handler(service.infer),
        "ModelConfig": grpc.unary_unary_rpc_method_handler(service.config),
    }
    if setting:
        handlers["ServerMetadata"] = grpc.unary_unary_rpc_method_handler(service.metadata)
        handlers["ModelStatistics"] = grpc.unary_unary_rpc_method_handler(service.statistics)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(server.stop(grace=30)))
    print(port, flush=True)
    await server.wait_for_termination()


def _end_with_owner() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_owner, daemon=True).start()
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
