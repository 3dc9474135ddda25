"""How well the simulator predicts the embedded engine: fitted to two runs, judged on others that it has not seen.

One server is deployed; a closed loop shows its capacity. Two runs, at 0.5 and 0.8 of it, are fitted. Others are predicted from
their arrivals and lengths alone: rates from 0.3 to 0.9, bursts, lengths moved within the fitted range, other seeds, and a
second start of the server. The fitted runs are measured a second time, so that each error is shown beside what two equal runs
differ by. Requirement, in the median over the runs within what was fitted: TTFT p50 within 10 %, p99 20 %, E2E p50 5 %,
throughput 3 %; the ranges of the draws hold 80 to 97 % of the figures. Runs beyond (1.1 of capacity, doubled lengths) are shown
apart. A machine with other work on it shows that work, and no fault of the simulator: repeat it on an idle one.

With ``--step_log`` the server logs its steps, and a second model is fitted to these: its errors and ranges are shown, too.
With ``--min_step_time 16ms,prompt_token=50us,sequence=200us --max_num_sequences 32`` the steps do not follow the machine's
speed, which changes within such a sitting.

Run: python -m benchmarks.simulator_embedded [--seconds 60] [--quick] [--step_log] [--min_step_time TIME]
[--max_num_sequences N] [--folder DIR]
With --folder the runs are kept there, and those that are there already are not measured again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tabulate import tabulate

from bench_cli.measurement.pipeline import environment_of, open_pipeline
from bench_cli.simulate.validated import validation_text
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.repository.pipeline import RepositorySpec
from simulator.figures import Key
from simulator.fit import fit
from simulator.latencies import LATENCIES, THROUGHPUT, measured
from simulator.logged import logged_steps
from simulator.model import Model, Parameter, write_model
from simulator.observed import read_observed
from simulator.validation import GOOD, Validation, coverage, median_error, validate, words

_LENGTHS = ("--isl", "normal:mean=64,stdev=24,min=8,max=160", "--osl", "normal:mean=24,stdev=8,min=4,max=56")
_SHORTER = ("--isl", "normal:mean=48,stdev=16,min=8,max=120", "--osl", "normal:mean=18,stdev=6,min=4,max=40")
_DOUBLED = ("--isl", "normal:mean=128,stdev=48,min=16,max=320", "--osl", "normal:mean=48,stdev=16,min=8,max=112")
_BURSTS = ("--arrival", "gamma:cv=2")
_REQUIRED: Mapping[Key, float] = {
    ("ttft", "p50"): 0.10,
    ("ttft", "p99"): 0.20,
    ("e2e", "p50"): 0.05,
    (THROUGHPUT, "mean"): 0.03,
}
_USERS, _CAPACITY_S = 48, 10
_DRAWS = 20


@dataclass(frozen=True)
class Planned:
    """A run at a share of capacity. ``start`` is the number of the server's start."""

    name: str
    share: float
    seed: int
    options: Sequence[str] = _LENGTHS
    start: int = 0


_FITTED = (Planned("half", 0.5, 1), Planned("high", 0.8, 2))
_AGAIN = (Planned("half-again", 0.5, 1), Planned("high-again", 0.8, 2))
_QUICK = (
    Planned("at-0.3", 0.3, 3),
    Planned("at-0.65", 0.65, 4),
    Planned("at-0.8", 0.8, 5),
    Planned("bursts-0.5", 0.5, 6, (*_LENGTHS, *_BURSTS)),
    Planned("shorter-0.6", 0.6, 7, _SHORTER),
    Planned("second-start-0.5", 0.5, 8, start=1),
    Planned("beyond-1.1", 1.1, 9),
    Planned("beyond-doubled", 0.3, 10, _DOUBLED),
)
_WHOLE = (
    *_QUICK,
    *(Planned(f"at-{share:g}-seed-{seed}", share, seed) for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.9) for seed in (11, 12)),
    # Equal seeds send equal prompts, which a server may still have in its prefix cache from the run before.
    *(Planned(f"at-{share:g}-seed-{seed}", share, seed) for share, seed in ((0.35, 17), (0.45, 18), (0.55, 19), (0.65, 20))),
    Planned("bursts-0.6", 0.6, 13, (*_LENGTHS, *_BURSTS)),
    Planned("shorter-0.4", 0.4, 14, _SHORTER),
    Planned("second-start-0.7", 0.7, 15, start=1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--quick", action="store_true", help=f"{len(_QUICK)} runs instead of {len(_WHOLE)}")
    parser.add_argument("--step_log", action="store_true", help="fit a model to the log of the engine, too")
    parser.add_argument("--min_step_time", default=EngineOptions().min_step_time, help="as of bench serve")
    parser.add_argument("--max_num_sequences", type=int, default=EngineOptions().max_num_sequences)
    parser.add_argument("--folder", type=Path, help="where the runs are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        judged = _QUICK if options.quick else _WHOLE
        log = folder / "steps.csv" if options.step_log else None
        engine = EngineOptions(
            step_log="" if log is None else str(log.absolute()),
            min_step_time=options.min_step_time,
            max_num_sequences=options.max_num_sequences,
        )
        _measure_all(folder, (*_FITTED, *judged, *_AGAIN), options.seconds, engine)
        runs = [read_observed(folder / each.name) for each in _FITTED]
        model = fit(runs, 0, print)
        write_model(model, folder / "model.json")
        _report(model, folder, judged)
        if log is not None:
            by_log = fit(runs, 0, print, logged_steps(runs, [log]))
            write_model(by_log, folder / "model-by-log.json")
            _report(by_log, folder, judged)
            print(_ranges_text(model, by_log))


def _measure_all(folder: Path, planned: Sequence[Planned], seconds: float, engine: EngineOptions) -> None:
    missing = [each for each in planned if not (folder / each.name / "summary.json").exists()]
    for start in sorted({each.start for each in missing}):
        with _served(folder, engine) as environment:
            capacity = _capacity(folder, environment)
            print(f"Start {start}: the capacity is {capacity:.0f} requests/s", flush=True)
            for each in (each for each in missing if each.start == start):
                rate = each.share * capacity
                load = ["--request_rate", f"{rate:.3f}", "--num_requests", str(round(rate * seconds)), "--seed", str(each.seed)]
                times = ["--server_timings"] if engine.step_log else []
                _bench([*each.options, *load, *times, "--run_dir", str(folder / each.name)], environment)
                print(f"measured {each.name}", flush=True)


@contextmanager
def _served(folder: Path, engine: EngineOptions) -> Iterator[dict[str, str]]:
    """The environment of runs that share one embedded server."""
    repository = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine="openvino", engine_options=engine)
    with open_pipeline(repository, folder / "server.log") as addresses:
        yield {**os.environ, **environment_of(addresses)}


def _capacity(folder: Path, environment: Mapping[str, str]) -> float:
    """The requests a second of a closed loop; kept, since shares of it are the names of runs."""
    kept = folder / "capacity.txt"
    if kept.exists():
        return float(kept.read_text())
    _bench(
        [*_LENGTHS, "--concurrency", str(_USERS), "--duration", str(_CAPACITY_S), "--run_dir", str(folder / "closed-loop")],
        environment,
    )
    observed = read_observed(folder / "closed-loop")
    found = measured(observed, observed.scheduled_s).figures()[THROUGHPUT, "mean"]
    kept.write_text(str(found))
    return found


def _bench(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Measure; a run that is not valid is one all the same, and its reasons are printed."""
    command = [sys.executable, "-m", "bench_cli", "token_norm_dist", *arguments]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    if done.returncode:
        print(done.stdout.splitlines()[0], flush=True)


def _report(model: Model, folder: Path, judged: Sequence[Planned]) -> None:
    validations = [validate(model, read_observed(folder / each.name), _DRAWS, 0) for each in judged]
    print(validation_text(model, validations))
    inside = [each for each in validations if not each.beyond]
    apart = [_difference(folder / first.name, folder / again.name) for first, again in zip(_FITTED, _AGAIN, strict=True)]
    rows = [
        (words(key), _percent(median_error(inside, key)), f"{limit:.0%}", f"{np.median([each[key] for each in apart]):.1%}")
        for key, limit in _REQUIRED.items()
    ]
    print(tabulate(rows, headers=("median error", "inside the hull", "required", "two equal runs"), disable_numparse=True))
    print(f"Figures: {', '.join(_figures(validation) for validation in validations)}")
    if inside:
        count = sum(len(each.predictions) for each in inside)
        print(f"The draws' ranges hold {coverage(inside):.0%} of {count} figures (required: 80 to 97 %).")


def _difference(first: Path, again: Path) -> dict[Key, float]:
    before, after = (measured(run, run.scheduled_s).figures() for run in (read_observed(first), read_observed(again)))
    return {key: abs(after[key] / before[key] - 1) for key in before}


def _figures(validation: Validation) -> str:
    named = {each.key: each.error for each in validation.predictions if each.key in GOOD and each.key[0] in LATENCIES}
    return f"{validation.name} " + "/".join(f"{error:+.0%}" for error in named.values())


def _ranges_text(model: Model, by_log: Model) -> str:
    """The constants by the arrivals of tokens beside those by the log."""
    logged = {parameter.name: parameter for parameter in by_log.parameters}
    rows = [
        (
            each.name,
            *_microseconds(each),
            *_microseconds(other),
            f"{(other.high - other.low) / max(each.high - each.low, 1e-12):.2f}",
        )
        for each in model.parameters
        if (other := logged.get(each.name)) is not None
    ]
    headers = ("constant, µs", "by tokens", "range", "by the log", "range", "width beside that by tokens")
    return tabulate(rows, headers=headers, disable_numparse=True)


def _microseconds(parameter: Parameter) -> tuple[str, str]:
    return f"{parameter.value * 1e6:.1f}", f"{parameter.low * 1e6:.1f} – {parameter.high * 1e6:.1f}"


def _percent(error: float | None) -> str:
    return "–" if error is None else f"{error:.1%}"


if __name__ == "__main__":
    main()
