"""Programs that watch a stage beside ``bench``: packets on loopback, nvidia-smi, AIPerf's GPU telemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.gpu.energy import NVIDIA_SMI
from benchmarks.gpu.processes import until_the_end

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_LEAD_S = 300.0  # longer than any stage: the watcher is stopped with it


@contextmanager
def packets(port: int, out: Path) -> Iterator[None]:
    """Write the packets of ``port`` to ``out``; nothing where this user may not."""
    command = [sys.executable, "-m", "benchmarks.gpu.wire", str(port), str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    with until_the_end(process):
        assert process.stdout is not None
        process.stdout.readline()
        yield


@contextmanager
def instant_power(out: Path) -> Iterator[None]:
    """Write what nvidia-smi reads ten times a second, of the first visible GPU."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with (
        out.open("wb") as file,
        until_the_end(subprocess.Popen(["nvidia-smi", "-i", gpu, *NVIDIA_SMI], stdout=file, start_new_session=True)),
    ):
        yield


@contextmanager
def aiperf(program: str, url: str, model_dir: Path, out: Path) -> Iterator[None]:
    """AIPerf with its GPU telemetry, and a request in 2 s to the OpenAI server at ``url`` as its load."""
    command = [
        program, "profile", "--model", "model", "--url", url, "--endpoint-type", "completions", "--tokenizer", str(model_dir),
        "--isl", "16", "--osl", "2", "--request-rate", "0.5", "--benchmark-duration", str(_LEAD_S), "--gpu-telemetry", "pynvml",
        "--output-artifact-dir", str(out), "--ui-type", "none",
    ]  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if key not in _OFFLINE}  # with these it opens no folder
    with out.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=environment)
        with until_the_end(process):
            yield
