"""Soak test of cancellation: a thousand requests cancelled at random times under load, without leaks, losses or duplicates.

    python -m benchmarks.cancel_soak [--cancels 1000] [--in_flight 32] [--seed 0]

Half are cancelled by the client (its call ends), half by a ``stop`` request with their id; the core model and the ensemble
support both, ``tensorrt_llm_bls`` only the first, since it assigns the ids of its inner requests, as in upstream. The same
number of requests is not cancelled. Checks: an uncancelled request gets exactly its tokens, once; a cancelled one gets a prefix
of them; each ``stop`` gets one empty response; afterwards no request is active, a probe uses as many KV blocks as before, and
greedy outputs are unchanged. Failures are printed, and the exit status is 1.
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
# model: its share of all cancellations, and the share of `stop` among them
SHARES = {CORE: (0.4, 0.625), "ensemble": (0.4, 0.625), "tensorrt_llm_bls": (0.2, 0.0)}
_OUTPUT_TOKENS = (30, 70, 150)
_PROMPTS = 8
_PROBE_TOKENS = 600
_BLOCKS_BETWEEN_READINGS = 4  # the engine sends the gauge each 50 ms, in which the probe may take that many
_TIMEOUT_S = 300.0
_CACHE_TOKENS = 32_768  # small, so that leaked blocks are noticeable


@dataclass(frozen=True)
class Planned:
    """One request of the soak: prompt, output length, streaming, and cancellation (or none)."""

    prompt: int
    output_tokens: int
    streamed: bool
    cancel: str | None  # "client", "stop" or None
    cancel_after: int  # number of responses, if streamed
    cancel_delay_s: float


@dataclass
class Findings:
    """Outcomes of the requests; ``broken`` has a message for every failed check."""

    ended: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


Pieces = list[bytes] | list[int]


class Model:
    """Client of one model of a running server, with a stream per request."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self._channel = grpc.aio.insecure_channel(server.addresses.grpc, options=(("grpc.enable_http_proxy", 0),))
        self._stream = self._channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")

    async def close(self) -> None:
        await self._channel.close()

    def start(self, planned: Planned, request_id: str) -> Any:
        return self._stream(_once(self._draft(planned, request_id).encode()), timeout=_TIMEOUT_S)

    async def stop(self, request_id: str) -> str | None:
        """Stop a request; returns a message if the response is not a single empty final one."""
        inputs = (int32("input_ids", 0), int32("input_lengths", 0), int32("request_output_len", 0))
        stop = Draft(CORE, (*inputs, Tensor("stop", "BOOL", (1, 1), b"\x01")), request_id=request_id)
        answers = [answer async for answer in answers_of(self._stream(_once(stop.encode()), timeout=_TIMEOUT_S))]
        if len(answers) != 1 or answers[0].outputs or not answers[0].parameters["triton_final_response"].bool_param:
            return f"the responses to stop were {answers}"
        return None

    def _draft(self, planned: Planned, request_id: str) -> Draft:
        streaming = Tensor("streaming" if self.name == CORE else "stream", "BOOL", (1, 1), bytes([planned.streamed]))
        exclude = Tensor("exclude_input_in_output", "BOOL", (1, 1), b"\x01")
        if self.name == CORE:
            ids = np.random.default_rng(planned.prompt).integers(3, 3_072, 50 + 5 * planned.prompt).tolist()
            inputs = (
                int32("input_ids", *ids),
                int32("input_lengths", len(ids)),
                int32("request_output_len", planned.output_tokens),
            )
            return Draft(CORE, (*inputs, streaming, exclude), request_id=request_id, outputs=("output_ids", "sequence_length"))
        text = f"List {planned.prompt} things about in-flight batching, number {planned.prompt}".encode()
        prompt = Tensor("text_input", "BYTES", (1, 1), pack_strings(text))
        no_end = int32("end_id", -1)
        inputs = (prompt, int32("max_tokens", planned.output_tokens), no_end)
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
    """Content of a response: raw int32 ids, or UTF-8 text. Empty for a bare final response."""
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.name == "output_ids":
            return bytes(raw)
        if output.name == "text_output":
            return bytes(raw[4:])
    return b""


async def soak(server: Server, name: str, cancels: int, stop_share: float, in_flight: int, seed: int) -> Findings:
    """Cancel ``cancels`` requests of one model, run as many to their end, and check everything."""
    findings = Findings()
    model = Model(server, name)
    plan = plan_of(cancels, round(cancels * stop_share), seed)
    expected = {key: await _whole(model, *key) for key in sorted({(planned.prompt, planned.output_tokens) for planned in plan})}
    blocks_before = await _probe_blocks(server, model)
    room = asyncio.Semaphore(in_flight)

    async def one(number: int, planned: Planned) -> None:
        async with room:
            try:
                await _run(model, planned, f"{name}-{seed}-{number}", expected[planned.prompt, planned.output_tokens], findings)
            except (AssertionError, grpc.aio.AioRpcError) as error:
                findings.broken.append(f"{planned}: {str(error) or error!r}")

    await asyncio.gather(*[one(number, planned) for number, planned in enumerate(plan)])
    await _check_idle(server, findings)
    blocks_after = await _probe_blocks(server, model)
    if blocks_after > blocks_before + _BLOCKS_BETWEEN_READINGS:
        findings.broken.append(f"a probe used {blocks_before:.0f} KV blocks before and {blocks_after:.0f} after")
    for key, answer in expected.items():
        if await _whole(model, *key) != answer:
            findings.broken.append(f"the greedy output for {key} has changed")
    await model.close()
    return findings


def plan_of(cancels: int, stops: int, seed: int) -> list[Planned]:
    """Requests with and without cancellation, equally many, shuffled."""
    draw = random.Random(seed)
    kinds: list[str | None] = ["stop"] * stops + ["client"] * (cancels - stops) + [None] * cancels
    draw.shuffle(kinds)
    plan = []
    for kind in kinds:
        output_tokens = draw.choice(_OUTPUT_TOKENS)
        delay_s = draw.choice([0.0, draw.uniform(0, 0.02), draw.uniform(0, 1.0)])
        plan.append(
            Planned(draw.randrange(_PROMPTS), output_tokens, draw.random() < 0.8, kind, draw.randrange(output_tokens), delay_s)
        )
    return plan


async def _whole(model: Model, prompt: int, output_tokens: int) -> bytes:
    answers = [content(a) async for a in answers_of(model.start(Planned(prompt, output_tokens, False, None, 0, 0.0), "whole"))]
    return b"".join(answers)


async def _run(model: Model, planned: Planned, request_id: str, expected: bytes, findings: Findings) -> None:
    call = model.start(planned, request_id)
    content_so_far = bytearray()
    finals = responses = 0
    cancelling: asyncio.Task[None] | None = None

    async def cancel() -> None:
        await asyncio.sleep(planned.cancel_delay_s)
        if planned.cancel == "client":
            call.cancel()
        elif (problem := await model.stop(request_id)) is not None:
            findings.broken.append(problem)

    if planned.cancel is not None and (not planned.streamed or planned.cancel_after == 0):
        cancelling = asyncio.create_task(cancel())
    try:
        async for answer in answers_of(call):
            content_so_far += content(answer)
            responses += bool(answer.outputs)
            finals += answer.parameters["triton_final_response"].bool_param
            if planned.cancel is not None and cancelling is None and responses >= planned.cancel_after:
                cancelling = asyncio.create_task(cancel())
    except asyncio.CancelledError:
        if planned.cancel != "client" or not call.cancelled():
            raise
    if cancelling is not None:
        await cancelling
    if not call.cancelled() and finals != 1:
        findings.broken.append(f"{planned}: {finals} final responses")
    if not planned.streamed and responses > 1:
        findings.broken.append(f"{planned}: {responses} responses to one unstreamed request")
    _check_content(planned, bytes(content_so_far), expected, findings)


def _check_content(planned: Planned, received: bytes, expected: bytes, findings: Findings) -> None:
    whole = received == expected
    findings.ended[f"{planned.cancel or 'not cancelled'}: {'whole' if whole else 'part'}"] += 1
    if not expected.startswith(received.rstrip("\N{REPLACEMENT CHARACTER}".encode()) if planned.cancel else received):
        findings.broken.append(f"{planned}: {received!r} is not a prefix of {expected!r}")
    if planned.cancel is None and not whole:
        findings.broken.append(f"{planned}: not cancelled, but received {len(received)} bytes instead of {len(expected)}")


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
    """Maximum number of KV blocks in use, leaked ones included, while one long request runs alone."""
    call = model.start(Planned(0, _PROBE_TOKENS, True, None, 0, 0.0), "probe")
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
            for message in findings.broken[:20]:
                print(f"BROKEN: {message[:2000]}", flush=True)
            failed = failed or bool(findings.broken)
    complaints = complaints_of(log)
    for line in complaints:
        print(f"BROKEN: in the log: {line}")
    return int(failed or bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
