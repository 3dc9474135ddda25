"""Whether two sides got answers of other lengths: those that end sooner are done sooner, however fast the server is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import mean_over_groups, student_to_normal

_LEAST_APART = 0.01  # of a side's length
_FARTHEST = 3.0  # standard errors, beyond which chance does not explain a difference
_CERTAINTY = 0.9973  # with which it lies within them


@dataclass(frozen=True, eq=False)
class Answers:
    """The successful answers of a run whose number of tokens is known: the ``index`` of their requests, their ``tokens``,
    the ``requested`` ones, and the numbers of their conversations, -1 without one; shape [answers] each.
    """

    index: NDArray[np.int64]
    tokens: FloatArray
    requested: FloatArray
    conversation_of: NDArray[np.int64]
    counted_from_text: bool

    @property
    def share(self) -> float:
        """Tokens of all answers over all requested ones."""
        return float(self.tokens.sum() / self.requested.sum())

    @property
    def error(self) -> float:
        """The standard error of ``share``."""
        return self.error_of(self.tokens - self.share * self.requested)

    def error_of(self, deviations: FloatArray) -> float:
        """The standard error of the sum of ``deviations``, shape [answers], over all requested tokens: answers of one
        conversation may be alike. It is wider where there are few of these, as Student's t is.
        """
        mean = mean_over_groups(deviations, self.conversation_of)
        if mean is None:
            return math.inf
        few = student_to_normal(_CERTAINTY, mean.independent - 1.0)
        return few * mean.standard_error * mean.n / float(self.requested.sum())

    def chosen(self, places: NDArray[np.int64]) -> Answers:
        """The answers at ``places``."""
        return Answers(
            self.index[places],
            self.tokens[places],
            self.requested[places],
            self.conversation_of[places],
            self.counted_from_text,
        )

    def __str__(self) -> str:
        if not self.tokens.size:
            return "no answer of known length"
        return f"{self.tokens.mean():,.1f} tokens an answer, {self.share:.0%} of those requested"


def answers_of(requests: Requests) -> Answers:
    known = requests.done & ~np.isnan(requests.output_tokens) & (requests.requested_output_tokens > 0)
    return Answers(
        requests.index[known],
        requests.output_tokens[known],
        requests.requested_output_tokens[known],
        requests.session_of[known],
        bool(requests.counted_from_text[known].any()),
    )


def lengths_differ(a: Sequence[Answers], b: Sequence[Answers], *, paired: bool) -> bool:
    """Whether the sides have answers of other lengths, for the lengths that were requested, by more than chance explains.
    ``paired``: the i-th runs of both sent the same requests, and those that both answered are compared one by one.

    Where one side alone has tokens that are counted from text, the counts may differ and the answers not.
    """
    if paired:
        a, b = zip(*map(_to_the_same_requests, a, b), strict=True)
    if any(run.tokens.size == 0 for run in (*a, *b)) or len({run.counted_from_text for run in (*a, *b)}) > 1:
        return False
    mean_a, mean_b = (sum(run.share for run in side) / len(side) for side in (a, b))
    error = _paired_error(a, b) if paired else _error(a, b)
    return abs(mean_b - mean_a) > max(_LEAST_APART * mean_a, _FARTHEST * error)


def known_on_one_side(a: Sequence[Answers], b: Sequence[Answers]) -> bool:
    """Whether every run of one side has answers of known length, and no run of the other has any."""
    known = [{bool(run.tokens.size) for run in side} for side in (a, b)]
    return known in ([{True}, {False}], [{False}, {True}])


def equally_long(a: Sequence[Answers], b: Sequence[Answers]) -> bool:
    """Whether the sides' answers have as many tokens, to 1 %, whatever was requested."""
    mean_a, mean_b = (sum(float(run.tokens.mean()) for run in side) / len(side) for side in (a, b))
    return abs(mean_b - mean_a) <= _LEAST_APART * mean_a


def _error(a: Sequence[Answers], b: Sequence[Answers]) -> float:
    """The standard error of the difference of shares, each the mean over the runs of a side."""
    return math.hypot(*(run.error / len(side) for side in (a, b) for run in side))


def _paired_error(a: Sequence[Answers], b: Sequence[Answers]) -> float:
    """The standard error of the difference of shares, from the i-th runs' answers to the same requests."""
    return math.hypot(*(of_a.error_of(of_b.tokens - of_a.tokens) for of_a, of_b in zip(a, b, strict=True))) / len(a)


def _to_the_same_requests(a: Answers, b: Answers) -> tuple[Answers, Answers]:
    """The answers to requests that both runs answered, in the same order: a failure of long ones makes no other shorter."""
    _, in_a, in_b = np.intersect1d(a.index, b.index, return_indices=True)
    return a.chosen(in_a), b.chosen(in_b)
