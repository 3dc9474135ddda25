"""Records and runs to report on. Times are in ms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_cli.experiments.plan import plan_runs
from bench_records.client_sample import ClientSample
from bench_records.client_table import write_client_table
from bench_records.experiment import ExperimentFolder, PlannedArm
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from bench_records.search import PlannedProbe, PlannedTier, Search, SearchFolder
from bench_records.server_table import MetricSample, write_server_table
from bench_records.table import read_table, write_table
from bench_records.whole_file import write_json
from reports.metrics.requests import Requests, from_columns
from reports.run_report import RunReport, read_run
from tests.reports.manifests import asked_load, run_manifest


def _ns(ms: float) -> int:
    return round(ms * 1_000_000)


def _answered(
    index: int, scheduled: float, sent: float, tokens: Sequence[tuple[float, int]], done: float | None = None, **fields: Any
) -> Record:
    """A success: ``tokens`` are (time of the response, its tokens); it is done 1 ms after the last of them."""
    generated = sum(count for _, count in tokens)
    last = tokens[-1][0] if tokens else sent
    known: dict[str, Any] = {
        "outcome": Outcome.DONE,
        "sent_ns": _ns(sent),
        "requested_output_tokens": generated,
        "output_tokens": generated,
        "token_times_ns": tuple(_ns(at) for at, _ in tokens),
        "token_counts": tuple(count for _, count in tokens),
        "done_ns": _ns(last + 1 if done is None else done),
    }
    return Record(index=index, scheduled_ns=_ns(scheduled), **(known | fields))


def _failed(
    index: int, scheduled: float, outcome: Outcome, sent: float | None = None, done: float | None = None, **fields: Any
) -> Record:
    return Record(
        index=index,
        outcome=outcome,
        scheduled_ns=_ns(scheduled),
        requested_output_tokens=fields.pop("requested_output_tokens", 3),
        sent_ns=None if sent is None else _ns(sent),
        done_ns=None if done is None else _ns(done),
        error=fields.pop("error", f"{outcome.value}: no answer"),
        **fields,
    )


@pytest.fixture(scope="session")
def answered() -> Callable[..., Record]:
    return _answered


@pytest.fixture(scope="session")
def failed() -> Callable[..., Record]:
    return _failed


@pytest.fixture(scope="session")
def steady_run() -> Callable[..., list[Record]]:
    """``count`` requests, one each 10 ms, sent on time, with 3 tokens after 100, 110 and 120 ms: nothing to complain of."""

    def make(count: int = 700, **fields: Any) -> list[Record]:
        return [
            _answered(k, 10 * k, 10 * k, [(10 * k + 100, 1), (10 * k + 110, 1), (10 * k + 120, 1)], input_tokens=8, **fields)
            for k in range(count)
        ]

    return make


@pytest.fixture(scope="session")
def queued_run() -> Callable[..., list[Record]]:
    """``count`` requests of a Poisson process that wait for one server, which spends ``service_ms`` on each, give or take."""

    def make(rate: float, seed: int, service_ms: float = 20.0, count: int = 700) -> list[Record]:
        rng = np.random.default_rng(seed)
        arrivals = np.cumsum(rng.exponential(1000.0 / rate, count))
        free, records = 0.0, []
        for k, (at, spent) in enumerate(zip(arrivals, service_ms * rng.lognormal(0.0, 0.2, count), strict=True)):
            free = max(at, free) + spent
            records.append(_answered(k, at, at, [(free, 1), (free + 5, 1), (free + 10, 1)], input_tokens=8))
        return records

    return make


@pytest.fixture(scope="session")
def make_sweep(make_run: Callable[..., RunFolder], queued_run: Callable[..., list[Record]]) -> Callable[..., ExperimentFolder]:
    """A sweep over request rates, and service times as "policy", with the runs that it planned."""

    def make(path: Path, rates: Sequence[int], policies: dict[str, float], repeats: int = 1) -> ExperimentFolder:
        arms = [
            PlannedArm(f"request_rate={rate} policy={policy}", ("--request_rate", str(rate), "--policy", policy))
            for rate, policy in itertools.product(rates, policies)
        ]
        plan = plan_runs("sweep", ["dataset", "--num_requests", "700"], arms, repeats, 0)
        path.mkdir(parents=True, exist_ok=True)
        folder = ExperimentFolder(path)
        folder.write(plan)
        for run in plan.runs:
            rate, policy = plan.arms[run.arm].options[1::2]
            made = make_run(queued_run(float(rate), run.block, policies[policy]))
            made.path.rename(folder.run_folder(run).path)
        return folder

    return make


@pytest.fixture(scope="session")
def make_search(make_run: Callable[..., RunFolder], queued_run: Callable[..., list[Record]]) -> Callable[..., SearchFolder]:
    """A recorded search for the rate that holds ``limit``, with a probe at each of ``rates``."""

    def make(path: Path, rates: Sequence[float], limit: str = "p99_ttft<=300ms", **fields: Any) -> SearchFolder:
        path.mkdir(parents=True, exist_ok=True)
        folder = SearchFolder(path)
        probes = tuple(PlannedProbe(rate, 700, number, f"{number:03d}-probe") for number, rate in enumerate(rates, start=1))
        for probe in probes:
            made = make_run(queued_run(probe.load, probe.seed), load=asked_load(probe.load))
            made.path.rename(folder.run_folder(probe).path)
        known: dict[str, Any] = {
            "arguments": ("dataset",), "tiers": (PlannedTier(None, (limit,)),), "unit": "requests/s", "confidence": 0.95,
            "ratio": 1.2, "budget_s": 60.0, "most_load": None, "seed": 0, "probes": probes, "ended": "the budget is spent",
        }  # fmt: skip
        folder.write(Search(**(known | fields)))
        return folder

    return make


@pytest.fixture(scope="session")
def make_nights(make_run: Callable[..., RunFolder], queued_run: Callable[..., list[Record]]) -> Callable[..., list[Path]]:
    """Runs in a folder, one a night, with the service times in ms; beside each, changes to its manifest."""

    def make(path: Path, nights: Sequence[tuple[str, float, dict[str, Any]]]) -> list[Path]:
        path.mkdir(parents=True, exist_ok=True)
        for number, (name, service_ms, manifest) in enumerate(nights):
            started = {"started_at": f"2026-11-{number + 1:02d}T02:00:00+00:00"}
            made = make_run(queued_run(20.0, number, service_ms), **(started | manifest))
            made.path.rename(path / name)
        return [path / name for name, *_ in nights]

    return make


@pytest.fixture(scope="session")
def make_requests(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Record]], Requests]:
    """Columns of the records, by way of a real parquet file."""
    path = tmp_path_factory.mktemp("table") / "requests.parquet"

    def make(records: Sequence[Record]) -> Requests:
        write_table(records, path)
        return from_columns(read_table(path).select)

    return make


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunFolder]:
    """A recorded run with what was watched, without a report; other keywords replace keys of the manifest."""
    numbers = itertools.count()
    parent: Path = tmp_path_factory.mktemp("runs")

    def make(
        records: Sequence[Record],
        *,
        streaming: bool = True,
        client: Sequence[ClientSample] = (),
        server: Sequence[MetricSample] = (),
        **manifest: Any,
    ) -> RunFolder:
        folder = RunFolder(parent / str(next(numbers)))
        folder.path.mkdir()
        write_json(run_manifest(streaming=streaming, **manifest), folder.manifest)
        write_table(records, folder.requests)
        if client:
            write_client_table(client, folder.client)
        if server:
            write_server_table(server, folder.server)
        return folder

    return make


@pytest.fixture(scope="session")
def make_report(make_run: Callable[..., RunFolder]) -> Callable[..., RunReport]:
    """A run's report, by way of a real run folder as ``make_run`` writes it."""
    return lambda records, **run: read_run(make_run(records, **run))
