"""Lengths of prompts and answers in tokens: as requested, and as the server counted them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

_TEMPLATE_SHARE = 0.9
_SHARED_WITHIN_TOKENS = 1  # of the middle: what nearly all prompts have more, and no law of lengths
TEMPLATE_EDGE_TOKENS = 2
"""By how many tokens a prompt may merge with the chat template around it: one at each end."""


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
    """Lengths of the prompts that the server counted; None where there are none.

    Where ``template_tokens`` is unknown (None), the difference that nearly all prompts share, except tokens at its edge, is
    used instead.
    """
    counted = np.where(requests.server_counted_input, requests.input_tokens, np.nan)
    requested, actual = _known_of_both(requests, requests.requested_input_tokens, counted)
    if not requested.size:
        return None
    if template_tokens is None:
        template_tokens = _shared_difference(actual - requested)
    return _lengths(requested, actual - template_tokens, template_tokens)


def _shared_difference(differences: FloatArray) -> int:
    """The positive difference, in the middle of all, that at least _TEMPLATE_SHARE of the prompts have; 0 without one."""
    middle = int(np.quantile(differences, 0.5, method="inverted_cdf"))
    is_shared = np.mean(np.abs(differences - middle) <= _SHARED_WITHIN_TOKENS) >= _TEMPLATE_SHARE
    return max(0, middle) if is_shared else 0


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
