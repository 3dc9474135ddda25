"""Programs that watch a stage beside ``bench``: packets on loopback, nvidia-smi, AIPerf's GPU telemetry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.gpu.energy import NVIDIA_SMI

_STOP_S = 20.0
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_LEAD_S = 300.0  # longer than any stage: the watcher is stopped with it


@contextmanager
def packets(port: int, out: Path) -> Iterator[None]:
    """Write the packets of ``port`` to ``out``; nothing where this user may not."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.wire", str(port), str(out)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.send_signal(signal.SIGTERM)


@contextmanager
def instant_power(out: Path) -> Iterator[None]:
    """Write what nvidia-smi reads ten times a second, of the first visible GPU."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with out.open("wb") as file, subprocess.Popen(["nvidia-smi", "-i", gpu, *NVIDIA_SMI], stdout=file) as process:
        yield
        process.terminate()


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
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
