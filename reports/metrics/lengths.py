"""Lengths of prompts and answers in tokens: as requested, and as the server counted them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class Lengths:
    """Means in tokens over the ``requests`` successes whose requested and actual lengths are both known.

    ``template_tokens``, which the server adds to each prompt (a chat template, special tokens), are not in ``mean_actual``.
    ``mean_deviation`` is the mean of |actual − requested|, which deviations in both directions do not cancel.
    """

    requests: int
    mean_requested: float
    mean_actual: float
    mean_deviation: float
    template_tokens: int = 0

    @property
    def deviation_share(self) -> float:
        """The mean deviation as a share of the mean requested length."""
        return self.mean_deviation / self.mean_requested if self.mean_requested else 0.0


def input_lengths(requests: Requests, template_tokens: int | None) -> Lengths | None:
    """Lengths of the prompts; None where none is known.

    Where ``template_tokens`` is unknown (None), a difference that is the same for all prompts is taken for it.
    """
    requested, actual = _known_of_both(requests, requests.requested_input_tokens, requests.input_tokens)
    if not requested.size:
        return None
    if template_tokens is None:
        least, most = float((actual - requested).min()), float((actual - requested).max())
        template_tokens = int(least) if least == most > 0 else 0
    return _lengths(requested, actual - template_tokens, template_tokens)


def output_lengths(requests: Requests) -> Lengths | None:
    """Lengths of the answers; None where none is known."""
    requested, actual = _known_of_both(requests, requests.requested_output_tokens, requests.output_tokens)
    return _lengths(requested, actual, 0) if requested.size else None


def _known_of_both(requests: Requests, requested: FloatArray, actual: FloatArray) -> tuple[FloatArray, FloatArray]:
    chosen = requests.done & ~np.isnan(requested) & ~np.isnan(actual)
    return requested[chosen], actual[chosen]


def _lengths(requested: FloatArray, actual: FloatArray, template_tokens: int) -> Lengths:
    return Lengths(
        requests=requested.size,
        mean_requested=float(requested.mean()),
        mean_actual=float(actual.mean()),
        mean_deviation=float(np.abs(actual - requested).mean()),
        template_tokens=template_tokens,
    )
