"""The figures of a simulation, and how far they move with the model's error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from simulator.clients import Clients
from simulator.latencies import LATENCIES, Latencies
from simulator.model import Model
from simulator.server import Server
from simulator.simulation import Answers, Deployment, simulate_deployment
from simulator.traffic import Traffic

Key = tuple[str, str]  # metric and figure
Ranges = dict[Key, tuple[float, float]]
"""The least and the most of each figure: ms, and 1/s of the throughput."""


LatencyFactors = Mapping[str, float]
"""By latency, the factor by which the truth may be longer than what is simulated."""


def latency_factors(model: Model, draws: int, seed: int) -> list[LatencyFactors]:
    """Factors of each draw, log-normal: their logarithms have the error that the fit had on what was not fitted, of each
    latency, as their standard deviation. The errors of one draw's latencies are one: TTFT is a part of E2E latency.
    """
    normal = np.random.default_rng([seed, draws]).standard_normal(draws)
    return [{name: float(np.exp(model.held_out.get(name, 0.0) * each)) for name in LATENCIES} for each in normal]


def drawn_server(model: Model, number: int) -> Server:
    """The server with one draw of the model's constants."""
    draw = model.draws[number]
    return replace(model.server, law=draw.law, front_end=draw.front_end)


def figures_of(traffic: Traffic, answers: Answers) -> dict[Key, float]:
    """The figures of the requests that were sent, from the time of sending."""
    was_sent = answers.replicas >= 0
    sent, first, last = answers.sent_s[was_sent], answers.first_s[was_sent], answers.last_s[was_sent]
    return Latencies.of_times(sent, first, last, traffic.output_tokens[was_sent]).figures()


def predicted_ranges(
    model: Model,
    deployment: Deployment,
    traffic: Traffic,
    clients: Callable[[], Clients],
    answers: Answers,
    draws: int,
    seed: int,
) -> Ranges:
    """The least and the most of each figure over ``answers`` and simulations with ``draws`` draws of the model's constants, all
    with the same requests and ``seed``; ``clients`` makes the clients of each.
    """
    found = [figures_of(traffic, answers)]
    for number in range(draws):
        drawn = replace(deployment, server=drawn_server(model, number))
        found.append(figures_of(traffic, simulate_deployment(drawn, traffic, clients(), seed)))
    keys = [key for key, value in found[0].items() if np.isfinite(value)]
    return {key: (min(each[key] for each in found), max(each[key] for each in found)) for key in keys}
