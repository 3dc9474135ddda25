"""How fast a deployment is simulated: one million requests of 128 output tokens to 10,000 replicas, in turn, on one core.

Each replica has the constants of a vLLM on an H100 (docs/how-to/simulate-a-deployment.md), noise, and a front end; it gets 12
requests a second. A hundredth of the traffic, to a hundredth of the replicas, is simulated by Python, too, and must give the
same bits. The compiler's time is shown apart: it is spent once for each installation. Requirement: 10 s.

Run: taskset -c 0 python -m benchmarks.simulator_speed [--requests 1000000] [--replicas 10000]
It needs the extra [simulate].
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simulator.answers import Answers, Deployment
from simulator.clients import OpenLoop
from simulator.routers import Router
from simulator.server import Admission, FrontEnd, Server, StepLaw
from simulator.simulation import simulate_deployment, simulate_in_python
from simulator.traffic import Traffic

_NOISE = np.random.default_rng(1).standard_normal(20_000) * 0.1e-3
_SERVER = Server(
    StepLaw(step=6.1e-3, prefill=20.6e-6, sequence=33e-6, launch=12e-3, launch_large=30e-3, free_prefill=64, large_step=512),
    Admission(lookahead=1),
    FrontEnd(delay=1.1e-3, intake=1.2e-3, intake_rounds=6, token=73e-6, response=72e-6),
    noise=tuple(_NOISE.tolist()),
)
_RATE, _PROMPT, _OUTPUT = 12.0, 128, 128  # requests/s of a replica, tokens
_PART = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--replicas", type=int, default=10_000)
    options = parser.parse_args()
    whole = Deployment(_SERVER, options.replicas, Router.ROUND_ROBIN)
    part = replace(whole, replicas=max(1, options.replicas // _PART))
    few = _traffic(options.requests // _PART, part.replicas)
    compiled, first_s = _timed(lambda: _simulated(part, few))
    _, again_s = _timed(lambda: _simulated(part, few))
    print(f"{len(few):,} requests to {part.replicas:,} replicas: {first_s:.1f} s with the compiler, {again_s:.2f} s without")
    python, python_s = _timed(lambda: simulate_in_python(part, few, OpenLoop(few.arrivals_s.tolist()), 1))
    same = all(
        getattr(compiled, name).tobytes() == getattr(python, name).tobytes() for name in ("first_s", "last_s", "replicas")
    )
    print(f"the same in Python: {python_s:.1f} s, {'the same bits' if same else 'OTHER BITS'}")
    traffic = _traffic(options.requests, options.replicas)
    answers, whole_s = _timed(lambda: _simulated(whole, traffic))
    in_flight = (answers.last_s - answers.sent_s).sum() / (answers.last_s.max() - answers.sent_s.min()) / options.replicas
    print(
        f"{len(traffic):,} requests of {_OUTPUT} tokens to {options.replicas:,} replicas: {whole_s:.1f} s; "
        f"{answers.steps:,} steps, {answers.responses:,} responses, on average {in_flight:.1f} requests in flight at a replica"
    )


def _simulated(deployment: Deployment, traffic: Traffic) -> Answers:
    return simulate_deployment(deployment, traffic, OpenLoop(traffic.arrivals_s.tolist()), 1)


def _traffic(requests: int, replicas: int) -> Traffic:
    random = np.random.default_rng(2)
    arrivals = np.cumsum(random.exponential(1 / (_RATE * replicas), requests))
    prompts, outputs = np.full(requests, _PROMPT), np.full(requests, _OUTPUT)
    return Traffic(arrivals, prompts, prompts, outputs)


def _timed(simulated: Callable[[], Answers]) -> tuple[Answers, float]:
    start = time.perf_counter()
    answers = simulated()
    return answers, time.perf_counter() - start


if __name__ == "__main__":
    main()
