"""Runs that requirements are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Record
from reports.criteria import parse_slo
from reports.gates.gate import JudgedRun
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.goodput import Objective
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import compute_metrics

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


@pytest.fixture(scope="session")
def judged(make_requests: MakeRequests) -> Callable[..., JudgedRun]:
    """The run of these records, with the numbers that ``objectives`` need."""

    def make(
        records: Sequence[Record], *objectives: str, load: ConfiguredLoad = OPEN_LOOP, streaming: bool = True
    ) -> JudgedRun:
        requests = make_requests(records)
        each = [criterion for criterion in map(parse_slo, objectives) if isinstance(criterion, Objective)]
        return JudgedRun(requests, compute_metrics(requests, streaming=streaming, load=load, objectives=each), load)

    return make


@pytest.fixture(scope="session")
def run_of(judged: Callable[..., JudgedRun], answered: Make) -> Callable[..., JudgedRun]:
    """An open loop of requests, one each 10 ms, whose first tokens took ``ttft_ms``, shape [n]; the second came 10 ms later."""

    def make(ttft_ms: Sequence[float], *objectives: str, load: ConfiguredLoad = OPEN_LOOP) -> JudgedRun:
        records = [answered(k, 10 * k, 10 * k, [(10 * k + took, 1), (10 * k + took + 10, 1)]) for k, took in enumerate(ttft_ms)]
        return judged(records, *objectives, load=load)

    return make


@pytest.fixture(scope="session")
def noise() -> Callable[..., list[float]]:
    """``n`` latencies of 50 ms, give or take, in a random order; ``slow`` of them took ``slow_ms``."""

    def make(n: int, slow: int = 0, slow_ms: float = 1_000.0, seed: int = 1) -> list[float]:
        rng = np.random.default_rng(seed)
        values = 50.0 * rng.lognormal(0.0, 0.2, n)
        values[rng.permutation(n)[:slow]] = slow_ms
        return [float(value) for value in values]

    return make
