"""Which structure the engine has, from its steps: what a step may hold, its batch limit, its token budget, its lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.arrays import BoolArray, FloatArray
from simulator.launch_law import held_out_launch_errors_s
from simulator.prompt_chunks import budgets_to_try
from simulator.server import Admission, Order
from simulator.step_law import BASE, FEWEST_ROWS, Sample, held_out_errors_s, joined, outlier_limit, sample_of
from simulator.steps import Steps

_TERMS = (*BASE, "prefill_step")
_LEAST_GAIN = 0.03  # of the held-out error, for a budget or a lookahead
_FEWEST_JOINING = 10  # steps in which prompts came while others decoded
_FULL_SHARE, _FEWEST_FULL, _WAITING_SHARE = 0.05, 20, 0.9  # of steps at the batch limit
_PILED_UP = 2.0  # times as many steps at the limit as with one sequence fewer, where few are full: a tail falls instead


@dataclass(frozen=True, eq=False)
class Structure:
    """``admission``, ``steps`` of each run as that order reads them, the sample of the law, and the
    reasons.
    """

    admission: Admission
    steps: tuple[Steps, ...]
    sample: Sample
    reasons: tuple[str, ...]


def structure_of(runs: Sequence[Steps]) -> Structure:
    """The structure of the engine whose steps are those of ``runs``."""
    order, why_order = _order(runs)
    steps = tuple(_as_prefill_first(each) for each in runs) if order is Order.PREFILL_FIRST else tuple(runs)
    limit, why_limit = _batch_limit(steps, order)
    budget, lookahead, sample, why_law = _law(steps)
    admission = Admission(order=order, max_sequences=limit, token_budget=budget, lookahead=lookahead)
    return Structure(admission, steps, sample, (why_order, why_limit, *why_law))


def known_structure(runs: Sequence[Steps], admission: Admission) -> Structure:
    """The structure of an engine whose ``admission`` is known, with the steps of ``runs`` as it reads them."""
    steps = tuple(map(_as_prefill_first, runs)) if admission.order is Order.PREFILL_FIRST else tuple(runs)
    return Structure(admission, steps, joined([sample_of(each, admission.token_budget) for each in steps]), ())


def _order(runs: Sequence[Steps]) -> tuple[Order, str]:
    joining = [steps.is_busy & steps.is_clear & (steps.prompts > 0) for steps in runs]
    count = sum(int(chosen.sum()) for chosen in joining)
    alone = sum(int((steps.decoding[chosen] == 0).sum()) for steps, chosen in zip(runs, joining, strict=True))
    if count < _FEWEST_JOINING:
        return Order.MIXED, "prompts beside sequences that decode is assumed: prompts hardly ever came while others decoded"
    if alone > count / 2:
        return Order.PREFILL_FIRST, f"prompts are computed alone, before others decode on: in {alone:,} of {count:,} steps"
    return Order.MIXED, f"prompts are computed beside sequences that decode: in {count - alone:,} of {count:,} steps"


def _as_prefill_first(steps: Steps) -> Steps:
    """The steps, of which those with prompts alone and those without any are whole; a log knows it."""
    if steps.is_logged:
        return steps
    is_whole = ((steps.prompts == 0) | (steps.decoding == 0)) & (steps.coalesced == 0)
    return replace(steps, is_whole=is_whole)


def _batch_limit(runs: Sequence[Steps], order: Order) -> tuple[int | None, str]:
    sequences = np.concatenate([steps.sequences for steps in runs])
    waiting = np.concatenate([steps.waiting for steps in runs])
    whole = np.concatenate([steps.is_whole for steps in runs])
    most = int(sequences[whole].max(initial=1))
    is_full = whole & (sequences == most)
    if all(steps.is_logged for steps in runs):
        budget, _ = _logged_budget(runs)
        has_room = np.concatenate([_has_room_for_prompts(steps, order, budget) for steps in runs])
        return _logged_batch_limit(most, whole & has_room & (waiting > 0), is_full)
    full, fewer = int(is_full.sum()), int((whole & (sequences == most - 1)).sum())
    is_often = full >= _FEWEST_FULL and (full >= _FULL_SHARE * whole.sum() or full >= _PILED_UP * fewer)
    if is_often and (waiting[is_full] > 0).mean() >= _WAITING_SHARE:
        return most, f"at most {most:,} sequences a step: {full:,} steps had them while requests waited"
    return None, _no_limit(most)


def _logged_batch_limit(most: int, has_waiting: BoolArray, is_full: BoolArray) -> tuple[int | None, str]:
    """A log counts requests that the engine itself kept waiting: with a batch limit they wait beside full steps alone, where
    nothing else kept their prompts out. A step can be full while none waits.
    """
    full = int((has_waiting & is_full).sum())
    if full >= _FEWEST_FULL and full >= _WAITING_SHARE * has_waiting.sum():
        return most, f"at most {most:,} sequences a step: {full:,} steps had them while requests waited"
    return None, _no_limit(most)


def _has_room_for_prompts(steps: Steps, order: Order, budget: int | None) -> BoolArray:
    """Whether the logged step could hold more prompt tokens. It does not where a prompt was cut or the token budget is used up,
    and with prompts first a step of prompts has none of the sequences that decode, so its size is not that of the batch.
    """
    assert steps.cuts_prompt is not None
    has_no_prompt: BoolArray = steps.prefill == 0
    if order is Order.PREFILL_FIRST:
        return has_no_prompt
    has_room: BoolArray = ~steps.cuts_prompt & (steps.prefill + steps.decoding < (budget or np.inf))
    return has_room


def _no_limit(most: int) -> str:
    return f"never more than {most:,} sequences in a step: nothing is known beyond, and no batch limit was seen"


def _law(runs: Sequence[Steps]) -> tuple[int | None, int, Sample, tuple[str, ...]]:
    """The token budget, the lookahead, the rows of the law without one, and the reasons."""
    sample = joined([sample_of(steps, None) for steps in runs])
    largest = max(float((steps.prefill + steps.decoding)[steps.is_whole].max(initial=0.0)) for steps in runs)
    whole = f"prompts are computed whole: no step had more than {largest:,.0f} tokens, and nothing is known beyond"
    at_end = "a step is launched when the one before it has ended"
    if all(steps.is_logged for steps in runs):
        budget, why = _logged_budget(runs)
        return budget, 0, sample, (why or whole, at_end)
    if len(sample) < FEWEST_ROWS:
        return None, 0, sample, (whole, at_end)
    errors = held_out_errors_s(sample, _TERMS)
    limit = outlier_limit(errors)
    first = error = _mean(errors, limit)
    budget = None
    for candidate in sorted({budget for steps in runs for budget in budgets_to_try(steps)}, reverse=True):
        chunked = joined([sample_of(steps, candidate) for steps in runs])
        found = _mean(held_out_errors_s(chunked, _TERMS), limit)
        if found < (1 - _LEAST_GAIN) * error:
            budget, error, sample = candidate, found, chunked
    ahead = _mean(held_out_launch_errors_s(runs), limit)
    if ahead < (1 - _LEAST_GAIN) * error:
        why = f"held-out error {ahead * 1e3:.2f} ms, {error * 1e3:.2f} ms without it"
        return None, 1, sample, (whole, f"a step is decided and launched while the one before it runs ({why})")
    if budget is None:
        return None, 0, sample, (whole, at_end)
    why = f"held-out error {error * 1e3:.2f} ms, {first * 1e3:.2f} ms without chunks"
    return budget, 0, sample, (f"prompts are cut into chunks at {budget:,} tokens a step ({why})", at_end)


def _logged_budget(runs: Sequence[Steps]) -> tuple[int | None, str]:
    """The tokens of the steps that left a prompt incomplete, since such a step is full; None, and no reason, without any."""
    full = [
        (steps.prefill + steps.decoding)[steps.is_whole & steps.cuts_prompt] for steps in runs if steps.cuts_prompt is not None
    ]
    tokens = np.concatenate(full)
    if not tokens.size:
        return None, ""
    budget = int(np.median(tokens))
    return budget, f"prompts are cut into chunks at {budget:,} tokens a step: {tokens.size:,} steps left a prompt incomplete"


def _mean(errors: FloatArray, limit: float) -> float:
    return float(np.minimum(errors, limit).mean())
