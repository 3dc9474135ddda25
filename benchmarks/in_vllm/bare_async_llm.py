"""vLLM's ``AsyncLLM`` alone, for other benchmarks: it runs in vLLM's environment, without our packages.

    PYTHON bare_async_llm.py ARGUMENTS_JSON

Each line of standard input is a load, ``{"requests": [[ids, tokens], …], "in_flight": n, "streaming": true}``; its answer is a
line of standard output, ``{"output_tokens": n, "seconds": s}``. A first line says that the engine is loaded.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any


async def run(llm: Any, load: dict[str, Any], numbers: list[int]) -> dict[str, float]:
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    kind = RequestOutputKind.DELTA if load["streaming"] else RequestOutputKind.FINAL_ONLY
    room = asyncio.Semaphore(load["in_flight"])

    async def one(ids: list[int], tokens: int) -> int:
        parameters = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, output_kind=kind)
        generated = 0
        numbers[0] += 1
        async with room:
            async for output in llm.generate(tokens_input(ids), parameters, str(numbers[0])):
                generated += len(output.outputs[0].token_ids)
        return generated

    started_s = time.monotonic()
    counts = await asyncio.gather(*[one(ids, tokens) for ids, tokens in load["requests"]])
    return {"output_tokens": sum(counts), "seconds": time.monotonic() - started_s}


async def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to standard output, also while it is imported
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**json.loads(sys.argv[1])))
    numbers = [0]
    print("ready", file=replies, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await run(llm, json.loads(line), numbers)), file=replies, flush=True)
    llm.shutdown()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
