"""A thousand requests cancelled at random times under load: is anything leaked, lost, doubled or changed?

    python -m benchmarks.cancel_soak [--cancels 1000] [--in_flight 32] [--seed 0]

Half are cancelled by the client (its call ends), half by a ``stop`` request with their id; the core model and the ensemble
support both ways, ``tensorrt_llm_bls`` only the first, since it names its inner requests itself, as upstream's does. As many
requests again are left alone. Checked: a request left alone gets exactly its tokens, once; a cancelled one gets a beginning
of them; each ``stop`` is answered once, empty; then no request is active, a probe uses as many KV blocks as before, and
greedy answers are what they were. What fails is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2

from benchmarks.fuzz_server import complaints_of
from benchmarks.malformed_requests import Draft, Tensor, int32, pack_strings
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec

CORE = "tensorrt_llm"
# model: the share of all cancels, and how many of them are made by `stop`
SHARES = {CORE: (0.4, 0.625), "ensemble": (0.4, 0.625), "tensorrt_llm_bls": (0.2, 0.0)}
_OUTPUT_TOKENS = (30, 70, 150)
_PROMPTS = 8
_PROBE_TOKENS = 600
_TIMEOUT_S = 300.0
_CACHE_TOKENS = 32_768  # small, so that leaked blocks would weigh


@dataclass(frozen=True)
class SoakRequest:
    """One request of the soak: which prompt, how many tokens, streamed or not, and how it is to end early (or not)."""

    prompt: int
    output_tokens: int
    streamed: bool
    cancel: str | None  # "client", "stop" or None
    cancel_after: int  # responses, where streamed
    cancel_delay_s: float


@dataclass
class Findings:
    """What happened; ``broken`` holds a sentence for everything that must not happen."""

    ended: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


Pieces = list[bytes] | list[int]


class Model:
    """One model of a running server; each request has a stream of its own."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self._channel = grpc.aio.insecure_channel(server.addresses.grpc, options=(("grpc.enable_http_proxy", 0),))
        self._stream = self._channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")

    async def close(self) -> None:
        await self._channel.close()

    def start(self, request: SoakRequest, request_id: str) -> Any:
        return self._stream(_once(self._draft(request, request_id).encode()), timeout=_TIMEOUT_S)

    async def stop(self, request_id: str) -> str | None:
        """Stop a request; a sentence when the answer is not one empty final response."""
        inputs = (int32("input_ids", 0), int32("input_lengths", 0), int32("request_output_len", 0))
        stop = Draft(CORE, (*inputs, Tensor("stop", "BOOL", (1, 1), b"\x01")), request_id=request_id)
        answers = [answer async for answer in answers_of(self._stream(_once(stop.encode()), timeout=_TIMEOUT_S))]
        if len(answers) != 1 or answers[0].outputs or not answers[0].parameters["triton_final_response"].bool_param:
            return f"stop was answered by {answers}"
        return None

    def _draft(self, request: SoakRequest, request_id: str) -> Draft:
        streaming = Tensor("streaming" if self.name == CORE else "stream", "BOOL", (1, 1), bytes([request.streamed]))
        exclude = Tensor("exclude_input_in_output", "BOOL", (1, 1), b"\x01")
        if self.name == CORE:
            ids = np.random.default_rng(request.prompt).integers(3, 3_072, 50 + 5 * request.prompt).tolist()
            inputs = (
                int32("input_ids", *ids),
                int32("input_lengths", len(ids)),
                int32("request_output_len", request.output_tokens),
            )
            return Draft(CORE, (*inputs, streaming, exclude), request_id=request_id, outputs=("output_ids", "sequence_length"))
        text = f"List {request.prompt} things about in-flight batching, number {request.prompt}".encode()
        prompt = Tensor("text_input", "BYTES", (1, 1), pack_strings(text))
        no_end = int32("end_id", -1)
        inputs = (prompt, int32("max_tokens", request.output_tokens), no_end)
        return Draft(self.name, (*inputs, streaming, exclude), request_id=request_id, outputs=("text_output",))


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def answers_of(call: Any) -> AsyncIterator[Any]:
    """Responses of a call. Raises AssertionError for an error response."""
    async for body in call:
        message = service_pb2.ModelStreamInferResponse.FromString(body)
        assert not message.error_message, message.error_message
        yield message.infer_response


def content(response: Any) -> bytes:
    """What a response adds to the answer: raw int32 ids, or UTF-8 text. Empty for a bare final response."""
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.name == "output_ids":
            return bytes(raw)
        if output.name == "text_output":
            return bytes(raw[4:])
    return b""


async def soak(server: Server, name: str, cancels: int, stop_share: float, in_flight: int, seed: int) -> Findings:
    """Cancel ``cancels`` requests of one model, leave as many alone, and check everything."""
    findings = Findings()
    model = Model(server, name)
    plan = plan_of(cancels, round(cancels * stop_share), seed)
    expected = {key: await _whole(model, *key) for key in sorted({(request.prompt, request.output_tokens) for request in plan})}
    blocks_before = await _probe_blocks(server, model)
    room = asyncio.Semaphore(in_flight)

    async def one(number: int, request: SoakRequest) -> None:
        async with room:
            try:
                await _run(model, request, f"{name}-{seed}-{number}", expected[request.prompt, request.output_tokens], findings)
            except (AssertionError, grpc.aio.AioRpcError) as error:
                findings.broken.append(f"{request}: {str(error) or error!r}")

    await asyncio.gather(*[one(number, request) for number, request in enumerate(plan)])
    await _check_idle(server, findings)
    blocks_after = await _probe_blocks(server, model)
    if abs(blocks_after - blocks_before) > 2:  # the gauge is read every few steps
        findings.broken.append(f"a probe used {blocks_before:.0f} KV blocks before and {blocks_after:.0f} after")
    for key, answer in expected.items():
        if await _whole(model, *key) != answer:
            findings.broken.append(f"the greedy answer to {key} has changed")
    await model.close()
    return findings


def plan_of(cancels: int, stops: int, seed: int) -> list[SoakRequest]:
    """Requests to be cancelled and as many left alone, shuffled."""
    draw = random.Random(seed)
    kinds: list[str | None] = ["stop"] * stops + ["client"] * (cancels - stops) + [None] * cancels
    draw.shuffle(kinds)
    plan = []
    for kind in kinds:
        output_tokens = draw.choice(_OUTPUT_TOKENS)
        delay_s = draw.choice([0.0, draw.uniform(0, 0.02), draw.uniform(0, 1.0)])
        plan.append(
            SoakRequest(
                draw.randrange(_PROMPTS), output_tokens, draw.random() < 0.8, kind, draw.randrange(output_tokens), delay_s
            )
        )
    return plan


async def _whole(model: Model, prompt: int, output_tokens: int) -> bytes:
    request = SoakRequest(prompt, output_tokens, False, None, 0, 0.0)
    return b"".join([content(answer) async for answer in answers_of(model.start(request, "whole"))])


async def _run(model: Model, request: SoakRequest, request_id: str, expected: bytes, findings: Findings) -> None:
    call = model.start(request, request_id)
    got = bytearray()
    finals = responses = 0
    cancelling: asyncio.Task[None] | None = None

    async def cancel() -> None:
        await asyncio.sleep(request.cancel_delay_s)
        if request.cancel == "client":
            call.cancel()
        elif (problem := await model.stop(request_id)) is not None:
            findings.broken.append(problem)

    if request.cancel is not None and (not request.streamed or request.cancel_after == 0):
        cancelling = asyncio.create_task(cancel())
    try:
        async for answer in answers_of(call):
            got += content(answer)
            responses += bool(answer.outputs)
            finals += answer.parameters["triton_final_response"].bool_param
            if request.cancel is not None and cancelling is None and responses >= request.cancel_after:
                cancelling = asyncio.create_task(cancel())
    except asyncio.CancelledError:
        if request.cancel != "client" or not call.cancelled():
            raise
    if cancelling is not None:
        await cancelling
    _check_answer(_Answer(request, bytes(got), finals, responses, call.cancelled()), expected, findings)


@dataclass(frozen=True)
class _Answer:
    """The answer to one request: its content, the number of final and of all responses, and whether it was cancelled."""

    request: SoakRequest
    content: bytes
    finals: int
    responses: int
    cancelled: bool


def _check_answer(answer: _Answer, expected: bytes, findings: Findings) -> None:
    request, got = answer.request, answer.content
    whole = got == expected
    findings.ended[f"{request.cancel or 'left alone'}: {'whole' if whole else 'part'}"] += 1
    if not expected.startswith(got.rstrip("\N{REPLACEMENT CHARACTER}".encode()) if request.cancel else got):
        findings.broken.append(f"{request}: {got!r} is no beginning of {expected!r}")
    if request.cancel is None and not whole:
        findings.broken.append(f"{request}: left alone, and got {len(got)} bytes instead of {len(expected)}")
    if not answer.cancelled and answer.finals != 1:
        findings.broken.append(f"{request}: {answer.finals} final responses")
    if not request.streamed and answer.responses > 1:
        findings.broken.append(f"{request}: {answer.responses} answers to one unstreamed request")


async def _check_idle(server: Server, findings: Findings) -> None:
    deadline_s = time.monotonic() + 10.0
    while (active := _gauge(server, "nv_trt_llm_request_metrics{", 'request_type="active"')) > 0:
        if time.monotonic() > deadline_s:
            findings.broken.append(f"{active:.0f} requests are active 10 s after the last")
            return
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    used = _gauge(server, "nv_trt_llm_kv_cache_block_metrics{", 'kv_cache_block_type="used"')
    if used != 0:
        findings.broken.append(f"an idle server uses {used:.0f} KV blocks")


async def _probe_blocks(server: Server, model: Model) -> float:
    """The most KV blocks in use while one long request runs alone; leaked blocks would be counted in."""
    call = model.start(SoakRequest(0, _PROBE_TOKENS, True, None, 0, 0.0), "probe")
    drained = asyncio.create_task(_drain(call))
    most = 0.0
    while not drained.done():
        used = await asyncio.to_thread(_gauge, server, "nv_trt_llm_kv_cache_block_metrics{", 'kv_cache_block_type="used"')
        most = max(most, used)
        await asyncio.sleep(0.02)
    await drained
    return most


async def _drain(call: Any) -> None:
    async for _ in answers_of(call):
        pass


def _gauge(server: Server, family: str, label: str) -> float:
    with urllib.request.urlopen(f"http://{server.addresses.metrics}/metrics", timeout=30) as response:
        for line in response.read().decode().splitlines():
            if line.startswith(family) and label in line:
                return float(line.rpartition(" ")[2])
    raise AssertionError(f"/metrics has no {family} {label}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cancels", type=int, default=1_000)
    parser.add_argument("--in_flight", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_dir", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args(argv)
    options = replace(EngineOptions(), max_tokens_in_paged_kv_cache=_CACHE_TOKENS)
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=options)
    failed = False
    log = arguments.log_dir / "cancel_soak.log"
    log.unlink(missing_ok=True)
    with deploy(spec, choose_addresses(), log) as server:
        for name, (share, stop_share) in SHARES.items():
            cancels = round(arguments.cancels * share)
            started_s = time.monotonic()
            findings = asyncio.run(soak(server, name, cancels, stop_share, arguments.in_flight, arguments.seed))
            print(f"{name}: {cancels} cancelled in {time.monotonic() - started_s:.0f} s: {dict(findings.ended)}", flush=True)
            for sentence in findings.broken[:20]:
                print(f"BROKEN: {sentence[:2000]}", flush=True)
            failed = failed or bool(findings.broken)
    complaints = complaints_of(log)
    for line in complaints:
        print(f"BROKEN: in the log: {line}")
    return int(failed or bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
