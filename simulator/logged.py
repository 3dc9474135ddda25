"""The engine's steps by its step log (docs/reference/step-log.md), in place of those that the arrivals of tokens show.

The time of a step is that from the end of the step before to its own end, where the engine did not wait: the engine reads and
sends the tokens of a step before it begins the next one, and a client waits for that, too.

The log counts the tokens of a step, not the context of each. That follows from the requests of the run: a request's first token
comes with the end of the step that completes its prompt, and prompts are computed first come, first served. Where the tokens of
steps and of these prompts do not agree, as where others use the server, the context is unknown, also that of the steps before
which hold parts of prompts that were completed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from bench_records.step_log import LoggedSteps, StepLogFileError, no_times, opened_step_log, why_none
from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.observed import EngineTimes, Observed
from simulator.steps import Steps

_S = 1e-9
_MOSTLY = 0.5  # of the steps with prompts must have a known context
_FOUND = 0.95  # of a run's requests must have their tokens in the log


def logged_steps(runs: Sequence[Observed], logs: Sequence[Path]) -> tuple[Steps, ...]:
    """The steps of each run, by that of the ``logs`` which has them. Where the context of most steps with prompts is unknown,
    no step has any.

    Raises StepLogFileError where no log has all steps of a run, as where it is damaged, and OSError.
    """
    opened = cache(opened_step_log)
    found = [_steps_of(observed, _log_of(observed, logs, opened)) for observed in runs]
    of_prompts = np.concatenate([each.has_context[each.steps.prefill > 0] for each in found])
    if np.count_nonzero(of_prompts) < _MOSTLY * of_prompts.size:
        return tuple(_without_context(each.steps) for each in found)
    return tuple(replace(each.steps, is_whole=each.steps.is_whole & each.has_context) for each in found)


def not_logged(names: Sequence[str], steps: Sequence[Steps]) -> list[str]:
    """How many requests of each run with one of these names the logs do not have, a sentence each; nothing of no logs."""
    return [
        f"{name}: the log does not have the tokens of {each.not_logged:,} requests, as those of another engine: what its steps "
        "did for them is unknown"
        for name, each in zip(names, steps, strict=True)
        if each.not_logged
    ]


def unknown_context(steps: Sequence[Steps]) -> list[str]:
    """What the logs of the runs do not show, a sentence each; nothing of no logs."""
    if not steps or any(each.context.any() for each in steps):
        return []
    return [
        "the tokens of the log's steps are not those of the runs' requests in most steps with prompts, as where others use the "
        "server or its prefix cache had a part that the run does not know: the law of the step has no cost of a context"
    ]


def _without_context(steps: Steps) -> Steps:
    return replace(steps, context=np.zeros(len(steps)), prompt_context=np.zeros(len(steps)))


def _log_of(
    observed: Observed, logs: Sequence[Path], opened: Callable[[Path], Callable[[int | None], LoggedSteps]]
) -> LoggedSteps:
    """The steps of the first log that has those of the run, from its first arrival to its last token."""
    times = observed.by_engine
    is_timed = np.zeros(0, bool) if times is None else ~np.isnan(times.last_ns)
    if times is None or not is_timed.any():
        raise no_times(logs[0], observed.name)
    first_ns, last_ns = times.first_ns[is_timed], times.last_ns[is_timed]
    reasons = []
    for path in logs:
        try:
            steps = opened(path)(times.realtime_minus_monotonic_ns)
        except StepLogFileError as error:
            if len(logs) == 1:
                raise
            reasons.append(str(error))
            continue
        reason = _why_not(steps, first_ns, last_ns)
        if reason is None:
            begin = steps.first_after(times.arrival_ns[is_timed].min())
            return steps.only(slice(int(begin), int(steps.first_after(last_ns.max()))))
        reasons.append(f"--step_log {path}: {reason}")
    if len(logs) == 1:
        raise StepLogFileError(f"{reasons[0]} ({observed.name})")
    raise StepLogFileError(
        f"--step_log: none of the {len(logs)} logs has the steps of {observed.name}; give that of its server, whole. "
        + ". ".join(reason.removeprefix("--step_log ") for reason in reasons)
    )


def _why_not(steps: LoggedSteps, first_ns: FloatArray, last_ns: FloatArray) -> str | None:
    """Why a log has not all steps of a run whose requests got their first and last tokens then; None where it has."""
    is_found = steps.has_token(first_ns) & steps.has_token(last_ns)
    if not is_found.any():
        return why_none(steps, first_ns, last_ns)
    in_its_time = is_found[(steps.first_after(first_ns) > 0) & (steps.first_from(last_ns) < len(steps))]
    if in_its_time.size and in_its_time.mean() < _FOUND:
        return (
            f"the log has the tokens of {np.count_nonzero(in_its_time):,} of the {in_its_time.size:,} requests of the run in "
            "its time: it is the log of one of several engines, or of another; give that of the one engine which served the run"
        )
    if steps.start_ns[0] > first_ns.min():
        return f"the log begins {(steps.start_ns[0] - first_ns.min()) * _S:,.1f} s after the run's first token"
    if steps.first_from(last_ns.max()) == len(steps):
        return f"the log ends {(last_ns.max() - steps.end_ns[-1]) * _S:,.1f} s before the run's last token"
    return None


@dataclass(frozen=True, eq=False)
class _Found:
    """The steps of a run, and of which the context is known, shape [steps]."""

    steps: Steps
    has_context: BoolArray


@dataclass(frozen=True, eq=False)
class _Prompts:
    """The run's prompts in the order in which they were completed, shape [prompts]: the step of the first token, the tokens of
    the prompt, and those that were computed.
    """

    step: IntArray
    length: FloatArray
    computed: FloatArray


def _steps_of(observed: Observed, log: LoggedSteps) -> _Found:
    times = observed.by_engine
    assert times is not None
    decode, first, prefill = log.decode_tokens, log.first_tokens, log.prefill_tokens
    is_known = ~np.isnan(decode + first + prefill + log.context_tokens)
    cuts_prompt = is_known & (prefill > 0) & (log.sequences > decode + first)
    prompts = _prompts(observed, times, log)
    ended = np.bincount(prompts.step, minlength=len(log))
    ended_tokens = np.bincount(prompts.step, weights=prompts.length, minlength=len(log))
    # the log has the cache before the step, without the token that each sequence got last, and the law that after the step
    context = np.where(ended == first, log.context_tokens + 2 * decode + ended_tokens + first, np.nan)
    prompt_context = _prompt_context(prefill, first, cuts_prompt, prompts)
    is_logged = log.has_token(times.first_ns) & log.has_token(times.last_ns)
    is_found = log.ends_at(times.first_ns) & log.ends_at(times.last_ns)
    is_busy = log.covered(times.first_ns[is_found], times.last_ns[is_found]) | (decode > 0)
    is_busy[1:] |= cuts_prompt[:-1]
    is_busy &= ~log.after_single()  # such a pass is not the work of the step, but in the time from the one before
    is_busy[:1] = False
    at_s = (log.end_ns - log.end_ns[0]) * _S
    nothing = np.zeros(len(log))
    steps = Steps(
        at_s=at_s,
        last_s=at_s,
        sequences=np.nan_to_num(decode + first),
        prompts=np.nan_to_num(first),
        prefill=np.nan_to_num(prefill),
        prompt_context=np.nan_to_num(prompt_context),
        first_prefill=nothing,
        first_sent_s=nothing,
        context=np.nan_to_num(context),
        waiting=np.nan_to_num(log.waiting),
        coalesced=nothing,
        since_sent_s=np.full(len(log), np.inf),
        is_clear=np.ones(len(log), bool),
        is_busy=is_busy,
        is_whole=is_known,
        cuts_prompt=cuts_prompt,
        not_logged=int(np.count_nonzero(~np.isnan(times.last_ns) & ~is_logged)),
    )
    return _Found(steps, ~np.isnan(context + prompt_context))


def _prompts(observed: Observed, times: EngineTimes, log: LoggedSteps) -> _Prompts:
    """The prompts whose first token comes with the end of a step; of those in one step the engine took the earliest first."""
    chosen = np.flatnonzero(log.ends_at(times.first_ns))
    step = log.first_from(times.first_ns[chosen]).astype(np.int64)
    order = np.lexsort((times.arrival_ns[chosen], step))
    chosen = chosen[order]
    return _Prompts(step[order], observed.input_tokens[chosen] * 1.0, observed.prefill_tokens[chosen] * 1.0)


def _prompt_context(prefill: FloatArray, first: FloatArray, cuts_prompt: BoolArray, prompts: _Prompts) -> FloatArray:
    """The sum over the prompts of each step of the tokens that it computed times the context at their end, shape [steps]; NaN
    where the tokens of the run's prompts are not those of the step.

    Only the prompt that came first can be incomplete after a step, and a later step goes on with it. Whose it was shows when it
    is completed: so a step that cuts a prompt, and those after it, are known together, with the step that cuts none. Each of
    them completed the run's prompts alone, and all tokens are those of these prompts.
    """
    found = np.where(prefill == 0, 0.0, np.nan)
    begins = np.searchsorted(prompts.step, np.arange(len(prefill) + 1)).tolist()
    step_prefill, step_first, cuts = prefill.tolist(), first.tolist(), cuts_prompt.tolist()
    lengths, computed = prompts.length.tolist(), prompts.computed.tolist()
    done, is_followed = 0.0, True  # tokens of the incomplete prompt so far, and whether all steps agree that led to it
    sums: list[tuple[int, float]] = []  # of these steps
    for step in np.flatnonzero(np.isnan(found)).tolist():
        begin, end = begins[step], begins[step + 1]
        left, total = step_prefill[step], 0.0
        for prompt in range(begin, end):
            own, done = computed[prompt] - done, 0.0
            left, total = left - own, total + own * lengths[prompt]
        is_followed = is_followed and end - begin == step_first[step]
        if cuts[step] and end < len(lengths):
            done += left
            total += left * (lengths[end] - computed[end] + done)
            is_followed = is_followed and left > 0 and done < computed[end]
            sums.append((step, total))
            continue
        if is_followed and left == 0 and not cuts[step]:
            for known, total_of_known in (*sums, (step, total)):
                found[known] = total_of_known
        done, sums, is_followed = 0.0, [], not cuts[step] and step_prefill[step] >= 0
    return found
