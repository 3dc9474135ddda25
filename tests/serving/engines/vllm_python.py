"""The Python that the tests of the vllm engine give it: one with the real vLLM (`make test-vllm`), else one with a fake."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import msgspec
import numpy
import safetensors
import uvloop

REAL = os.environ.get("BENCH_VLLM_PYTHON", "")
"""The Python with the real vLLM; empty in `make test`."""

ARGUMENTS = ("load_format=dummy", "dtype=float32", "enforce_eager=true", "block_size=32")
_CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 3072, "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32,
    "max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.08,
}  # fmt: skip


def vllm_python(folder: Path) -> str:
    """The path of the Python; that with the fake is a script in ``folder``."""
    if REAL:
        return REAL
    libraries = folder / "libraries"
    libraries.mkdir(exist_ok=True)
    installed = [Path(str(package.__file__)).parent for package in (msgspec, numpy, safetensors, uvloop)]  # vLLM requires them
    installed += [folder for folder in [Path(numpy.__file__).parents[1] / "numpy.libs"] if folder.exists()]
    for package in (*installed, Path(__file__).with_name("fake_vllm") / "vllm"):
        if not (libraries / package.name).exists():
            (libraries / package.name).symlink_to(package)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={libraries} exec {sys.base_prefix}/bin/python3 "$@"\n')
    script.chmod(0o755)
    return str(script)


def checkpoint(folder: Path, **changes: object) -> Path:
    """A checkpoint without weights, which are random, in ``folder``."""
    (folder / "config.json").write_text(json.dumps(_CONFIG | changes))
    return folder
