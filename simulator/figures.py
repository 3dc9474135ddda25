"""The figures of a simulation, and how far they move with the model's error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.special

from simulator.answers import Answers, Deployment
from simulator.arrays import FloatArray
from simulator.clients import Clients, OpenLoop
from simulator.latencies import LATENCIES, THROUGHPUT, Latencies
from simulator.model import BetweenRuns, Model
from simulator.server import Server
from simulator.simulation import simulate_deployment
from simulator.traffic import Traffic

Key = tuple[str, str]  # metric and figure
Ranges = dict[Key, tuple[float, float]]
"""The range of each figure: ms, and 1/s of the throughput."""
RANGE = (5.0, 95.0)  # per cent of what the draws and the errors give
_NORMAL = scipy.special.ndtri((np.arange(200) + 0.5) / 200)  # a standard normal law in equal parts
_ERROR_OF_THROUGHPUT = "e2e"
_GOLDEN = (5**0.5 - 1) / 2


LatencyFactors = Mapping[str, float]
"""By latency, the factor by which the truth may be longer than what is simulated."""


def latency_factors(model: Model, draws: int, seed: int) -> list[LatencyFactors]:
    """Factors of each draw, log-normal: their logarithms have the error that the fit had on what was not fitted, of each
    latency, as their standard deviation. The errors of one draw's latencies are one: TTFT is a part of E2E latency.
    """
    normal = np.random.default_rng([seed, draws]).standard_normal(draws)
    return [{name: float(np.exp(model.held_out.get(name, 0.0) * each)) for name in LATENCIES} for each in normal]


def drawn_server(model: Model, number: int, likely: float = RANGE[1] / 100.0) -> Server:
    """The server with one draw of the model's constants, and the speed of another run, as ``speed_factor``."""
    draw = model.draws[number % len(model.draws)]
    factor = speed_factor(model.between_runs, number, likely)
    return replace(model.server, law=draw.law.slower(factor), front_end=draw.front_end)


def speed_factor(between: BetweenRuns, number: int, likely: float = RANGE[1] / 100.0) -> float:
    """The time that the engine of a further run takes beside the mean of the fitted ones: quantiles of Student's t, since few
    runs show their own spread badly, in an order of which any beginning is spread evenly (the golden section).

    Quantiles above ``likely``, or below 1 less it, count as these: a range that ends there shows no others.
    """
    if not between.spread:
        return 1.0
    quantile = min(max((0.5 + number * _GOLDEN) % 1.0, 1.0 - likely), likely)
    degrees = between.runs - 1 if between.degrees is None else between.degrees
    return float(np.exp(between.spread * scipy.special.stdtrit(degrees, quantile)))


def figures_of(due_s: FloatArray, answers: Answers) -> dict[Key, float]:
    """The figures of the requests that were sent, from ``due_s``, when each was due, shape [requests]; none where none was
    answered.
    """
    own = answers.were_answered
    if not own.any():
        return {}
    answered = Latencies.of_times(due_s[own], answers.first_s[own], answers.last_s[own], answers.output_tokens[own])
    was_sent = ~np.isnan(answers.sent_s)
    span_s = float(answers.last_s[own].max() - due_s[was_sent].min())
    return replace(answered, span_s=span_s, failed=int(np.count_nonzero(was_sent & ~own))).figures()


def predicted_ranges(
    model: Model,
    deployment: Deployment,
    traffic: Traffic,
    clients: Callable[[], Clients],
    figures: Callable[[Answers], dict[Key, float]],
    answers: Answers,
    draws: int,
    seed: int,
) -> Ranges:
    """The ranges of the figures of ``answers``, by simulations with ``draws`` draws of the model's constants, with the same
    requests and ``seed``; ``clients`` makes the clients of each, and ``figures`` gives the figures of what it answered.
    """
    own = figures(answers)
    drawn = []
    for number in range(draws):
        other = replace(deployment, server=drawn_server(model, number))
        drawn.append(figures(simulate_deployment(other, traffic, clients(), seed)))
    return ranges_of(own, drawn, model.held_out, waits=not isinstance(clients(), OpenLoop))


def ranges_of(
    own: Mapping[Key, float], drawn: Sequence[Mapping[Key, float]], held_out: Mapping[str, float], *, waits: bool
) -> Ranges:
    """5 to 95 % of the figures of ``drawn`` simulations, and at least ``own``, each longer or shorter by a log-normal error of
    the size that the fit had on what was not fitted, ``held_out`` by latency.

    Where clients wait for answers (``waits``), the throughput has the error of E2E latency, else none: arrivals decide it.
    A figure that a simulation has no value of, since it falls among failed requests, has no range.
    """
    found = {}
    for key, value in own.items():
        values = np.array([each.get(key, np.nan) for each in drawn] or [value])
        if not np.isfinite([value, *values]).all():
            continue
        error = held_out.get(_ERROR_OF_THROUGHPUT, 0.0) if key[0] == THROUGHPUT and waits else held_out.get(key[0], 0.0)
        low, high = np.percentile(np.outer(values, np.exp(error * _NORMAL)), RANGE)
        found[key] = (min(float(low), value), max(float(high), value))
    return found
