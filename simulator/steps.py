"""The engine's steps, recovered from the arrivals of tokens at the client.

The tokens of one step are sent together, and a request gets one in each. So a new step begins with a pause in the pooled
arrivals of all requests, or with a second response of a request. A step is *clear* where a pause comes before it: the front end
had nothing to write, so its first response shows when the engine ended the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.observed import Observed

_PAUSE_OF_GAP = 0.2  # a pause is at least this share of the median time between two responses of a request
_SMALL_SHARE = 0.05  # of the sequences of a step may be missing from the next one
_FEWEST_FOR_WIDTH = 5  # responses of a step whose spacing is used


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps in the order of time; every array has the shape [steps].

    ``at_s`` and ``last_s`` are the arrivals of the first and last response. ``sequences`` counts the requests that got a token,
    ``prompts`` those among them that got their first, with ``prefill`` prompt tokens, and ``prompt_context`` the sum over them
    of prompt tokens times length. ``first_prefill`` and ``first_sent_s`` are the prompt tokens and the time of sending of the
    one among these that was sent first, 0 where there is none. ``context`` counts the tokens in the KV cache, ``waiting`` the
    requests that were sent and have no token yet, ``coalesced`` the responses of several tokens. ``since_sent_s`` is the time
    from the last sending of a request to the first response, infinite before any. ``is_busy``: a sequence of the step before
    goes on, so the engine did not wait. ``is_whole``: every such sequence got one token in this step.

    Steps by the engine's own log (``simulator/logged.py``) have ``cuts_prompt``, whether a prompt went on in the next step, and
    others None. Their times are the ends of the steps, ``prefill`` and ``prompt_context`` are what each computed, and
    ``is_whole`` says whether these are known. ``is_busy`` holds also after a cut prompt, and not after a pass of one request
    between steps. ``not_logged`` requests of the run have tokens that the log does not have.
    """

    at_s: FloatArray
    last_s: FloatArray
    sequences: FloatArray
    prompts: FloatArray
    prefill: FloatArray
    prompt_context: FloatArray
    first_prefill: FloatArray
    first_sent_s: FloatArray
    context: FloatArray
    waiting: FloatArray
    coalesced: FloatArray
    since_sent_s: FloatArray
    is_clear: BoolArray
    is_busy: BoolArray
    is_whole: BoolArray
    cuts_prompt: BoolArray | None = None
    not_logged: int = 0

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def is_logged(self) -> bool:
        """Whether they are by the engine's own log."""
        return self.cuts_prompt is not None

    @property
    def decoding(self) -> FloatArray:
        """Sequences that got a token other than their first."""
        return self.sequences - self.prompts


def recover_steps(observed: Observed) -> Steps:
    """The steps of a run. Its responses are at least 2."""
    order = np.argsort(observed.times_s, kind="stable")
    times, requests = observed.times_s[order], observed.request_of_response[order]
    gaps = np.diff(times, prepend=-np.inf)
    pause = _PAUSE_OF_GAP * _typical_gap(observed)
    step = _numbered(requests, gaps > pause)
    count = int(step[-1]) + 1
    begins = np.flatnonzero(np.diff(step, prepend=-1))

    def total(of: FloatArray | BoolArray | IntArray) -> FloatArray:
        return np.bincount(step, weights=of, minlength=count).astype(np.float64)

    within = _place_within(observed)[order]
    is_first = within == 0
    is_last = within == np.diff(observed.starts)[requests] - 1
    prefill = np.where(is_first, observed.prefill_tokens[requests], 0)
    so_far = _tokens_so_far(observed)[order]
    before = _step_of_previous(observed, order, step)
    follows = before == step - 1
    goes_on = total(~is_last)
    expected = np.concatenate([[0.0], goes_on[:-1]])
    sequences = total(np.ones(len(step)))
    missing = expected - total(follows & ~is_first)
    coalesced = total(observed.counts[order] != 1)
    first = np.full(count, len(observed))
    np.minimum.at(first, step[is_first], requests[is_first])
    strayed = total(~follows & ~is_first) + coalesced
    return Steps(
        at_s=times[begins],
        last_s=times[np.append(begins[1:], len(times)) - 1],
        sequences=sequences,
        prompts=total(is_first),
        prefill=total(prefill),
        prompt_context=total(prefill * observed.input_tokens[requests]),
        first_prefill=np.append(observed.prefill_tokens, 0)[first].astype(np.float64),
        first_sent_s=np.append(observed.sent_s, 0.0)[first],
        context=total(observed.input_tokens[requests] + so_far),
        waiting=_waiting(observed, times[begins]),
        coalesced=coalesced,
        since_sent_s=times[begins] - _last_sent_s(observed, times[begins]),
        is_clear=gaps[begins] > pause,
        is_busy=expected > 0,
        is_whole=(missing <= _SMALL_SHARE * expected) & (strayed <= _SMALL_SHARE * sequences),
    )


def response_spacing_s(steps: Steps) -> float | None:
    """The median time between two responses of a step, of those that are clear and whole; None without enough of them."""
    chosen = steps.is_clear & steps.is_whole & (steps.sequences >= _FEWEST_FOR_WIDTH)
    if not chosen.any():
        return None
    return float(np.median((steps.last_s - steps.at_s)[chosen] / (steps.sequences[chosen] - 1)))


def _typical_gap(observed: Observed) -> float:
    """The median time between two responses of a request, in s."""
    gaps = np.diff(observed.times_s)
    is_within = np.ones(len(gaps), bool)
    is_within[observed.starts[1:-1] - 1] = False
    return float(np.median(gaps[is_within])) if is_within.any() else 0.0


def _numbered(requests: IntArray, begins: BoolArray) -> IntArray:
    """The number of each response's step, from 0; a response begins one where ``begins``, or where its request has one in
    it.
    """
    last_step = [-1] * (int(requests.max()) + 1)
    numbers = []
    step = -1
    for request, is_begin in zip(requests.tolist(), begins.tolist(), strict=True):
        if is_begin or last_step[request] == step:
            step += 1
        last_step[request] = step
        numbers.append(step)
    return np.array(numbers, np.int64)


def _place_within(observed: Observed) -> IntArray:
    """The number of each response within its request, from 0."""
    place: IntArray = np.arange(len(observed.times_s)) - np.repeat(observed.starts[:-1], np.diff(observed.starts))
    return place


def _tokens_so_far(observed: Observed) -> IntArray:
    """The tokens that a request has after each response."""
    total = np.cumsum(observed.counts)
    before = np.concatenate([[0], total])[observed.starts[:-1]]
    so_far: IntArray = total - np.repeat(before, np.diff(observed.starts))
    return so_far


def _step_of_previous(observed: Observed, order: IntArray, step: IntArray) -> IntArray:
    """The step of the response before, of the same request; -1 for a first one. Shape [responses], in the order of time."""
    by_request = np.empty(len(step), np.int64)
    by_request[order] = step
    previous = np.concatenate([[-1], by_request[:-1]])
    previous[observed.starts[:-1]] = -1
    return previous[order]


def _last_sent_s(observed: Observed, at_s: FloatArray) -> FloatArray:
    """When the last request before each time was sent; minus infinity where there is none."""
    sent = np.concatenate([[-np.inf], np.sort(observed.sent_s)])
    last: FloatArray = sent[np.searchsorted(sent, at_s, side="left") - 1]
    return last


def _waiting(observed: Observed, at_s: FloatArray) -> FloatArray:
    """How many requests were sent and without a token at each time."""
    sent = np.searchsorted(np.sort(observed.sent_s), at_s, side="right")
    answered = np.searchsorted(np.sort(observed.first_s), at_s, side="right")
    return (sent - answered).astype(np.float64)
