"""Cost of scripting: tokens/s of ``tensorrt_llm_bls`` against the ensemble, streamed, with a fixed number of clients.

    python benchmarks/bls_against_ensemble.py [--clients 32] [--requests 256] [--rounds 5]

Every client sends its next request when the previous one has ended. The models alternate on one server, round by round, so
that drift in the machine's speed does not favour one; the result is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import uvloop

from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec
from workloads.elements.request import Request

TARGET_RATIO = 0.8
WORDS = "the sea king queen road light machine paper river stone winter letter house music green seven small under night bread"
MODELS = ("ensemble", "tensorrt_llm_bls")


def requests_of(count: int, input_words: int, output_tokens: int) -> list[Request]:
    random = np.random.default_rng(0)
    prompts = random.choice(WORDS.split(), (count, input_words))
    return [Request(output_tokens, prompt=" ".join(words), ignore_eos=True) for words in prompts]


async def drive(client: TritonGrpcClient, requests: list[Request], clients: int) -> tuple[int, int]:
    """Number of tokens and responses received."""
    connection = await client.connect(10.0)
    waiting = [client.encode(number, request) for number, request in enumerate(requests)]
    bodies: list[bytes] = []

    async def one_client() -> None:
        while waiting:
            await connection.exchange(waiting.pop(), lambda _, arrived: bodies.extend(arrived), 120.0)

    await asyncio.gather(*[one_client() for _ in range(clients)])
    await connection.close()
    responses = [client.decode(body) for body in bodies]
    errors = [response.error for response in responses if response.error]
    assert not errors, errors[0]
    return sum(response.server_tokens or 0 for response in responses), len(responses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--input_words", type=int, default=64)
    parser.add_argument("--output_tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--log", type=Path, help="file for the server's log")
    arguments = parser.parse_args()
    requests = requests_of(arguments.requests, arguments.input_words, arguments.output_tokens)
    expected = arguments.requests * arguments.output_tokens
    # The prompts are the same in each round.
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=EngineOptions(enable_kv_cache_reuse=False))
    rates: dict[str, list[float]] = {model: [] for model in MODELS}
    with (
        tempfile.TemporaryDirectory() as folder,
        deploy(spec, choose_addresses(), arguments.log or Path(folder) / "log") as server,
    ):
        address = server.addresses.grpc
        ways = {model: TritonGrpcClient(address, inspect_model(address, model), streaming=True) for model in MODELS}
        for round_number in range(arguments.rounds + 1):  # the first is the warm-up and is not counted
            for model, client in ways.items():
                started = time.monotonic()
                tokens, responses = uvloop.run(drive(client, requests, arguments.clients))
                rate = tokens / (time.monotonic() - started)
                assert tokens == expected, f"{model}: {tokens} tokens, not {expected}"
                if round_number:
                    rates[model].append(rate)
                    print(f"round {round_number}: {model}: {rate:,.0f} tok/s in {responses:,} responses", flush=True)
    ratios = [bls / ensemble for ensemble, bls in zip(rates["ensemble"], rates["tensorrt_llm_bls"], strict=True)]
    for model, values in rates.items():
        print(f"{model:17} {statistics.median(values):7,.0f} tok/s ({min(values):,.0f} to {max(values):,.0f})")
    ratio = statistics.median(ratios)
    print(
        f"BLS reaches {ratio:.1%} of the ensemble's tokens/s ({min(ratios):.1%} to {max(ratios):.1%} by round); "
        f"target {TARGET_RATIO:.0%}: {'met' if ratio >= TARGET_RATIO else 'missed'}"
    )


if __name__ == "__main__":
    main()
