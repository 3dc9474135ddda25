"""Findings: statements about whether a run can be believed. Data only; renderers turn them into prose.

Each check is a function of a RunFacts and returns one Finding or None. A run with an invalid finding is invalid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.records.record import Outcome
from reports.findings.calibration import CALIBRATION_CHECKS
from reports.findings.client import CLIENT_CHECKS
from reports.findings.completeness import COMPLETENESS_CHECKS
from reports.findings.consistency import CONSISTENCY_CHECKS
from reports.findings.finding import Finding, RunFacts, Severity
from reports.findings.load import LOAD_CHECKS
from reports.findings.server import SERVER_CHECKS
from reports.metrics.latency import client_slip_ms
from reports.metrics.run_metrics import mean_rate
from reports.statistics.percentiles import nearest_rank, required_samples

__all__ = ["Finding", "RunFacts", "Severity", "find", "is_valid"]

_FAILED_SHARE_INVALID = 0.01
_SLIP_FLOOR_MS = 2.0
_SLIP_SHARE_WARNING = 0.10
_SLIP_SHARE_INVALID = 0.50
_RATE_SHARE_WARNING = 0.95
_RATE_SHARE_INVALID = 0.90


def find(facts: RunFacts) -> tuple[Finding, ...]:
    """Every finding of a run, the gravest first."""
    order = list(Severity)
    found = [finding for check in _CHECKS if (finding := check(facts)) is not None]
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def is_valid(findings: tuple[Finding, ...]) -> bool:
    """Whether no finding is invalid."""
    return all(finding.severity is not Severity.INVALID for finding in findings)


def _nothing_done(facts: RunFacts) -> Finding | None:
    if facts.metrics.done:
        return None
    return Finding(
        "nothing_done", Severity.INVALID, {"scheduled": facts.metrics.scheduled}, "No request succeeded; see the failures."
    )


def _errors(facts: RunFacts) -> Finding | None:
    kinds = {kind: n for kind, n in facts.metrics.failed_by_kind.items() if kind != Outcome.NOT_SENT.value}
    failed = sum(kinds.values())
    if not failed:
        return None
    share = failed / facts.metrics.scheduled
    first = next(
        (
            error
            for error, outcome in zip(facts.requests.errors, facts.requests.outcome.tolist(), strict=True)
            if error is not None and outcome not in (Outcome.DONE.value, Outcome.NOT_SENT.value)
        ),
        None,
    )
    return Finding(
        "errors",
        Severity.INVALID if share > _FAILED_SHARE_INVALID else Severity.WARNING,
        {"failed": failed, "share": share, "by_kind": kinds, "first_error": first},
        "Mend what fails, or lower the load, before you compare: a run that fails requests does other work.",
    )


def _interrupted(facts: RunFacts) -> Finding | None:
    not_sent: int | None = facts.metrics.failed_by_kind.get(Outcome.NOT_SENT.value, 0)
    scheduled: int | None = facts.metrics.scheduled
    if not facts.manifest.get("interrupted") and not not_sent:
        return None
    if facts.load.closed:  # what its users would have sent, nobody knows, unless they were to send a number
        scheduled = facts.load.prepared if facts.load.duration_s is None else None
        not_sent = None if scheduled is None else scheduled - facts.metrics.scheduled
    return Finding(
        "interrupted",
        Severity.WARNING,
        {"not_sent": not_sent, "scheduled": scheduled},
        "The run was stopped early; its numbers are of a shorter run than was asked for.",
    )


def _schedule_slip(facts: RunFacts) -> Finding | None:
    slip = np.sort(client_slip_ms(facts.requests))
    latency = facts.metrics.ttft_ms or facts.metrics.e2e_ms
    if slip.size == 0 or latency.sent is None or latency.sent.p50 is None:
        return None
    p99, median = nearest_rank(slip, 0.99), latency.sent.p50
    if p99 < _SLIP_FLOOR_MS or p99 < _SLIP_SHARE_WARNING * median:
        return None
    return Finding(
        "schedule_slip",
        Severity.INVALID if p99 > _SLIP_SHARE_INVALID * median else Severity.WARNING,
        {"p99_slip_ms": p99, "p50_latency_from_sent_ms": median},
        "The client was late with its first requests; let the users come over --ramp_up seconds, or use more --workers."
        if facts.load.closed
        else "The client sent late; give it a core of its own, more --workers, or a lower rate.",
    )


def _achieved_below_offered(facts: RunFacts) -> Finding | None:
    offered, achieved = facts.metrics.offered_rate, facts.metrics.achieved_rate
    if facts.load.max_concurrency is not None:  # what waited at the ceiling was not the client's to send any earlier
        offered = mean_rate(facts.requests.scheduled_ns + facts.requests.ceiling_wait_ns)
    if offered is None or achieved is None or facts.manifest.get("interrupted") or achieved >= _RATE_SHARE_WARNING * offered:
        return None
    return Finding(
        "achieved_below_offered",
        Severity.INVALID if achieved < _RATE_SHARE_INVALID * offered else Severity.WARNING,
        {"offered_rate": offered, "achieved_rate": achieved},
        "The client did not reach the rate that was asked for; use more --workers or a faster machine.",
    )


def _sample_too_small(facts: RunFacts) -> Finding | None:
    needed = required_samples(0.99)
    latency = facts.metrics.e2e_ms.scheduled
    if latency is None or latency.n >= needed:
        return None
    return Finding(
        "sample_too_small",
        Severity.NOTE,
        {"n": latency.n, "needed_for_p99": needed},
        f"A claim about p99 needs {needed} successful requests (99 % confidence); raise --num_requests.",
    )


def _output_shorter(facts: RunFacts) -> Finding | None:
    requests = facts.requests
    known = requests.done & ~np.isnan(requests.output_tokens)
    short = known & (requests.output_tokens < requests.requested_output_tokens)
    if not short.any():
        return None
    against_ask = bool((short & requests.ignore_eos).any())
    return Finding(
        "output_shorter_than_asked",
        Severity.WARNING if against_ask else Severity.NOTE,
        {
            "requests": int(short.sum()),
            "share": float(short.sum() / known.sum()),
            "asked_tokens": float(requests.requested_output_tokens[known].sum()),
            "got_tokens": float(requests.output_tokens[known].sum()),
        },
        "The server ended although it was asked not to (--ignore_eos); compare tokens/s, not requests/s."
        if against_ask
        else "Answers ended by themselves; for equal work in every run use --ignore_eos.",
    )


def _prompt_echoed(facts: RunFacts) -> Finding | None:
    echoed = int(facts.requests.prompt_echoed.sum())
    if not echoed:
        return None
    return Finding(
        "prompt_echoed",
        Severity.NOTE,
        {"requests": echoed},
        "The server repeats the prompt in its answer; those tokens are not counted as output.",
    )


def _warm_up_failed(facts: RunFacts) -> Finding | None:
    failures = facts.manifest.get("warm_up", {}).get("failures", [])
    if not failures:
        return None
    return Finding(
        "warm_up_failed",
        Severity.WARNING,
        {"failed": len(failures), "first_error": failures[0]},
        "Some warm-up requests failed; the server may not have been warm when the clock started.",
    )


def _prompts_dropped(facts: RunFacts) -> Finding | None:
    dropped = facts.manifest.get("workload", {}).get("dropped_too_long", 0)
    if not dropped:
        return None
    return Finding(
        "prompts_dropped",
        Severity.NOTE,
        {"dropped": dropped},
        "Prompts longer than --max_input_len, or than the model's context with their output, were left out.",
    )


_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (
    _nothing_done,
    _errors,
    _schedule_slip,
    _achieved_below_offered,
    *CLIENT_CHECKS,
    *LOAD_CHECKS,
    *CALIBRATION_CHECKS,
    _interrupted,
    *COMPLETENESS_CHECKS,
    _warm_up_failed,
    *CONSISTENCY_CHECKS,
    *SERVER_CHECKS,
    _output_shorter,
    _prompt_echoed,
    _prompts_dropped,
    _sample_too_small,
)
