"""The gates of a run, or of several starts of one configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from reports.criteria import Requirement
from reports.findings.checks import Validity
from reports.gates.gate import Evidence, Gate, JudgedRun, Status
from reports.gates.numbers import KnownNumber, between_starts, is_clear, judge_number, of_mean, of_rates, over_groups
from reports.gates.samples import failure_sample, groups_of, latency_sample, limited_latencies, severity_sample
from reports.gates.shares import ShareClaim, ShareOfRun, joined_groups, judge_share
from reports.gates.words import NO_OBJECTIVE, NO_VALUE, OTHER_OBJECTIVES, significant
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, GOODPUT, REQUEST_THROUGHPUT, TPOT
from reports.metrics.censoring import CensoredLatencies
from reports.metrics.failures import SLOWEST_MS
from reports.metrics.in_flight import drain_start_ns
from reports.render.counts import counted
from reports.statistics.arrays import shifted_mean
from reports.statistics.percentiles import summarise

_UNKNOWN_RATE = 1.5  # times the rate of what arrived, where its upper limit is unknown
_DIGITS = 12  # of a share: those that the binary error of a difference leaves


def judge(requirements: Iterable[Requirement], run: JudgedRun, validity: Validity) -> tuple[Gate, ...]:
    """The gates of a run."""
    return tuple(judge_together(requirement, [run], validity) for requirement in requirements)


def judge_together(requirement: Requirement, runs: Sequence[JudgedRun], validity: Validity) -> Gate:
    """The gate of a configuration that ``runs`` measured, of which there is at least one: their requests count together, and
    what differs between starts is part of the error. ``validity`` is that of the least valid run.

    Nothing of a run that is not valid passes or fails, since its numbers cannot be believed; but where failed requests are the
    only reason, gates that they make worse can fail.
    """
    gate = _gate(requirement, runs)
    if validity is Validity.VALID or (validity is Validity.REQUESTS_FAILED and gate.status is Status.FAILED):
        return gate
    return Gate(requirement, Status.UNDECIDED, gate.evidence, gate.shown, ("the run is not valid",))


def _gate(requirement: Requirement, runs: Sequence[JudgedRun]) -> Gate:
    metric = requirement.metric
    if metric is FAILED_SHARE:
        return _failed_share(requirement, runs)
    if metric in (ATTAINMENT, GOODPUT):
        objectives = {None if run.metrics.goodput is None else frozenset(run.metrics.goodput.objectives) for run in runs}
        if None in objectives or len(objectives) > 1:
            why = NO_OBJECTIVE if None in objectives else OTHER_OBJECTIVES
            return Gate(requirement, Status.UNDECIDED, Evidence(None), "unknown", (why,))
        return _attainment(requirement, runs) if metric is ATTAINMENT else _goodput(requirement, runs)
    if metric in runs[0].metrics.rates:
        return judge_number(requirement, of_rates([run.metrics.rates[metric] for run in runs]), runs)
    if any(run.metrics.latencies.get(metric) is None for run in runs):
        return Gate(requirement, Status.UNDECIDED, Evidence(None), "unknown", (f"this run has no {metric.label}",))
    return _without_empty_answers(_without_cut_off(_latency(requirement, runs), runs), runs)


def _without_cut_off(gate: Gate, runs: Sequence[JudgedRun]) -> Gate:
    left_out = _count_left_out(gate.requirement, runs)
    if left_out == 0:
        return gate
    words = counted(left_out, "request that was cut off is", "requests that were cut off are")
    return replace(gate, grounds=(*gate.grounds, f"{words} left out"))


def _without_empty_answers(gate: Gate, runs: Sequence[JudgedRun]) -> Gate:
    """The gate with the number of successes without a token, which have no TTFT or E2E latency. No percentile passes where they
    are more than may be beyond the limit: a target that sheds load by them would keep every limit.
    """
    requirement = gate.requirement
    if requirement.metric.ends_ns is None:
        return gate
    empty = sum(int(np.count_nonzero(run.requests.done & ~run.requests.has_tokens)) for run in runs)
    if empty == 0:
        return gate
    done = sum(int(np.count_nonzero(run.requests.done)) for run in runs)
    too_many = requirement.q is not None and requirement.at_most and empty > round(1.0 - requirement.q, _DIGITS) * done
    words = f"{counted(empty, 'answer')} without a token {'is' if empty == 1 else 'are'} left out"
    if gate.status is not Status.PASSED or not too_many:
        return replace(gate, grounds=(*gate.grounds, words))
    return replace(gate, status=Status.UNDECIDED, grounds=(*gate.grounds, f"{words}, more than may be beyond the limit"))


def _count_left_out(requirement: Requirement, runs: Sequence[JudgedRun]) -> int:
    """The requests that were cut off between tokens, where the limit counts the times between tokens of successes alone."""
    metric = requirement.metric
    if metric.ends_ns is not None or (metric is TPOT and requirement.q is not None):
        return 0
    of_runs = (run.requests for run in runs)
    return sum(int(np.count_nonzero(r.cut_off & ~(r.requested_output_tokens < 2))) for r in of_runs)


def _latency(requirement: Requirement, runs: Sequence[JudgedRun]) -> Gate:
    values = requirement.metric.values if requirement.q is None else partial(limited_latencies, requirement.metric)
    latencies = [values(run.requests) for run in runs]
    joined = CensoredLatencies(
        np.concatenate([latency.values_ms for latency in latencies]),
        np.concatenate([latency.is_bound for latency in latencies]),
    )
    groups = [groups_of(requirement.metric, run.requests) for run in runs]
    if requirement.q is None:
        reason = next((run.clustered for run in runs if run.clustered), None)
        shown, least = joined.summary(reason), summarise(joined.values_ms, no_interval_reason=reason)
        if shown is None or least is None:
            return Gate(requirement, Status.UNDECIDED, Evidence(None), NO_VALUE)  # successes without a token, too
        mean = of_mean(shown.mean, least.mean)
        starts = [
            shifted_mean(ms) for ms in (latency.values_ms[np.isfinite(latency.values_ms)] for latency in latencies) if ms.size
        ]
        if mean.interval is None and 1 < len(starts) == len(runs) and reason is None:
            mean = replace(mean, interval=between_starts(starts))
        return judge_number(requirement, over_groups(mean, joined.values_ms, joined_groups(groups)), runs)
    summary = joined.summary()
    percentile = None if summary is None else summary.percentile(requirement.q)
    limit, beyond = requirement.limit, "were over"
    if not requirement.at_most:  # a value at the limit is at least that
        limit, beyond = math.nextafter(limit, -math.inf), "were at least"
    claim = ShareClaim(
        requirement,
        None if percentile is None else percentile.value,
        round(1.0 - requirement.q, _DIGITS),
        limit,
        f"{beyond} {requirement.limit:,.10g} {requirement.metric.unit}",
        at_least=not requirement.at_most,
        lower_bound=None if percentile is None else percentile.lower_bound,
    )
    return judge_share(claim, [latency_sample(requirement.metric, run.requests) for run in runs], runs)


def _failed_share(requirement: Requirement, runs: Sequence[JudgedRun]) -> Gate:
    samples = [failure_sample(run.requests, run.growth) for run in runs]
    every = np.concatenate([sample.least for sample in samples]) > SLOWEST_MS
    claim = ShareClaim(
        requirement,
        float(every.mean()) if every.size else None,
        requirement.limit,
        SLOWEST_MS,
        "failed",
        at_least=not requirement.at_most,
        grows=False,
        fewest=1,  # the share of so few requests is that of independent ones
    )
    gate = judge_share(claim, samples, runs)
    beyond = gate.evidence.beyond
    return gate if beyond is None else replace(gate, evidence=replace(gate.evidence, low=beyond.low, high=beyond.high))


def _attainment(requirement: Requirement, runs: Sequence[JudgedRun]) -> Gate:
    claim = ShareClaim(
        requirement,
        _mean_attainment(runs),
        round(1.0 - requirement.limit, _DIGITS),
        1.0,
        "missed an objective",
        at_least=requirement.at_most,
    )
    gate = judge_share(claim, _severities(runs), runs)
    beyond = gate.evidence.beyond
    if beyond is None:
        return gate
    return replace(gate, evidence=replace(gate.evidence, low=1.0 - beyond.high, high=1.0 - beyond.low))


def _goodput(requirement: Requirement, runs: Sequence[JudgedRun]) -> Gate:
    """Goodput by its own interval; and where requests arrive at a rate, by the attainment that the limit needs of it."""
    measured = of_rates([run.metrics.goodput.rate for run in runs if run.metrics.goodput is not None], grows=True)
    gate = judge_number(requirement, _of_a_longer_run(measured, runs), runs)
    rates = [rate for rate in map(_largest_rate, runs) if rate is not None]
    if requirement.at_most or gate.status is not Status.UNDECIDED or len(rates) < len(runs):
        return gate
    rate = sum(rates) / len(rates)
    known_to_arrive = all(run.load.rate_per_s is not None for run in runs)
    needed = ShareClaim(
        requirement,
        None,  # goodput is shown
        1.0 - requirement.limit / rate,
        1.0,
        f"missed an objective, at {'' if known_to_arrive else 'up to '}{significant(rate)} requests/s",
    )
    growing = any(run.growth is not None for run in runs)
    clear = growing or is_clear(requirement, gate.evidence.value, runs)
    if not clear and not (known_to_arrive and needed.allowed < 0.0):
        return gate
    if needed.allowed < 0.0:
        per_s = f"{significant(rate)} requests/s"
        arrive = f"at most {per_s} arrive" if known_to_arrive else f"no more than {per_s} are likely to arrive"
        return replace(gate, status=Status.FAILED, grounds=(*gate.grounds, arrive))
    by_attainment = judge_share(needed, _severities(runs), runs)
    if by_attainment.status is not Status.FAILED:
        return gate
    return replace(by_attainment, evidence=gate.evidence, shown=gate.shown, limits=gate.limits)


def _largest_rate(run: JudgedRun) -> float | None:
    """Requests per second that arrive, in a longer run: those that the options set, else the upper limit of what arrived."""
    throughput = run.metrics.rates[REQUEST_THROUGHPUT]
    if run.load.rate_per_s is not None or run.metrics.offered_rate is None:
        return run.load.rate_per_s
    if throughput.value is None or throughput.interval is None:
        return _UNKNOWN_RATE * run.metrics.offered_rate
    return run.metrics.offered_rate * throughput.interval[1] / throughput.value


def _of_a_longer_run(goodput: KnownNumber, runs: Sequence[JudgedRun]) -> KnownNumber:
    """Goodput with an upper limit that allows for the ramp and drain of ``runs``, of which longer ones have less."""
    if goodput.interval is None:
        return goodput
    low, high = goodput.interval
    return replace(goodput, interval=(low, high * max(map(_rate_without_ramps, runs))))


def _rate_without_ramps(run: JudgedRun) -> float:
    """The rate at which requests end before the drain, over that of the whole run: at least 1. No less than half of the sending
    counts, since the rate of few answers is known badly.
    """
    throughput, requests = run.metrics.request_throughput, run.requests
    if not throughput:
        return 1.0
    full = run.metrics.offered_rate
    if full is None:
        begin_ns, last_sent_ns = float(requests.scheduled_ns.min()), float(np.nanmax(requests.sent_ns))
        start_ns = begin_ns + float(np.nanmedian(requests.done_ns - requests.sent_ns))
        end_ns = max(drain_start_ns(requests, last_sent_ns), (begin_ns + last_sent_ns) / 2)
        ended = np.count_nonzero(requests.done & (requests.done_ns > start_ns) & (requests.done_ns <= end_ns))
        full = ended / (end_ns - start_ns) * 1e9 if start_ns < end_ns else throughput
    return max(1.0, full / throughput)


def _severities(runs: Sequence[JudgedRun]) -> list[ShareOfRun]:
    return [severity_sample(run.requests, run.metrics.goodput.objectives) for run in runs if run.metrics.goodput is not None]


def _mean_attainment(runs: Sequence[JudgedRun]) -> float:
    found = [run.metrics.goodput for run in runs if run.metrics.goodput is not None]
    return sum(goodput.good for goodput in found) / sum(goodput.sent for goodput in found)
