"""In which steps prompts were computed, where a step holds a limited number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.arrays import BoolArray, FloatArray
from simulator.steps import Steps

SMALLEST_BUDGET, LARGEST_BUDGET = 64, 1 << 14


def budgets_to_try(steps: Steps) -> list[int]:
    """The powers of 2 that some step would have exceeded."""
    most = float((steps.prefill + steps.decoding)[steps.is_whole].max(initial=0.0))
    exponents = range(SMALLEST_BUDGET.bit_length() - 1, LARGEST_BUDGET.bit_length())
    return [1 << exponent for exponent in exponents if 1 << exponent < most]


@dataclass(frozen=True, eq=False)
class Laid:
    """The prompt tokens that each step computed, with ``with_context`` the sum over them of the context at the end of their
    part of the prompt, and for which steps they are known; shape [steps] each.
    """

    prefill: FloatArray
    with_context: FloatArray
    is_known: BoolArray


def prefill_by_step(steps: Steps, budget: int | None) -> Laid:
    """In which steps prompts were computed.

    A prompt is complete in the step of its first token, and computed after those that were sent before it. A step that leaves
    a prompt incomplete is full: of the steps that a prompt is spread over, the last alone has room left, which the next prompt
    takes if it waits when the step is decided. Where that is not clear from when it was sent, and its length allows both, the
    steps in question are not known.
    A log has what each step computed.
    """
    computed, with_context = steps.prefill.copy(), steps.prompt_context.copy()
    is_known = np.ones(len(steps), bool)
    with_prompts = np.flatnonzero(steps.prompts > 0)
    if budget is None or steps.is_logged or not len(with_prompts):
        return Laid(computed, with_context, is_known)
    room = np.maximum(budget - steps.decoding, 1.0)
    way_s = float((steps.at_s - steps.first_sent_s)[with_prompts].min())  # to the engine, at most
    before = -1  # the step that completed a prompt last
    for number in with_prompts.tolist():
        begin = _begin(steps, room, number, before)
        sent, decided = steps.first_sent_s[number], steps.at_s[before - 1] if before > 0 else -np.inf
        latest = max(decided, _begun_s(steps, room, before, way_s)) if before >= 0 else decided
        if before >= 0 and begin > before and _fits_from(steps, room, computed, number, before):
            is_known[before : number + 1] &= not decided - way_s < sent <= latest
            begin = before if sent <= decided else begin
        is_unseen = before >= 0 and not steps.is_busy[before] and steps.prefill[before] > room[before]
        if before >= 0 and (is_unseen or not is_known[before]) and sent <= latest:  # what was left of that step is not known
            is_known[before : number + 1] = False
        if not steps.is_busy[begin]:
            _forget_unseen(steps, is_known, number, begin, before)
        held = computed[begin:number].copy()
        _spread(steps, room, computed, number, begin)
        _spread_context(steps, with_context, computed[begin:number] - held, number, begin)
        before = number
    return Laid(computed, with_context, is_known)


def _begun_s(steps: Steps, room: FloatArray, number: int, way_s: float) -> float:
    """When ``number``, which completes a prompt, was decided at the latest where the engine waited for that prompt, else minus
    infinity. Where steps without a token held the beginning of the prompt, its own end is the only limit.
    """
    if steps.is_busy[number]:
        return -np.inf
    is_whole = steps.prefill[number] <= room[number]
    return float(steps.first_sent_s[number] + way_s if is_whole else steps.at_s[number])


def _begin(steps: Steps, room: FloatArray, number: int, before: int) -> int:
    """The last step from which the first prompt that is complete in ``number`` can be spread, as if it had them alone."""
    left = steps.prefill[number] - room[number]
    begin = number
    while left > 0 and begin > max(before, 0) and steps.is_busy[begin]:
        begin -= 1
        left -= room[begin]
    return begin


def _forget_unseen(steps: Steps, is_known: BoolArray, number: int, begin: int, before: int) -> None:
    """Where the engine had no other sequence at ``begin``, steps without a token may have held a part of the prompt, so what
    those before held of it is not known.
    """
    decided_s = steps.at_s[max(before, 1) - 1 : max(begin - 1, 0)]
    is_known[max(before, 1) : max(begin, 1)] &= decided_s < steps.first_sent_s[number]


def _fits_from(steps: Steps, room: FloatArray, computed: FloatArray, number: int, before: int) -> bool:
    """Whether the first prompt that is complete in ``number`` may have started in what was left of the step ``before``."""
    if not steps.is_busy[before + 1 : number + 1].all():
        return False
    free = max(room[before] - computed[before], 0.0)
    full = free + room[before + 1 : number].sum()
    return bool(free > 0 and full < steps.first_prefill[number] and steps.prefill[number] - full <= room[number])


def _spread(steps: Steps, room: FloatArray, computed: FloatArray, number: int, begin: int) -> None:
    """Take from ``number`` what the full steps from ``begin`` on computed of its first prompt; what is too much for all of them
    stays with the first.
    """
    for step in range(begin, number):
        taken = min(max(room[step] - computed[step], 0.0), max(computed[number] - 1.0, 0.0))
        computed[step] += taken
        computed[number] -= taken
    excess = computed[number] - room[number]
    if begin < number and excess > 0:
        computed[begin] += excess
        computed[number] -= excess


def _spread_context(steps: Steps, with_context: FloatArray, taken: FloatArray, number: int, begin: int) -> None:
    """Each step from ``begin`` on computed a part of the first prompt of ``number``: ``taken`` tokens, shape [steps before it].
    The context of a part is that of the parts before it, and what a cache had where ``number`` completes no other prompt.
    """
    own = steps.first_prefill[number]
    is_alone = steps.prompts[number] == 1
    cached = max(steps.prompt_context[number] / steps.prefill[number] - own, 0.0) if is_alone else 0.0
    with_context[begin:number] += taken * (cached + np.cumsum(taken))
    with_context[number] -= taken.sum() * (cached + own)
