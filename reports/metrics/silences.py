"""Silences of all streams at once: whether the target stopped for a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

FEWEST_IN_FLIGHT = 3  # requests, from the beginning of the silence to its end: one or two may be held up alone
FLOOR_S = 0.5
RATIO = 3.0  # of a pause to every silence that is none
_FEWEST_SILENCES = 100
_MOST_PAUSES = 5  # more are the way in which this target works
_LONGEST = 10_000  # gaps that are looked at
_MORE_PROMPT = 1.25
_SEND_AGAIN_NS = 0.1e9  # after a last token, in which the next requests of users are sent


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest of ``pauses``: no stream had a token for ``length_s`` from ``at_s`` on, although ``in_flight`` requests
    were, and were answered later. ``usual_s`` is the longest silence that is no pause.
    """

    at_s: float
    length_s: float
    in_flight: int
    usual_s: float
    pauses: int


def find_pause(requests: Requests) -> Pause | None:
    """The pause of a streamed run; None without one, and where there are too few silences to tell.

    A silence is the gap between two responses of any streams. Those of a working target are its steps. A pause is longer than
    all others by a ratio that no series of steps has, and rare. An engine that computes a long prompt in one step is silent for
    that step, too: a silence that ends with the first response to more prompt tokens than any other is no pause.
    """
    silences = _longest_silences(requests)
    if silences is None or silences.lengths_ns.size < _FEWEST_SILENCES:
        return None
    lengths_ns = silences.lengths_ns
    longest_ns, next_ns = lengths_ns[:_MOST_PAUSES], lengths_ns[1 : _MOST_PAUSES + 1]
    apart = np.flatnonzero((longest_ns >= RATIO * next_ns) & (longest_ns >= FLOOR_S * 1e9))
    if not apart.size:
        return None
    count = int(apart[-1]) + 1
    unexplained = ~_explained_by_prompts(requests, silences, count)
    if not unexplained.any():
        return None
    longest = int(np.flatnonzero(unexplained)[0])
    return Pause(
        at_s=float(silences.starts_ns[longest] / 1e9),
        length_s=float(lengths_ns[longest] / 1e9),
        in_flight=int(silences.in_flight[longest]),
        usual_s=float(lengths_ns[count] / 1e9),
        pauses=int(unexplained.sum()),
    )


@dataclass(frozen=True, slots=True)
class _Silences:
    """The longest first, shape [silences] each."""

    starts_ns: FloatArray
    lengths_ns: FloatArray
    in_flight: NDArray[np.int64]


def _longest_silences(requests: Requests) -> _Silences | None:
    """The longest gaps through which enough requests were in flight; None without two responses."""
    times_ns = np.sort(requests.token_times_ns)
    if times_ns.size < 2:
        return None
    gaps_ns = np.diff(times_ns)
    chosen = np.argpartition(-gaps_ns, _LONGEST)[:_LONGEST] if gaps_ns.size > _LONGEST else np.arange(gaps_ns.size)
    chosen = chosen[np.argsort(-gaps_ns[chosen], kind="stable")]
    starts_ns, lengths_ns = times_ns[chosen], gaps_ns[chosen]
    sent = ~np.isnan(requests.sent_ns)
    left_ns = np.where(requests.done & requests.has_tokens, requests.last_token_ns, requests.done_ns)[sent]
    left_ns = np.where(np.isnan(left_ns), np.inf, left_ns)
    begun_ns = starts_ns + np.minimum(lengths_ns, _SEND_AGAIN_NS)
    begun = np.searchsorted(np.sort(requests.sent_ns[sent]), begun_ns, side="right")
    left = np.searchsorted(np.sort(left_ns), starts_ns + lengths_ns, side="left")
    in_flight = (begun - left).astype(np.int64)
    enough = in_flight >= FEWEST_IN_FLIGHT
    return _Silences(starts_ns[enough], lengths_ns[enough], in_flight[enough])


def _explained_by_prompts(requests: Requests, silences: _Silences, count: int) -> NDArray[np.bool_]:
    """Which of the first ``count`` silences may be the step of longer prompts than any other; shape [count].

    The prompts of a silence are those that were sent before it had lasted as long as the others, and whose first response ends
    it, or comes as soon after it as the others last.
    """
    starts_ns, ends_ns = silences.starts_ns, silences.starts_ns + silences.lengths_ns
    usual_ns = float(silences.lengths_ns[count])
    prompt_tokens = np.where(np.isnan(requests.input_tokens), requests.requested_input_tokens, requests.input_tokens)
    if np.isnan(prompt_tokens).any():
        prompt_tokens = np.ones(prompt_tokens.size)
    order = np.argsort(requests.first_token_ns, kind="stable")  # NaN last
    first_ns, sent_ns, tokens = (of[order] for of in (requests.first_token_ns, requests.sent_ns, prompt_tokens))
    sums = np.concatenate([[0.0], np.cumsum(tokens)])
    begin, end = np.searchsorted(first_ns, ends_ns, side="left"), np.searchsorted(first_ns, ends_ns + usual_ns, side="right")
    usual_tokens = (sums[end] - sums[begin])[count:]
    is_after = (starts_ns[count:, None] >= starts_ns[:count]) & (starts_ns[count:, None] <= ends_ns[:count] + usual_ns)
    most = _MORE_PROMPT * usual_tokens[~is_after.any(axis=1)].max(initial=0.0)
    within = (slice(int(begin[k]), int(end[k])) for k in range(count))
    of_pauses = [tokens[part][sent_ns[part] <= starts_ns[k] + usual_ns].sum() for k, part in enumerate(within)]
    explained: NDArray[np.bool_] = np.array(of_pauses) > most
    return explained
