"""vLLM without anything of this project before it: ``LLM.generate`` and ``AsyncLLM``, in its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.driving import Generated
from serving.engines.protocol import EngineOptions
from serving.engines.vllm.engine import engine_arguments
from serving.engines.vllm.environment import environment
from workloads.elements.request import Request

_FOLDER = Path(__file__).with_name("in_vllm")
_SET_BY_LLM = ("skip_tokenizer_init", "disable_log_stats")

Load = Callable[[list[Request], Mapping[str, object]], Generated]


@contextmanager
def offline(model_dir: Path, options: EngineOptions, log: Path) -> Iterator[Load]:
    """``LLM.generate``, which gets the prompts of a load all at once. Raises RuntimeError where it cannot be loaded."""
    arguments = {key: value for key, value in engine_arguments(model_dir, options).items() if key not in _SET_BY_LLM}
    with _script("offline.py", arguments, options.engine_python, log) as load:
        yield load


@contextmanager
def async_llm(model_dir: Path, options: EngineOptions, log: Path) -> Iterator[Load]:
    """``AsyncLLM``; a load has ``in_flight`` and ``streaming`` as well. Raises RuntimeError where it cannot be loaded."""
    with _script("bare_async_llm.py", engine_arguments(model_dir, options), options.engine_python, log) as load:
        yield load


@contextmanager
def _script(name: str, arguments: Mapping[str, object], python: str, log: Path) -> Iterator[Load]:
    """A script that gets each load as one line. What vLLM logs is in ``log``."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [python, str(_FOLDER / name), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=environment(os.environ),
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        sending, answers = process.stdin, process.stdout
        if answers.readline() != "ready\n":
            raise RuntimeError(f"{name} ended before vLLM was loaded: see {log}")

        def run(requests: list[Request], how: Mapping[str, object]) -> Generated:
            load = {"requests": [[request.input_ids, request.output_tokens] for request in requests], **how}
            sending.write(json.dumps(load) + "\n")
            sending.flush()
            if not (answer := answers.readline()):
                raise RuntimeError(f"{name} ended during a load: see {log}")
            return Generated(**json.loads(answer))

        yield run
        sending.close()
