"""``summary.json``: the contract that other programs read. It grows by new keys, never by a changed meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reports.metrics import Anchored
from reports.run_report import RunReport
from reports.statistics import Distribution

SCHEMA = 1


def summary(report: RunReport) -> dict[str, Any]:
    """The document; what is unknown or does not exist is null."""
    metrics = report.metrics
    return {
        "schema": SCHEMA,
        "validity": "valid" if report.valid else "invalid",
        "findings": [
            {"code": f.code, "severity": f.severity.value, "evidence": f.evidence, "advice": f.advice} for f in report.findings
        ],
        "requests": {
            "scheduled": metrics.scheduled,
            "done": metrics.done,
            "failed": metrics.failed,
            "by_kind": metrics.failed_by_kind,
        },
        "metrics": {
            "ttft_ms": _anchored(metrics.ttft_ms),
            "e2e_ms": _anchored(metrics.e2e_ms),
            "tpot_ms": _distribution(metrics.tpot_ms),
            "itl_ms": _distribution(metrics.itl_ms),
            "icl_ms": _distribution(metrics.icl_ms),
            "slip_ms": _distribution(metrics.slip_ms),
            "request_throughput": _value(metrics.request_throughput),
            "output_token_throughput": _value(metrics.output_token_throughput),
            "offered_rate": _value(metrics.offered_rate),
            "achieved_rate": _value(metrics.achieved_rate),
            "window_s": _value(metrics.window_s),
        },
        "output_tokens_sources": list(report.requests.output_tokens_sources),
        "schedule": {key: report.manifest["schedule"][key] for key in ("digest", "seed")},
    }


def write_summary(report: RunReport, path: Path) -> None:
    path.write_text(json.dumps(summary(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _value(value: float | None) -> dict[str, Any] | None:
    return None if value is None else {"value": value, "interval": None}


def _anchored(anchored: Anchored | None) -> dict[str, Any] | None:
    if anchored is None:
        return None
    return {"scheduled": _distribution(anchored.scheduled), "sent": _distribution(anchored.sent)}


def _distribution(d: Distribution | None) -> dict[str, Any] | None:
    if d is None:
        return None
    return {
        "mean": d.mean,
        "p50": d.p50,
        "p90": d.p90,
        "p95": d.p95,
        "p99": d.p99,
        "max": d.max,
        "n": d.n,
        "failed": d.failed,
        "mean_interval": None,
        "p99_interval": None if d.p99_interval is None else list(d.p99_interval),
    }
