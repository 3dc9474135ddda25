"""Predicted beside measured, for runs that were not fitted; and what the model is good for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.answers import Answers, Deployment
from simulator.clients import clients_of
from simulator.deployed import check_tokenizer, difference
from simulator.errors import SimulatorError
from simulator.figures import Key, drawn_server, ranges_of
from simulator.hull import beyond, extents_of, extents_of_dealt, extents_of_deployment, structures_beyond
from simulator.latencies import FIGURES, LATENCIES, THROUGHPUT, measured, simulated
from simulator.model import Model
from simulator.observed import Observed, check_measured
from simulator.plausible import edits
from simulator.server import Server
from simulator.simulation import simulate_deployment

_LEFT_OUT = 0.05  # the share of requests without which a run is no longer the one that was measured
_LATE_S = 0.1  # as by a ceiling on requests in flight
_SEEDS = 5  # simulations whose mean is the prediction
_FEWEST_DRAWS = 5  # that show by themselves how far the speed moves
KEYS: tuple[Key, ...] = (*((metric, figure) for metric in LATENCIES for figure in FIGURES), (THROUGHPUT, "mean"))
GOOD: Mapping[Key, float] = {
    ("ttft", "p50"): 0.15,
    ("ttft", "p99"): 0.30,
    ("tpot", "p50"): 0.08,
    ("e2e", "p50"): 0.08,
    ("e2e", "p99"): 0.15,
    (THROUGHPUT, "mean"): 0.03,
}
"""The relative errors up to which a figure counts as predicted well: a choice of this project."""


@dataclass(frozen=True)
class Prediction:
    """One figure: what was measured, what the model predicts, and its range."""

    key: Key
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative to the measured value."""
        return self.predicted / self.measured - 1

    @property
    def is_covered(self) -> bool:
        """Whether the measured value lies within the range."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Validation:
    """The predictions for one run. ``beyond`` says what it holds more of than the fitted runs; empty inside their hull.
    ``dealt`` says to which replicas its requests were dealt; "" for one.
    """

    name: str
    requests: int
    users: int | None
    beyond: tuple[str, ...]
    predictions: tuple[Prediction, ...]
    dealt: str = ""

    def of(self, key: Key) -> Prediction:
        """The prediction of one figure."""
        return next(prediction for prediction in self.predictions if prediction.key == key)


def validate(model: Model, observed: Observed, draws: int, seed: int, dealing: Deployment | None = None) -> Validation:
    """Predict a run from its arrivals and lengths alone: the mean over _SEEDS simulations. The ranges have these, one with each
    of the first ``draws`` of the model's constants, and the error that the fit had on what was not fitted. Where
    the speed of the server moves between runs, _FEWEST_DRAWS draws or more count alone, since the simulations have one speed.
    The requests are dealt as in ``dealing``, whose server is the model's; to one server without. Probes load it and are in no
    figure, as in a report.

    Raises SimulatorError for a run that was simulated, counts its tokens by another tokenizer, or names another number of
    servers.
    """
    check_measured(observed)
    deployment = Deployment(model.server) if dealing is None else replace(dealing, server=model.server)
    if observed.servers not in (1, deployment.servers):
        raise SimulatorError(
            f"{observed.name} was measured on {observed.servers} servers: give --replicas {observed.servers}, and the router "
            "that deals as its client did, rr for --balance round_robin"
        )
    is_load = observed.is_load
    if not is_load.any():
        raise SimulatorError(f"{observed.name} has no successful request but probes: there is nothing to compare")
    true = measured(observed, observed.scheduled_s).of(is_load).figures()

    def answers_of(server: Server, number: int) -> Answers:
        traffic = observed.traffic(np.maximum.accumulate(observed.scheduled_s))
        return simulate_deployment(replace(deployment, server=server), traffic, clients_of(traffic), seed + number)

    simulations = [answers_of(model.server, number) for number in range(_SEEDS)]
    repeated = [simulated(answers).of(is_load).figures() for answers in simulations]
    others = [
        simulated(answers_of(drawn_server(model, number), _SEEDS + number)).of(is_load).figures()
        for number in range(min(draws, len(model.draws)))
    ]
    predicted = {key: float(np.mean([figures[key] for figures in repeated])) for key in true}
    varied = others if len(others) >= _FEWEST_DRAWS and model.between_runs.spread else [*repeated, *others]
    ranges = ranges_of(predicted, varied, model.held_out, waits=observed.users is not None)
    predictions = tuple(
        Prediction(key, true[key], predicted[key], *ranges[key]) for key in KEYS if np.isfinite(true[key]) and true[key] > 0
    )
    outside = _beyond(model, observed, deployment, simulations[0])
    requests = int(np.count_nonzero(is_load))
    return Validation(observed.name, requests, observed.users, outside, predictions, _dealt(deployment))


def _dealt(deployment: Deployment) -> str:
    router = f" by the router {deployment.router}" if deployment.has_choice else ""
    if deployment.decode is not None:
        return f"to {deployment.replicas} prefill and {deployment.decode.replicas} decode replicas{router}"
    return f"to {deployment.replicas} replicas{router}" if deployment.has_choice else ""


def _beyond(model: Model, observed: Observed, deployment: Deployment, answers: Answers) -> tuple[str, ...]:
    """Which replica got a request is taken from a simulation. Raises SimulatorError where the run counts its tokens by another
    tokenizer.
    """
    found = (*edits(model), *_not_simulated(observed), *structures_beyond(deployment))
    if deployment.decode is not None:
        extents = extents_of_deployment(deployment, observed.traffic(observed.sent_s), answers)
    elif answers.replicas.max() == 0:
        extents = extents_of(observed)
    else:
        extents = extents_of_dealt(observed, answers.replicas)
    found = (*found, *beyond(model.hull, extents))
    if model.deployed is None or observed.deployed is None:
        return found
    check_tokenizer(model.deployed, observed.deployed.tokenizer, observed.name)
    apart = difference(model.deployed, observed.deployed)
    return found if apart is None else (f"another server, {apart}", *found)


def _not_simulated(observed: Observed) -> tuple[str, ...]:
    """What a run holds that its simulation leaves out, a phrase each."""
    found = []
    if observed.left_out > _LEFT_OUT * (len(observed) + observed.left_out):
        what = "requests that failed, were cancelled or have no known lengths, which are not simulated"
        found.append(f"{observed.left_out:,} {what}")
    late = int(np.count_nonzero(observed.sent_s - observed.scheduled_s > _LATE_S))
    if observed.users is None and late > _LEFT_OUT * len(observed):
        found.append(f"{late:,} requests that were sent more than {_LATE_S:g} s late, which are simulated on time")
    if observed.may_be_cached is None:
        found.append("prompts of sessions, of which it is not known what a prefix cache had, which are computed whole")
    elif observed.may_be_cached > _LEFT_OUT:
        found.append(f"prompts of which a prefix cache may have had {observed.may_be_cached:.0%}, which are computed whole")
    return tuple(found)


def median_error(validations: Sequence[Validation], key: Key) -> float | None:
    """The median over runs of the absolute error of a figure; None where no run has it."""
    errors = [abs(each.error) for validation in validations for each in validation.predictions if each.key == key]
    return float(np.median(errors)) if errors else None


def coverage(validations: Sequence[Validation]) -> float:
    """The share of all predictions whose range encloses what was measured."""
    return float(np.mean([each.is_covered for validation in validations for each in validation.predictions]))


def verdict(validations: Sequence[Validation]) -> str:
    """The sentence what the model is good for, by the runs inside its hull; or that there are none."""
    inside = [validation for validation in validations if not validation.beyond]
    if not inside:
        return "None of these runs lies within what was fitted, so nothing is shown of what the model is good for."
    good: list[str] = []
    bad: list[str] = []
    for key, limit in GOOD.items():
        error = median_error(inside, key)
        if error is not None:
            text = f"{words(key)} ({error:.0%}, limit {limit:.0%})"
            (good if error <= limit else bad).append(text)
    runs = f"{len(inside)} run{'s' * (len(inside) > 1)} within what was fitted"
    sentences = [f"By the median error over {runs}, the model is good for {', '.join(good) or 'nothing'}."]
    return " ".join(sentences + ([f"It is not good for {', '.join(bad)}."] if bad else []))


def words(key: Key) -> str:
    """A figure's name: "p99 TTFT"."""
    metric, figure = key
    return metric if metric == THROUGHPUT else f"{figure} {metric.upper()}"
