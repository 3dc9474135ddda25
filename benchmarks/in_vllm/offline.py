"""vLLM's ``LLM.generate`` alone, for ``benchmarks/gpu``: all prompts at once. It runs in vLLM's environment.

    PYTHON offline.py ARGUMENTS_JSON LOAD_JSON

LOAD_JSON names a file with ``[[ids, tokens], …]``. Prints one line of JSON: seconds, and the tokens that were generated.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs to standard output
    llm = LLM(**json.loads(sys.argv[1]), skip_tokenizer_init=True)
    load = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids, _ in load]
    parameters = [SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False) for _, tokens in load]
    llm.generate(prompts[:50], parameters[:50], use_tqdm=False)
    began_s = time.perf_counter()
    outputs = llm.generate(prompts, parameters, use_tqdm=False)
    seconds = time.perf_counter() - began_s
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    print(json.dumps({"seconds": seconds, "requests": len(load), "output_tokens": tokens}), file=reply, flush=True)


if __name__ == "__main__":
    main()
