"""A search for capacity as JSON, schema 1 (docs/reference/json.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from reports.capacity.answer import answer, cost, details
from reports.capacity.control import controlled
from reports.capacity.probe import Control, Probe, Violations
from reports.capacity.result import Capacity, ProbeRun, Tier
from reports.capacity.search import Curve
from reports.capacity.shares import share_interval
from reports.criteria import Requirement

SCHEMA = 1


def document(capacity: Capacity) -> dict[str, object]:
    """The document; an unknown value is null."""
    return {
        "schema": SCHEMA,
        "measured": capacity.measured,
        "answer": answer(capacity),
        "cost": cost(capacity),
        "unit": capacity.unit.value,
        "ended": None if capacity.ended is None else capacity.ended.name.lower(),
        "budget_s": capacity.budget_s,
        "requests": capacity.requests,
        "seconds": capacity.seconds,
        "spent_s": capacity.spent_s,
        "tiers": [_tier(capacity, tier) for tier in capacity.tiers],
        "probes": [_probe(capacity, run, probe) for run, probe in zip(capacity.probes, _counted(capacity), strict=True)],
    }


def _tier(capacity: Capacity, tier: Tier) -> dict[str, object]:
    goal, bracket = tier.goal, tier.bracket
    limits = [capacity.limits[position] for position in goal.limits]
    curves: tuple[Curve | None, ...] = bracket.curves or (None,) * len(limits)
    return {
        "name": tier.name,
        "limits": [_limit(*parts) for parts in zip(limits, goal.allowed, curves, strict=True)],
        "confidence": goal.confidence,
        "requested_ratio": goal.ratio,
        "certified": bracket.certified,
        "refused": bracket.refused,
        "estimate": bracket.estimate,
        "ratio": bracket.ratio,
        "binding": None if bracket.binding is None else str(limits[bracket.binding]),
        "shape": bracket.shape.value,
        "more_requests": bracket.more_requests,
        "users": tier.users,
        "goodput": tier.goodput,
        "output_token_throughput": tier.output_token_throughput,
        "details": list(details(capacity, tier)),
    }


def _limit(limit: Requirement, allowed: float, curve: Curve | None) -> dict[str, object]:
    return {
        "requirement": str(limit),
        "allowed": allowed,
        "shape": None if curve is None else curve.shape.value,
        "intercept": None if curve is None else curve.intercept,
        "slope": None if curve is None else curve.slope,
        "crossing": None if curve is None else curve.crossing,
        "crossing_interval": None if curve is None else _interval(curve),
        "clusters": None if curve is None else curve.clusters,
    }


def _interval(curve: Curve) -> list[float] | None:
    """The interval of the crossing; None where an end is unknown, and where a load fails, or holds, for another reason."""
    if curve.low is None or curve.high is None:
        return None
    inside = curve.crossing is None or curve.low <= curve.crossing <= curve.high
    return [curve.low, curve.high] if inside else None


def _counted(capacity: Capacity) -> list[Probe]:
    """The probes as they count: of those that decide, without what controls explain."""
    counted = iter(controlled([run.probe for run in capacity.probes if run.valid]))
    return [next(counted) if run.valid else run.probe for run in capacity.probes]


def _control(control: Control | None, counted: Violations) -> dict[str, object] | None:
    if control is None:
        return None
    return {
        "share": control.share,
        "expected": control.expected,
        "taken_off": counted.explained,
        "remaining": counted.remaining,
    }


def _probe(capacity: Capacity, run: ProbeRun, counted: Probe) -> dict[str, object]:
    """One probe as it was measured, and with what it was ``counted`` as."""
    probe, forecast = run.probe, capacity.forecasts.get(run.folder)
    return {
        "folder": run.folder,
        "load": probe.load,
        "verdict": run.verdict.value,
        "requests": probe.requests,
        "seconds": run.seconds,
        "overloaded": probe.overloaded,
        "queue_growth": None if probe.queue is None else probe.queue.growth,
        "queue_spread": None if probe.queue is None else probe.queue.spread,
        "valid": run.valid,
        "beyond": [
            {
                "requirement": str(limit),
                "requests": violations.n,
                "above": violations.above,
                "share": violations.share,
                "share_interval": share_interval(violations),
                "design_effect": violations.effect,
                "control": _control(control, as_counted),
            }
            for limit, violations, as_counted, control in zip(
                capacity.limits,
                probe.violations,
                counted.violations,
                probe.controls or (None,) * len(capacity.limits),
                strict=True,
            )
        ],
        "request_throughput": run.request_throughput,
        "output_token_throughput": run.output_token_throughput,
        "goodput": run.goodput,
        "e2e_mean_ms": run.e2e_mean_ms,
        "findings": list(run.findings),
        "forecast": None if forecast is None else {"ratios": list(forecast.ratios), "seconds": forecast.seconds},
        "command": run.command,
    }
