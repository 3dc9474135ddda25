"""``bench size`` against brute force: does the number of replicas that it certifies hold, and does one fewer fail?

Three replicas of the embedded pipeline run on this host. Each step of their engines waits for a known time and holds at most
four sequences, so that a replica is busy while the processor is idle, and replicas do not take it from each other. One replica
is measured at two loads, and fitted. Then each workload is sized, and measured with the certified number of replicas and with
one fewer, each at two seeds that the fit has not seen.

Requirement: with the certified number every run holds the limit; with one fewer a run does not, or ``bench size`` said that the
smaller number cannot be excluded.

Run: python -m benchmarks.size_against_runs [--seconds 40] [--folder DIR]
With --folder the runs are kept there, and those that are there already are not measured again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bench_records.run_folder import RunFolder
from benchmarks.injection.delays import Delays
from benchmarks.injection.slow_models import slow_pipeline
from reports.metrics.catalogue import TTFT
from reports.run_report import read_run

_MOST, _SEQUENCES, _STEP_S = 3, 4, 0.016
_LENGTHS = ("--isl", "normal:mean=32,stdev=8,min=8,max=64", "--osl", "normal:mean=16,stdev=4,min=4,max=32")
_FITTED_RATES = (7.0, 14.0)  # of one replica, which takes about 13 requests/s: the second shows the limit of its batch
_LIMIT_MS, _SLO = 400.0, "p95_ttft<=400ms"
_SEEDS = (101, 102)
_ANSWER = re.compile(r"(\d+) replicas?, 95 %")
_OPEN = re.compile(r"(\d[\d, andto]*) cannot be excluded")
_MEASURED = (0, 3)  # a run on a busy machine is one all the same, and its reasons are printed


@dataclass(frozen=True)
class Workload:
    """Traffic of a measuring verb, without its number of requests and seed."""

    name: str
    rate: float
    options: Sequence[str] = _LENGTHS


_WORKLOADS = (
    Workload("8/s", 8.0),
    Workload("16/s in bursts", 16.0, (*_LENGTHS, "--arrival", "gamma:cv=2")),
    Workload("26/s", 26.0),
)


@dataclass(frozen=True)
class Sized:
    """The number that ``bench size`` certifies, None where it certifies none, and those that it could not exclude."""

    replicas: int | None
    lowest: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each run")
    parser.add_argument("--folder", type=Path, help="where the runs are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with _replicas(Path(temporary) / "servers") as urls:
            model = _fitted(folder, urls[:1], options.seconds)
            rows = [_judged(each, folder, urls, model, options.seconds) for each in _WORKLOADS]
    headers = ("workload", "bench size", "replicas: p95 TTFT, ms", "as required")
    print(tabulate(rows, headers=headers, disable_numparse=True))
    sys.exit(0 if all(row[-1] == "yes" for row in rows) else 1)


@contextmanager
def _replicas(folder: Path) -> Iterator[list[str]]:
    """The addresses of all replicas."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(slow_pipeline(Delays(step_always_s=_STEP_S), folder / str(number), _SEQUENCES))
            for number in range(_MOST)
        ]
        yield [server.addresses.grpc for server in servers]


def _fitted(folder: Path, urls: Sequence[str], seconds: float) -> Path:
    model = folder / "model.json"
    runs = [
        _measured(Workload(f"fit-{rate:g}", rate), folder, urls, (seconds, number)) for number, rate in enumerate(_FITTED_RATES)
    ]
    if not model.exists():
        print(_bench(["simulate", "fit", *map(str, runs), "-o", str(model)]), flush=True)
    return model


def _judged(workload: Workload, folder: Path, urls: Sequence[str], model: Path, seconds: float) -> tuple[str, ...]:
    """The row of a workload: what was said, what was measured, and whether both agree."""
    sized, said = _sized(workload, model, seconds)
    if sized.replicas is None:
        return workload.name, said, "", "nothing is certified"
    numbers = [number for number in (sized.replicas - 1, sized.replicas) if number >= 1]
    found = {number: [_p95_ms(workload, folder, urls[:number], (seconds, seed)) for seed in _SEEDS] for number in numbers}
    measured = "; ".join(f"{number}: {', '.join(f'{value:,.0f}' for value in values)}" for number, values in found.items())
    holds = max(found[sized.replicas]) <= _LIMIT_MS
    fewer = found.get(sized.replicas - 1)
    excluded = fewer is None or max(fewer) > _LIMIT_MS or sized.lowest < sized.replicas
    return workload.name, said, measured, "yes" if holds and excluded else "no"


def _sized(workload: Workload, model: Path, seconds: float) -> tuple[Sized, str]:
    size = ["size", "--model", str(model), "--slo", _SLO, "--router", "rr", "--max_replicas", str(_MOST)]
    text = _bench([*size, *_traffic(workload, seconds, 0)], allowed=(0, 1))
    print(text, flush=True)
    said = " ".join(text.split())
    certified, not_excluded = _ANSWER.search(said), _OPEN.search(said)
    replicas = None if certified is None else int(certified[1])
    lowest = replicas or _MOST
    if replicas is not None and not_excluded is not None:
        lowest = min(int(number) for number in re.findall(r"\d+", not_excluded[1]))
    return Sized(replicas, lowest), f"{replicas or 'none'}{'' if lowest == replicas else f', {lowest} is open'}"


def _p95_ms(workload: Workload, folder: Path, urls: Sequence[str], size: tuple[float, int]) -> float:
    report = read_run(RunFolder(_measured(workload, folder, urls, size)))
    values = TTFT.values(report.requests).values_ms
    return float(sorted(values)[-(-95 * len(values) // 100) - 1])


def _measured(workload: Workload, folder: Path, urls: Sequence[str], size: tuple[float, int]) -> Path:
    """The folder of a run over all ``urls``, of this length in s and this seed."""
    seconds, seed = size
    path = folder / f"{workload.name.replace('/', '-').replace(' ', '-')}-{len(urls)}-{seed}"
    if not (path / "summary.json").exists():
        servers = [word for url in urls for word in ("--url", url)]
        _bench([*_traffic(workload, seconds, seed), *servers, "--run_dir", str(path)], allowed=_MEASURED)
        print(f"measured {path.name}", flush=True)
    return path


def _traffic(workload: Workload, seconds: float, seed: int) -> list[str]:
    requests = round(workload.rate * seconds)
    load = ["--request_rate", f"{workload.rate:g}", "--num_requests", str(requests), "--seed", str(seed)]
    return ["token_norm_dist", *workload.options, *load]


def _bench(arguments: Sequence[str], allowed: Sequence[int] = (0,)) -> str:
    done = subprocess.run([sys.executable, "-m", "bench_cli", *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        raise SystemExit(done.stderr)
    if done.returncode == 3:
        print(done.stdout.splitlines()[0], flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
