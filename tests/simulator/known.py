"""Simulated servers of known constants, traffic for them, and their runs as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench_records.record import PROBE, Outcome, Record, TokenSource
from bench_records.table import write_table
from simulator.answers import Answers, Deployment
from simulator.clients import Clients, clients_of
from simulator.observed import EngineTimes, Observed
from simulator.server import Admission, FrontEnd, Server, StepLaw
from simulator.simulation import simulate_deployment
from simulator.traffic import Traffic

NS = 1e9
LAW = StepLaw(step=6e-3, prefill=20e-6, sequence=40e-6)
SERVER = Server(
    LAW,
    Admission(max_sequences=None),
    FrontEnd(delay=2e-3, intake=1e-3, intake_rounds=1, token=5e-6, response=30e-6),
    noise=tuple((np.random.default_rng(7).standard_normal(2_000) * 0.1e-3).tolist()),
)


ONE_AT_A_TIME = Server(StepLaw(step=1e-3), Admission(max_sequences=1))


def requests(arrivals: list[float], prompts: list[int], outputs: list[int]) -> Traffic:
    """An open loop of these times and lengths."""
    return Traffic(np.array(arrivals), np.array(prompts), np.array(prompts), np.array(outputs))


def sent(traffic: Traffic, deployment: Deployment, clients: Clients | None = None) -> Answers:
    """The answers to the traffic's own clients, or others."""
    return simulate_deployment(deployment, traffic, clients or clients_of(traffic), 3)


def poisson(
    rate: float, requests: int, seed: int, prompt: float = 200, output: float = 24, users: int | None = None
) -> Traffic:
    """Requests at exponential gaps with geometric lengths, of these means; in a closed loop where there are ``users``."""
    random = np.random.default_rng(seed)
    prompts = 8 + random.geometric(1 / prompt, requests)
    return Traffic(
        np.cumsum(random.exponential(1 / rate, requests)), prompts, prompts, random.geometric(1 / output, requests), users
    )


def _server_times(times: EngineTimes | None, request: int) -> dict[str, Any]:
    if times is None:
        return {}
    arrival, first, last = (int(each[request]) for each in (times.arrival_ns, times.first_ns, times.last_ns))
    return {
        "server_arrival_ns": arrival,
        "server_queue_ns": 0,
        "server_prefill_ns": first - arrival,
        "server_decode_ns": last - first,
    }


def write_run(observed: Observed, path: Path) -> Path:
    """Write what a client saw as ``requests.parquet``."""
    records = []
    for request in range(len(observed)):
        own = slice(observed.starts[request], observed.starts[request + 1])
        times = tuple(int(at * NS) for at in observed.times_s[own])
        records.append(
            Record(
                index=request,
                outcome=Outcome.DONE,
                scheduled_ns=int(observed.scheduled_s[request] * NS),
                requested_output_tokens=int(observed.output_tokens[request]),
                sent_ns=int(observed.sent_s[request] * NS),
                done_ns=times[-1],
                token_times_ns=times,
                token_counts=tuple(observed.counts[own].tolist()),
                input_tokens=int(observed.input_tokens[request]),
                output_tokens=int(observed.output_tokens[request]),
                output_tokens_source=TokenSource.SERVER,
                traffic_class=None if observed.is_load[request] else PROBE,
                **_server_times(observed.by_engine, request),
            )
        )
    write_table(records, path)
    return path
