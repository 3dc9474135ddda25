"""Requests that are sent a fixed number at a time, to an engine or through the client of ``bench``, without a harness."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np

from harness.clients.triton.grpc import TritonGrpcClient
from serving.engines.protocol import Engine, Increment, Sampling
from workloads.elements.request import Request

Way = Callable[[list[Request], int], int]  # requests, and how many are in flight → the number of tokens


def requests_of(count: int, input_tokens: int, output_tokens: int) -> list[Request]:
    random = np.random.default_rng(0)
    return [
        Request(output_tokens, input_ids=tuple(random.integers(3, 3072, input_tokens).tolist()), ignore_eos=True)
        for _ in range(count)
    ]


def driven(engine: Engine, streaming: bool) -> Way:
    """Requests that go to ``engine`` from this process."""

    def run(requests: list[Request], in_flight: int) -> int:
        room = threading.Semaphore(in_flight)
        tokens = 0
        ended = threading.Semaphore(0)

        def deliver(increment: Increment) -> None:
            nonlocal tokens
            tokens += len(increment.token_ids)
            if increment.is_last:
                room.release()
                ended.release()

        for number, request in enumerate(requests):
            room.acquire()
            assert request.input_ids is not None
            engine.submit(number, request.input_ids, Sampling(request.output_tokens), deliver, streaming=streaming)
        for _ in requests:
            ended.acquire()
        return tokens

    return run


async def drive(client: TritonGrpcClient, requests: list[Request], in_flight: int) -> int:
    """The number of tokens."""
    return sum(len(client.decode(body).token_ids or ()) for body in await responses_of(client, requests, in_flight))


async def responses_of(client: TritonGrpcClient, requests: list[Request], in_flight: int) -> list[bytes]:
    """The responses to all ``requests``, sent over one connection, as many at a time."""
    connection = await client.connect(10.0)
    room = asyncio.Semaphore(in_flight)
    bodies: list[bytes] = []

    async def one(payload: bytes) -> None:
        async with room:
            await connection.exchange(payload, lambda _, arrived: bodies.extend(arrived), 120.0)

    await asyncio.gather(*[one(client.encode(number, request)) for number, request in enumerate(requests)])
    await connection.close()
    return bodies
