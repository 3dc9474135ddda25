"""A comparison as JSON, schema 1 (docs/reference/json.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from reports.compare.comparison import Arm, ArmComparison, Comparison
from reports.compare.conditions import ConditionResult
from reports.compare.difference import Difference
from reports.compare.tables import headline, notes
from reports.run_report import RunReport
from reports.statistics.estimate import reason_text

SCHEMA = 1


def document(comparison: Comparison) -> dict[str, object]:
    """The document; a value that is unknown or does not exist is null."""
    return {
        "schema": SCHEMA,
        "arms": [_arm(arm) for arm in comparison.arms],
        "comparisons": [_comparison(pair) for pair in comparison.comparisons],
    }


def _arm(arm: Arm) -> dict[str, object]:
    return {"name": arm.name, "runs": [_run(run) for run in arm.runs]}


def _run(run: RunReport) -> dict[str, object]:
    return {
        "path": str(run.folder.path),
        "validity": "valid" if run.valid else "invalid",
        "digest": run.schedule.digest,
    }


def _comparison(pair: ArmComparison) -> dict[str, object]:
    return {
        "a": pair.baseline.name,
        "b": pair.arm.name,
        "verdict": pair.verdict,
        "inconclusive": pair.inconclusive,
        "summary": headline(pair),
        "looks": _looks(pair),
        "notes": notes(pair),
        "recommendation": _recommendation(pair),
        "differences": [difference_document(d) for d in pair.differences],
        "quantiles": [{"q": p.q, "a_ms": p.a_ms, "b_ms": p.b_ms, "interval_ms": p.interval_ms} for p in pair.curve],
        "pairs": None
        if pair.pairs is None
        else {
            "n": pair.pairs.difference_ms.n,
            "median_difference_ms": pair.pairs.difference_ms.p50,
            "interval_ms": pair.pairs.difference_ms.percentile(0.50).interval,
            "share_slower": pair.pairs.share_slower,
        },
        "disagreements": [
            {
                "what": d.what,
                "weight": d.weight.value,
                "values": list(d.values),
                "sides": [list(side) for side in d.sides],
                "advice": d.advice,
            }
            for d in pair.disagreements
        ],
        "conditions": [condition_document(result) for result in pair.conditions],
    }


def _looks(pair: ArmComparison) -> dict[str, object] | None:
    if pair.looks is None:
        return None
    decides = pair.deciding
    return {
        "blocks": len(pair.arm.runs),
        "most_blocks": pair.looks.most,
        "measure": None if decides is None else decides.measure.name,
        "decided": decides is not None and decides.verdict.differs,
    }


def _recommendation(recommendation: ArmComparison) -> dict[str, object] | None:
    found = recommendation.recommendation
    if found is None:
        return None
    return {"title": found.title, "change": found.change, "repeats": found.repeats, "requests": found.requests}


def condition_document(result: ConditionResult) -> dict[str, object]:
    """The result of a condition."""
    status = result.status.value.lower()
    return {"condition": result.condition.text, "failed": result.failed, "status": status, "why": result.why}


def difference_document(d: Difference) -> dict[str, object]:
    """The difference in one measure."""
    return {
        "measure": d.measure.name,
        "title": d.measure.title,
        "unit": d.measure.unit,
        "relative": d.measure.relative,
        "higher_is_better": d.measure.higher_is_better,
        "a": d.a,
        "b": d.b,
        "difference": d.difference,
        "change": d.change,
        "interval": d.interval,
        "has_upper_limit": None if d.interval is None else d.has_upper_limit,
        "smallest_shown": d.smallest_shown,
        "p_value": d.p_value,
        "p_adjusted": d.p_adjusted,
        "evidence": None if d.evidence is None else d.evidence.value,
        "verdict": d.verdict.value,
        "reason": reason_text(d.reason),
    }
