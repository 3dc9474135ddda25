"""A trend as JSON, schema 1 (docs/reference/json.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from reports.compare.json_file import condition_document, difference_document
from reports.compare.measures import MEASURES
from reports.statistics.estimate import reason_text
from reports.trend.history import Trend, TrendRun

SCHEMA = 1
_UNITS = {measure.name: measure.unit for measure in MEASURES}


def document(trend: Trend) -> dict[str, object]:
    """The document; a value that is unknown or does not exist is null."""
    return {
        "schema": SCHEMA,
        "baseline": None
        if trend.baseline is None
        else {"name": trend.baseline, "runs": [str(path) for path in trend.baseline_runs]},
        "runs": [_run(run) for run in trend.runs],
        "left_out": [{"name": run.name, "why": run.why} for run in trend.left_out],
    }


def _run(run: TrendRun) -> dict[str, object]:
    return {
        "name": run.name,
        "path": str(run.folder),
        "started_at": run.started_at.isoformat(),
        "standing": run.standing.value,
        "verdict": run.verdict,
        "findings": list(run.findings),
        "measures": {
            name: {
                "unit": _UNITS[name],
                "value": estimate.value,
                "interval": estimate.interval,
                "reason": reason_text(estimate.reason),
            }
            for name, estimate in run.estimates.items()
        },
        "differences": [difference_document(d) for d in run.differences],
        "disagreements": [
            {"what": d.what, "weight": d.weight.value, "values": list(d.values), "advice": d.advice} for d in run.disagreements
        ],
        "conditions": [condition_document(result) for result in run.conditions],
    }
