"""vLLM's ``LLM.generate`` alone, for other benchmarks: it runs in vLLM's environment, without our packages.

    PYTHON offline.py ARGUMENTS_JSON

Each line of standard input is a load, ``{"requests": [[ids, tokens], …]}``, whose prompts are all given at once; its answer is
a line of standard output, ``{"output_tokens": n, "seconds": s}``. A first line says that the engine is loaded.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def run(llm: Any, load: list[tuple[list[int], int]]) -> dict[str, float]:
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    prompts = [TokensPrompt(prompt_token_ids=ids) for ids, _ in load]
    parameters = [SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False) for _, tokens in load]
    started_s = time.monotonic()
    outputs = llm.generate(prompts, parameters, use_tqdm=False)
    seconds = time.monotonic() - started_s
    return {"output_tokens": sum(len(output.outputs[0].token_ids) for output in outputs), "seconds": seconds}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to standard output, also while it is imported
    from vllm import LLM

    llm = LLM(**json.loads(sys.argv[1]), skip_tokenizer_init=True)
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(llm, json.loads(line)["requests"])), file=replies, flush=True)


if __name__ == "__main__":
    main()
