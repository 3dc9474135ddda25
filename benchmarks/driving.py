"""Requests that are sent a fixed number at a time, to an engine or through the client of ``bench``, without a harness."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.clients.triton.grpc import TritonGrpcClient
from serving.engines.protocol import Engine, Increment, Sampling
from workloads.elements.request import Request


@dataclass(frozen=True)
class Generated:
    """The tokens of a load, and the seconds from its first request to its last token."""

    output_tokens: int
    seconds: float


Way = Callable[[list[Request], int], Generated]  # the requests, and how many of them are in flight


def requests_of(count: int, input_tokens: int, output_tokens: int) -> list[Request]:
    random = np.random.default_rng(0)
    return [
        Request(output_tokens, input_ids=tuple(random.integers(3, 3072, input_tokens).tolist()), ignore_eos=True)
        for _ in range(count)
    ]


def driven(engine: Engine, streaming: bool) -> Way:
    """Requests that go to ``engine`` from this process."""

    def run(requests: list[Request], in_flight: int) -> Generated:
        room = threading.Semaphore(in_flight)
        tokens = 0
        ended = threading.Semaphore(0)

        def deliver(increment: Increment) -> None:
            nonlocal tokens
            tokens += len(increment.token_ids)
            if increment.is_last:
                room.release()
                ended.release()

        started_s = time.monotonic()
        for number, request in enumerate(requests):
            room.acquire()
            assert request.input_ids is not None
            engine.submit(number, request.input_ids, Sampling(request.output_tokens), deliver, streaming=streaming)
        for _ in requests:
            ended.acquire()
        return Generated(tokens, time.monotonic() - started_s)

    return run


async def drive(client: TritonGrpcClient, requests: list[Request], in_flight: int) -> Generated:
    """Send ``requests`` over one connection."""
    seconds, bodies = await responses_of(client, requests, in_flight)
    return Generated(sum(len(client.decode(body).token_ids or ()) for body in bodies), seconds)


async def responses_of(client: TritonGrpcClient, requests: list[Request], in_flight: int) -> tuple[float, list[bytes]]:
    """The seconds of the exchanges, and the responses; encoding is over before, as in a run."""
    connection = await client.connect(10.0)
    room = asyncio.Semaphore(in_flight)
    bodies: list[bytes] = []

    async def one(payload: bytes) -> None:
        async with room:
            await connection.exchange(payload, lambda _, arrived: bodies.extend(arrived), 120.0)

    payloads = [client.encode(number, request) for number, request in enumerate(requests)]
    started_s = time.monotonic()
    await asyncio.gather(*map(one, payloads))
    seconds = time.monotonic() - started_s
    await connection.close()
    return seconds, bodies
