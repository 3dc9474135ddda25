"""The engine's steps by its step log (docs/reference/step-log.md), in place of those that the arrivals of tokens show.

The time of a step is that from the end of the step before to its own end, where the engine did not wait: the engine reads and
sends the tokens of a step before it begins the next one, and a client waits for that, too.

The log counts the tokens of a step, not the context of each. That follows from the requests of the run: a request's first token
comes with the end of the step that completes its prompt, and prompts are computed first come, first served. Where tokens of the
step and of these prompts do not agree, as where others use the server, the context is unknown, and never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench_records.step_log import LoggedSteps, StepLogFileError, no_times, read_step_log, why_none
from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.observed import EngineTimes, Observed
from simulator.steps import Steps

_S = 1e-9
_MOSTLY = 0.5  # of a run's requests must have their tokens at ends of steps, and of steps with prompts a known context


def logged_steps(runs: Sequence[Observed], logs: Sequence[Path]) -> tuple[Steps, ...]:
    """The steps of each run, by that of the ``logs`` which has them. Where the context of most steps with prompts is unknown,
    no step has any.

    Raises StepLogFileError where no log has all steps of a run, and for a damaged one, and OSError.
    """
    found = [_steps_of(observed, _log_of(observed, logs)) for observed in runs]
    of_prompts = np.concatenate([each.has_context[each.steps.prefill > 0] for each in found])
    if np.count_nonzero(of_prompts) < _MOSTLY * of_prompts.size:
        return tuple(_without_context(each.steps) for each in found)
    return tuple(replace(each.steps, is_whole=each.steps.is_whole & each.has_context) for each in found)


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


def _log_of(observed: Observed, logs: Sequence[Path]) -> LoggedSteps:
    """The steps of the log that has those of the run, from its first arrival to its last token."""
    times = observed.by_engine
    is_timed = np.zeros(0, bool) if times is None else ~np.isnan(times.last_ns)
    if times is None or not is_timed.any():
        raise no_times(logs[0], observed.name)
    first_ns, last_ns = times.first_ns[is_timed], times.last_ns[is_timed]
    reasons = []
    for path in logs:
        steps = read_step_log(path, times.realtime_minus_monotonic_ns)
        reason = _why_not(steps, first_ns, last_ns)
        if reason is None:
            begin = steps.first_after(times.arrival_ns[is_timed].min())
            return steps.only(slice(int(begin), int(steps.first_after(last_ns.max()))))
        reasons.append(f"--step_log {path}: {reason}")
    if len(logs) == 1:
        raise StepLogFileError(f"{reasons[0]} ({observed.name})")
    raise StepLogFileError(
        f"--step_log: none of the {len(logs)} logs has the steps of {observed.name}; give that of its server, whole"
    )


def _why_not(steps: LoggedSteps, first_ns: FloatArray, last_ns: FloatArray) -> str | None:
    """Why a log has not all steps of a run whose requests got their first and last tokens then; None where it has."""
    is_found = steps.ends_at(first_ns) & steps.ends_at(last_ns)
    if not is_found.any():
        return why_none(steps, first_ns, last_ns)
    if steps.start_ns[0] > first_ns.min():
        return f"the log begins {(steps.start_ns[0] - first_ns.min()) * _S:,.1f} s after the run's first token"
    if steps.first_from(last_ns.max()) == len(steps):
        return f"the log ends {(last_ns.max() - steps.end_ns[-1]) * _S:,.1f} s before the run's last token"
    if is_found.mean() < _MOSTLY:
        found = int(np.count_nonzero(is_found))
        return f"the log has the tokens of {found:,} of the {is_found.size:,} requests of the run; give the log of its server"
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
    assert observed.by_engine is not None
    decode, first, prefill = log.decode_tokens, log.first_tokens, log.prefill_tokens
    is_known = ~np.isnan(decode + first + prefill + log.context_tokens)
    cuts_prompt = is_known & (prefill > 0) & (log.sequences > decode + first)
    prompts = _prompts(observed, observed.by_engine, log)
    ended = np.bincount(prompts.step, minlength=len(log))
    ended_tokens = np.bincount(prompts.step, weights=prompts.length, minlength=len(log))
    # the log has the cache before the step, without the token that each sequence got last, and the law that after the step
    context = np.where(ended == first, log.context_tokens + 2 * decode + ended_tokens + first, np.nan)
    prompt_context = _prompt_context(prefill, first, cuts_prompt, prompts)
    in_decode = log.covered(*_known(observed.by_engine.first_ns, observed.by_engine.last_ns))
    is_busy = in_decode | (decode > 0)
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
    )
    return _Found(steps, ~np.isnan(context + prompt_context))


def _known(from_ns: FloatArray, to_ns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The pairs of which both are known."""
    known = ~np.isnan(from_ns + to_ns)
    return from_ns[known], to_ns[known]


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

    Only the prompt that came first can be incomplete after a step, and the next step goes on with it.
    """
    found = np.where(prefill == 0, 0.0, np.nan)
    begins = np.searchsorted(prompts.step, np.arange(len(prefill) + 1)).tolist()
    step_prefill, step_first, cuts = prefill.tolist(), first.tolist(), cuts_prompt.tolist()
    lengths, computed = prompts.length.tolist(), prompts.computed.tolist()
    done, is_followed = 0.0, True  # tokens of the incomplete prompt so far, and whether they are known
    for step in np.flatnonzero(np.isnan(found)).tolist():
        begin, end = begins[step], begins[step + 1]
        left, total = step_prefill[step], 0.0
        for prompt in range(begin, end):
            own, done = computed[prompt] - done, 0.0
            left, total = left - own, total + own * lengths[prompt]
        agrees = is_followed and end - begin == step_first[step]
        if cuts[step] and end < len(lengths):
            done += left
            total += left * (lengths[end] - computed[end] + done)
            agrees = agrees and left > 0 and done < computed[end]
        else:
            agrees = agrees and left == 0 and not cuts[step]
        is_followed = agrees or (not cuts[step] and step_prefill[step] >= 0)
        done = done if agrees else 0.0
        if agrees:
            found[step] = total
    return found
