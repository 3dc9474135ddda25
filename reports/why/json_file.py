"""The answer of ``bench why`` as JSON, schema 1 (docs/reference/json.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from reports.metrics.phase_shares import LatencyParts, PercentileParts, RequestParts
from reports.statistics.estimate import Estimate, reason_text
from reports.why.answer import ExplainedRun, PartsDifference, Why
from reports.why.step_log import LoggedRun, StepFacts
from reports.why.trial import trial
from reports.why.words import WORDS, remarks, remedy

SCHEMA = 1


_NONE: Mapping[Path, Sequence[str]] = MappingProxyType({})


def document(why: Why, other_work: str | None = None, disturbances: Mapping[Path, Sequence[str]] = _NONE) -> dict[str, object]:
    """The document; a value that is unknown or does not exist is null. ``other_work`` says what two runs sent differently,
    ``disturbances`` what delayed the requests of a run from outside, by the run's folder.
    """
    return {
        "schema": SCHEMA,
        "runs": [_run(run, disturbances.get(run.report.folder.path, ())) for run in why.runs],
        "differences": [_difference(difference) for difference in why.differences],
        "other_work": other_work,
    }


def _run(run: ExplainedRun, disturbances: Sequence[str]) -> dict[str, object]:
    return {
        "path": str(run.report.folder.path),
        "validity": "valid" if run.report.valid else "invalid",
        "latencies": [_latency(run, parts) for parts in run.latencies],
        "disturbances": list(disturbances),
        "step_log": None if run.logged is None else _steps(run.logged, run.steps),
    }


def _steps(logged: LoggedRun, stretches: Sequence[StepFacts]) -> dict[str, object]:
    return {
        "requests_timed": logged.timed,
        "requests_divided": logged.divided,
        "over_time": [asdict(facts) for facts in stretches],
    }


def _latency(run: ExplainedRun, latency: LatencyParts) -> dict[str, object]:
    last = latency.percentiles[-1]
    return {
        "metric": latency.metric.key,
        "percentiles": [_percentile(parts) for parts in latency.percentiles],
        "classes": [
            {"name": of_class.name, "percentile": _percentile(of_class.parts)} for of_class in run.classes_of(latency.metric)
        ],
        "over_time": [
            {"start_s": stretch.start_s, "end_s": stretch.end_s, "percentile": _percentile(stretch.parts)}
            for stretch in run.stretches_of(latency.metric)
        ],
        "slowest": [_request(request) for request in run.slowest.get(latency.metric.key, ())],
        "requests": [_request(request) for request in run.chosen.get(latency.metric.key, ())],
        "requests_without": list(run.without.get(latency.metric.key, ())),
        "clock_error_ms": None if latency.times.clock_error_ns is None else latency.times.clock_error_ns / 1e6,
        "remarks": list(remarks(run.report, last)),
        "remedy": remedy(last) or None,
        "commands": list(trial(run.report, last)),
    }


def _request(request: RequestParts) -> dict[str, object]:
    return {
        "index": request.index,
        "due_s": request.due_s,
        "latency_ms": request.latency_ms,
        "contradiction_ms": request.contradiction_ms,
        "head_ms": request.head_ms,
        "phases": [{"phase": phase.name.lower(), "ms": ms} for phase, ms in request.phases_ms.items()],
    }


def _percentile(parts: PercentileParts) -> dict[str, object]:
    return {
        "q": parts.q,
        "value_ms": _estimate(parts.percentile),
        "lower_bound_ms": parts.percentile.lower_bound,
        "n": parts.n,
        "around": parts.around,
        "left_out": parts.left_out,
        "timed": parts.timed,
        "mean_ms": parts.mean_ms if parts.around else None,
        "contradiction_ms": parts.contradiction_ms,
        "contradicted": parts.contradicted,
        "phases": [
            {
                "phase": share.phase.name.lower(),
                "source": WORDS[share.phase].source,
                "mean_ms": _estimate(share.mean_ms),
                "share": _estimate(share.share),
                "without_ms": share.without_ms,
                "without": _estimate(share.without),
                "assumes": WORDS[share.phase].assumes,
            }
            for share in parts.shares
        ],
    }


def _difference(difference: PartsDifference) -> dict[str, object]:
    a, b = difference.a, difference.b
    return {
        "metric": difference.metric.key,
        "q": a.q,
        "a_ms": a.value_ms,
        "b_ms": b.value_ms,
        "difference_ms": _estimate(difference.percentile),
        "mean_ms": difference.mean_ms if a.around and b.around else None,
        "same_sources": difference.same_sources,
        "phases": [
            {
                "phase": phase.phase.name.lower(),
                "a_ms": None if phase.a is None else phase.a.value,
                "b_ms": None if phase.b is None else phase.b.value,
                "difference_ms": None if phase.difference is None else _estimate(phase.difference),
            }
            for phase in difference.phases
        ],
    }


def _estimate(estimate: Estimate) -> dict[str, object]:
    return {"value": estimate.value, "interval": estimate.interval, "reason": reason_text(estimate.reason)}
