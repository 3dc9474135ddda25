"""Silences of all streams at once: whether the target stopped for a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

FEWEST_IN_FLIGHT = 3  # requests: one or two may be held up alone
FLOOR_S = 0.5
RATIO = 3.0  # of a pause to every silence that is not a pause
_FEWEST_SILENCES = 100
_MOST_PAUSES = 5  # more are the way in which this target works
_LONGEST = 10_000  # gaps that are looked at
_MORE_PROMPT = 1.25
_SLOWER = 2.0  # a cancelled answer's tokens than those of the median answer


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest of ``pauses``: no stream had a token for ``length_s`` from ``at_s`` on, although enough requests were in
    flight, ``in_flight`` of them at its end. ``usual_s`` is the longest silence that is no pause.
    """

    at_s: float
    length_s: float
    in_flight: int
    usual_s: float
    pauses: int


def find_pause(requests: Requests) -> Pause | None:
    """The pause of a streamed run; None without one, and where there are too few silences to decide.

    A silence is the gap between two responses of any streams, or the part of it in which enough requests are in flight: at
    light load a target is idle before. The silences of a working target are its steps. A pause is longer than all others by a
    ratio that no series of steps has, and rare. An engine that computes a long prompt in one step is silent for that step, too:
    a silence that ends with the first response to more prompt tokens than any other is no pause, unless it is too long for
    them. A target that serves one request at a time and does not notice that a client has gone is silent while it generates
    the rest of a cancelled answer: that is no pause either.
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
    unexplained = ~(_explained_by_prompts(requests, silences, count) | _explained_by_cut_answers(requests, silences, count))
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
    """The longest gaps between responses, as far as enough requests were in flight; None without two responses."""
    times_ns = np.sort(requests.token_times_ns)
    if times_ns.size < 2:
        return None
    at_ns, in_flight = _in_flight(requests)
    enough = in_flight >= FEWEST_IN_FLIGHT
    changes = np.flatnonzero(np.diff(enough, prepend=False))
    begins_ns, ends_ns = at_ns[changes[::2]], np.append(at_ns[changes[1::2]], np.inf)[: changes[::2].size]
    if not begins_ns.size:
        return None
    first = np.minimum(np.searchsorted(ends_ns, times_ns[:-1], side="right"), begins_ns.size - 1)
    last = np.maximum(np.searchsorted(begins_ns, times_ns[1:]) - 1, 0)
    starts_ns, stops_ns = np.maximum(times_ns[:-1], begins_ns[first]), np.minimum(times_ns[1:], ends_ns[last])
    lengths_ns = stops_ns - starts_ns
    chosen = np.argsort(-lengths_ns, kind="stable")[: min(_LONGEST, int((lengths_ns > 0).sum()))]
    before_stop = np.searchsorted(at_ns, stops_ns[chosen]) - 1
    return _Silences(starts_ns[chosen], lengths_ns[chosen], in_flight[before_stop])


def _in_flight(requests: Requests) -> tuple[FloatArray, NDArray[np.int64]]:
    """Times at which a request was sent or had its end or last token, and how many are in flight from each on."""
    sent = ~np.isnan(requests.sent_ns)
    left_ns = _left_ns(requests)[sent]
    left_ns = np.sort(left_ns[~np.isnan(left_ns)])
    sent_ns = np.sort(requests.sent_ns[sent])
    at_ns = np.unique(np.concatenate([sent_ns, left_ns]))
    in_flight = np.searchsorted(sent_ns, at_ns, side="right") - np.searchsorted(left_ns, at_ns, side="right")
    return at_ns, in_flight.astype(np.int64)


def _left_ns(requests: Requests) -> FloatArray:
    """When each request had its last token or, if it did not succeed, its end; shape [n]."""
    return np.where(requests.done & requests.has_tokens, requests.last_token_ns, requests.done_ns)


def _explained_by_cut_answers(requests: Requests, silences: _Silences, count: int) -> NDArray[np.bool_]:
    """In which of the first ``count`` silences the target may have generated an answer that nobody waited for; shape [count].

    Every request in flight waits for its first token, and in the order of sending it is the turn of some that the client cut
    off: they were sent between the requests with the tokens before and after the silence and had none, or are the one with the
    token before. The first of them went before the silence: until then, somebody waited. The silence is no longer than the
    answers that they requested.
    """
    usual_ns, left_ns, first_ns = float(silences.lengths_ns[count]), _left_ns(requests), requests.first_token_ns
    longest_ns = 2 * usual_ns + _SLOWER * _median_gap_ns(requests) * requests.requested_output_tokens
    explained = np.zeros(count, dtype=np.bool_)
    for k in range(count):
        start_ns = silences.starts_ns[k]
        stop_ns = start_ns + silences.lengths_ns[k]
        had_token, will_have = first_ns <= start_ns, first_ns > start_ns
        if not will_have.any() or (had_token & ~(left_ns <= start_ns + usual_ns)).any():
            continue
        before = np.argmax(np.where(had_token, requests.last_received_ns, -np.inf))
        after = np.argmin(np.where(will_have, first_ns, np.inf))
        is_turn = (requests.sent_ns >= requests.sent_ns[before]) & (requests.sent_ns <= requests.sent_ns[after])
        is_turn &= ~requests.has_tokens | (np.arange(is_turn.size) == before)
        for_nobody = requests.cut_off & is_turn & (requests.done_ns <= stop_ns)
        gone_before = requests.done_ns[for_nobody].min(initial=np.inf) <= start_ns + usual_ns
        explained[k] = gone_before and silences.lengths_ns[k] <= longest_ns[for_nobody].sum()
    return explained


def _median_gap_ns(requests: Requests) -> float:
    """The median over the successful requests of their mean time between two tokens; NaN where it is unknown."""
    several = requests.done & (requests.sent_tokens > 1)
    gaps_ns = (requests.last_token_ns - requests.first_token_ns)[several] / (requests.sent_tokens[several] - 1)
    gaps_ns = gaps_ns[~np.isnan(gaps_ns)]
    return float(np.median(gaps_ns)) if gaps_ns.size else float("nan")


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
    order = np.argsort(requests.first_token_ns)  # NaN last
    first_ns, sent_ns, tokens = (of[order] for of in (requests.first_token_ns, requests.sent_ns, prompt_tokens))
    sums = np.concatenate([[0.0], np.cumsum(tokens)])
    begin, end = np.searchsorted(first_ns, ends_ns), np.searchsorted(first_ns, ends_ns + usual_ns, side="right")
    usual_tokens = (sums[end] - sums[begin])[count:]
    is_after = (starts_ns[count:, None] >= starts_ns[:count]) & (starts_ns[count:, None] <= ends_ns[:count] + usual_ns)
    most_tokens = float(usual_tokens[~is_after.any(axis=1)].max(initial=0.0))
    within = (slice(int(begin[k]), int(end[k])) for k in range(count))
    of_pauses = np.array([tokens[part][sent_ns[part] <= starts_ns[k] + usual_ns].sum() for k, part in enumerate(within)])
    met = (first_ns[:, None] >= starts_ns[:count]) & (first_ns[:, None] <= ends_ns[:count] + usual_ns)
    most_ns = np.nanmax((first_ns - sent_ns)[~met.any(axis=1)], initial=0.0)  # for the most tokens, or for fewer
    in_time = silences.lengths_ns[:count] * most_tokens**2 <= most_ns * of_pauses**2  # attention grows with the square
    explained: NDArray[np.bool_] = (of_pauses > _MORE_PROMPT * most_tokens) & in_time
    return explained
