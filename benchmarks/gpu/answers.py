"""The answers of two deployments of the pipeline to the same prompts under greedy decoding: one GPU against several.

    python -m benchmarks.gpu.answers HOST:PORT HOST:PORT [--prompts 200] [--vocabulary 128000]

Prompts of 128±5 random tokens go to each core model over gRPC, each one at a time, so that no batch changes the rounding;
answers have 20 tokens. Prints how many are equal in all their tokens, and where the others differ first: the second deployment
against the first, and the first against itself, which is what chance alone does. In half precision the order of a sum decides
between tokens that random weights make nearly equal: serve them with ``--engine_arg dtype=float32``.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from queue import Queue

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput, InferResult

_OUTPUT_TOKENS = 20
_TIMEOUT_S = 60.0


class CoreModel:
    """The ``tensorrt_llm`` model, decoupled, at ``url``."""

    def __init__(self, url: str) -> None:
        self._responses: Queue[tuple[InferResult | None, Exception | None]] = Queue()
        self._client = InferenceServerClient(url)
        self._client.start_stream(lambda result, error: self._responses.put((result, error)))

    def answer(self, prompt_ids: list[int]) -> list[int]:
        """The generated ids, without the prompt, with which the answer of a deployed model begins by default."""
        tensors = {"input_ids": prompt_ids, "input_lengths": [len(prompt_ids)], "request_output_len": [_OUTPUT_TOKENS]}
        inputs = []
        for name, values in tensors.items():
            tensor = InferInput(name, [1, len(values)], "INT32")
            tensor.set_data_from_numpy(np.array([values], np.int32))
            inputs.append(tensor)
        outputs = [InferRequestedOutput("output_ids"), InferRequestedOutput("sequence_length")]
        self._client.async_stream_infer("tensorrt_llm", inputs, outputs=outputs, enable_empty_final_response=True)
        ids: list[int] = []
        while True:
            result, error = self._responses.get(timeout=_TIMEOUT_S)
            if error is not None or result is None:
                raise RuntimeError(str(error))
            found = result.as_numpy("output_ids")
            if found is not None:
                ids += found.ravel()[: int(result.as_numpy("sequence_length").ravel()[0])].tolist()
            if result.get_response().parameters["triton_final_response"].bool_param:
                return ids[len(prompt_ids) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("urls", nargs=2)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--vocabulary", type=int, default=128_000)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    lengths = np.maximum(1, random.normal(128, 5, given.prompts).round().astype(int))
    prompts = [random.integers(3, given.vocabulary, length).tolist() for length in lengths]
    models = [CoreModel(url) for url in given.urls]
    with ThreadPoolExecutor(len(models)) as pool:
        first, second = pool.map(lambda model: [model.answer(prompt) for prompt in prompts], models)
    again = [models[0].answer(prompt) for prompt in prompts]
    found = {
        "prompts": given.prompts,
        "distinct": len({tuple(answer) for answer in first}),
        "second": compare(first, second),
        "first_again": compare(first, again),
    }
    print(json.dumps(found))


def compare(answers: Sequence[list[int]], others: Sequence[list[int]]) -> dict[str, object]:
    """How many are equal, and the others by the place of their first difference."""
    places = Counter(
        next((place for place, pair in enumerate(zip_longest(*both)) if pair[0] != pair[1]), None)
        for both in zip(answers, others, strict=True)
    )
    equal = places.pop(None, 0)
    return {"equal": equal, "first_difference": {str(place): count for place, count in sorted(places.items())}}


if __name__ == "__main__":
    main()
