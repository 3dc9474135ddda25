"""A sweep as JSON, schema 1 (docs/reference/json.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from reports.metrics.catalogue import OFFERED_RATE
from reports.statistics.estimate import Estimate
from reports.sweep.held import SweepGate, gates_of
from reports.sweep.points import Sweep, SweepPoint
from reports.sweep.together import searched_together

SCHEMA = 1


def document(sweep: Sweep) -> dict[str, object]:
    """The document; an unknown value is null."""
    return {
        "schema": SCHEMA,
        "measured": sweep.measured,
        "planned_runs": sweep.planned,
        "latency": sweep.latency,
        "capacity": _together(sweep),
        "gates": [_gate(gate) for gate in gates_of(sweep)],
        "points": [_point(point, number in sweep.front) for number, point in enumerate(sweep.points)],
    }


def _together(sweep: Sweep) -> dict[str, object] | None:
    """The load that all runs together show to hold."""
    search = searched_together(sweep)
    if search is None:
        return None
    return {
        "limits": [str(limit) for limit in search.required],
        "unit": search.unit.value,
        "confidence": search.goal.confidence,
        "certified": search.bracket.certified,
        "refused": search.bracket.refused,
        "estimate": search.bracket.estimate,
        "shape": search.bracket.shape.value,
    }


def _gate(gate: SweepGate) -> dict[str, object]:
    return {
        "requirement": str(gate.requirement),
        "status": gate.status.value.lower(),
        "held": gate.held,
        "failed": gate.failed,
        "why": gate.why,
    }


def _point(point: SweepPoint, on_front: bool) -> dict[str, object]:
    return {
        "name": point.name,
        "settings": dict(point.settings),
        "runs": len(point.runs),
        "folders": [run.folder for run in point.runs],
        "valid": point.valid,
        OFFERED_RATE.key: point.offered_rate,
        **{key: value for name, estimate in point.estimates.items() for key, value in _estimate(name, estimate).items()},
        "attainment": point.attainment,
        "held": point.held,
        "failed": point.failed,
        "findings": list(point.findings),
        "pareto": on_front,
    }


def _estimate(name: str, estimate: Estimate) -> dict[str, object]:
    return {name: estimate.value, f"{name}_interval": estimate.interval}
