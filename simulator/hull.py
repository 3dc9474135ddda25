"""How far the fitted runs reach, and what of another run lies beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.answers import Answers, Deployment
from simulator.arrays import FloatArray, IntArray
from simulator.model import Extent
from simulator.observed import Observed, in_flight_at_sending
from simulator.stages import traffics_of
from simulator.traffic import Traffic

_TOLERANCE = 1.05
_SHORTEST_S = 1e-9
_WHOLE = 1.0 / (_TOLERANCE - 1.0)  # from which on a whole number is another one beyond the tolerance
_RARE = 0.99  # the share of requests that a run's extent covers


@dataclass(frozen=True, eq=False)
class Seen:
    """Requests of one server, in the order of their sending, shape [requests], and the time in s of their run."""

    sent_s: FloatArray
    last_s: FloatArray
    prefill_tokens: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    seconds: float

    def extents(self) -> dict[str, float]:
        """What they held at most, by what it is called."""
        return {
            "requests in flight": float(np.quantile(in_flight_at_sending(self.sent_s, self.last_s), _RARE)),
            "requests a second": (len(self.sent_s) - 1) / self.seconds,  # of one request no rate is known
            "output tokens a second": float(self.output_tokens.sum()) / self.seconds,
            "prompt tokens of a request": float(np.quantile(self.prefill_tokens, _RARE)),
            "tokens of a request": float(np.quantile(self.input_tokens + self.output_tokens, _RARE)),
        }


def extents_of(observed: Observed) -> dict[str, float]:
    """What a run held at most: by what it is called."""
    seconds = max(float(observed.last_s.max() - observed.sent_s[0]), _SHORTEST_S)
    lengths = (observed.prefill_tokens, observed.input_tokens, observed.output_tokens)
    return Seen(observed.sent_s, observed.last_s, *lengths, seconds).extents()


def extents_of_dealt(observed: Observed, replicas: IntArray) -> dict[str, float]:
    """What any server of a run held at most, by what it is called, where request i went to ``replicas[i]``."""
    seconds = max(float(observed.last_s.max() - observed.sent_s[0]), _SHORTEST_S)
    most: dict[str, float] = {}
    for replica in np.unique(replicas).tolist():
        own = replicas == replica
        lengths = (observed.prefill_tokens[own], observed.input_tokens[own], observed.output_tokens[own])
        most = _larger(most, Seen(observed.sent_s[own], observed.last_s[own], *lengths, seconds).extents())
    return most


def extents_of_deployment(deployment: Deployment, traffic: Traffic, answers: Answers) -> dict[str, float]:
    """What any replica of a simulation held at most, by what it is called."""
    most: dict[str, float] = {}
    for stage, own in zip(traffics_of(deployment, traffic), answers.stages or (answers,), strict=True):
        most = _larger(most, _extents_of_replicas(stage, own))
    return most


def _extents_of_replicas(traffic: Traffic, answers: Answers) -> dict[str, float]:
    was_sent = answers.replicas >= 0
    if not was_sent.any():
        return {}
    ended_s, most = answers.ended_s, dict[str, float]()
    for replica in np.unique(answers.replicas[was_sent]).tolist():
        own = np.flatnonzero(answers.replicas == replica)
        own = own[np.argsort(answers.sent_s[own], kind="stable")]
        lengths = (traffic.prefill_tokens[own], traffic.input_tokens[own], traffic.output_tokens[own])
        time = own if answers.fleet is not None else was_sent  # one that came or went has a time of its own
        seconds = max(float(ended_s[time].max() - answers.sent_s[time].min()), _SHORTEST_S)
        most = _larger(most, Seen(answers.sent_s[own], ended_s[own], *lengths, seconds).extents())
    return most


def _larger(most: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    return {what: max(value, most.get(what, 0.0)) for what, value in found.items()}


def hull_of(runs: Sequence[Observed]) -> tuple[Extent, ...]:
    """The most of everything over ``runs``, which are at least one."""
    each = [extents_of(observed) for observed in runs]
    return tuple(Extent(what, max(extents[what] for extents in each)) for what in each[0])


def structures_beyond(deployment: Deployment) -> tuple[str, ...]:
    """What no fitted run had in its servers, a phrase each: whether the law of a step holds there is not known."""
    return () if deployment.decode is None else ("prefill and decode on replicas of their own, which was not fitted",)


def beyond(hull: Sequence[Extent], extents: Mapping[str, float]) -> tuple[str, ...]:
    """What a run of these ``extents`` holds more of than was fitted, a phrase each; none where it lies inside."""
    return tuple(
        f"{_number(extents[extent.what])} {extent.what}, fitted up to {_number(extent.most)}"
        for extent in hull
        if extent.what in extents and extents[extent.what] > _TOLERANCE * extent.most
    )


def _number(value: float) -> str:
    """To the whole, where that shows what lies beyond, else to three digits: large models take less than a request a second."""
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"
