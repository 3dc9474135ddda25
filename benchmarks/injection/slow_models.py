"""The embedded pipeline with a slow tokenizer, or a slow engine: Triton with two of its models replaced.

A repository is written as always; then the ``model.py`` of ``preprocessing`` and of ``tensorrt_llm`` import this module, inside
Triton's stub.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.injection.delays import Delays
from benchmarks.injection.windows import injects
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.process_engine import ProcessEngine, start
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import embedded_plan
from serving.launch.run import running
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec, write_repository

STEPS = "steps.csv"
_ROOT = Path(__file__).parents[2]


@contextmanager
def slow_pipeline(delays: Delays, folder: Path, max_num_sequences: int = 256) -> Iterator[Server]:
    """The embedded pipeline, decoupled and slowed down, with its files in ``folder``, which must be empty or missing. Where its
    steps are delayed it logs them there.
    """
    log = str((folder / STEPS).absolute()) if delays.prompt_step_s else ""
    options = EngineOptions(enable_kv_cache_reuse=False, max_num_sequences=max_num_sequences, step_log=log)
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=options)
    write_repository(spec, folder / "repository")
    for model, function in (("preprocessing", "preprocessing_model"), ("tensorrt_llm", "core_model")):
        (folder / "repository" / model / "1" / "model.py").write_text(
            f"import sys\n\nsys.path.insert(0, {str(_ROOT)!r})\n"
            f"from benchmarks.injection.slow_models import {function}\n\n"
            f"TritonPythonModel = {function}({msgspec.json.encode(delays).decode()!r})\n",
            encoding="utf-8",
        )
    plan = embedded_plan(folder / "repository", choose_addresses(), folder / "server.log", models=spec.model_names)
    with running(plan) as server:
        yield server


# ---- in Triton's stub


def preprocessing_model(delays_json: str) -> type[Any]:
    """The class of ``preprocessing`` whose tokenizer takes ``tokenizer_s`` longer for each prompt in windows with delays."""
    from serving.models.preprocessing import TritonPythonModel

    delays = msgspec.json.decode(delays_json, type=Delays)

    class Slow(TritonPythonModel):
        def _encode(self, text: str) -> list[int]:
            if injects(time.monotonic()):
                time.sleep(delays.tokenizer_s)
            return super()._encode(text)

    return Slow


def core_model(delays_json: str) -> type[Any]:
    """The class of ``tensorrt_llm`` over the slow engine."""
    from serving.models.core import model

    def open_engine(name: str, engine_dir: Path, options: EngineOptions) -> ProcessEngine:
        own = [f"{sys.prefix}/bin/python3", "-m", "benchmarks.injection.slow_worker"]
        settings = [str(engine_dir), msgspec.json.encode(options).decode(), delays_json]
        environment = os.environ | {"PYTHONPATH": str(_ROOT)}
        return ProcessEngine(start(lambda pipe: [*own, str(pipe), *settings], environment))

    vars(model)["open_engine"] = open_engine
    return model.TritonPythonModel
