"""``summary.json``: the contract that other programs read. It grows by new keys, never by a changed meaning."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from reports.metrics.arrival_law import check_arrivals, law_of
from reports.metrics.asked_load import load_of
from reports.metrics.client_calibration import client_calibration, peak_rates
from reports.metrics.goodput import Goodput
from reports.metrics.output_events import Rate
from reports.metrics.run_metrics import Anchored
from reports.metrics.steady_state import RULE
from reports.metrics.windows import Window
from reports.render.plain_text import json_text
from reports.run_report import RunReport
from reports.statistics.autocorrelation import Interval
from reports.statistics.percentiles import Distribution

SCHEMA = 1


def summary(report: RunReport) -> dict[str, Any]:
    """The document; what is unknown or does not exist is null."""
    metrics = report.metrics
    whole = metrics.windows.whole
    return {
        "schema": SCHEMA,
        "validity": "valid" if report.valid else "invalid",
        "findings": [
            {"code": f.code, "severity": f.severity.value, "evidence": f.evidence, "advice": f.advice} for f in report.findings
        ],
        "requests": {
            "prepared": load_of(report.manifest).prepared or metrics.scheduled,
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
            "ceiling_wait_ms": _distribution(metrics.ceiling_wait_ms),
            "request_throughput": _value_of(None if whole is None else whole.request_throughput),
            "output_token_throughput": _value_of(None if whole is None else whole.output_token_throughput),
            "offered_rate": _value(metrics.offered_rate),
            "achieved_rate": _value(metrics.achieved_rate),
            "window_s": _value(metrics.window_s),
            **_goodput(metrics.goodput),
        },
        "windows": {
            "whole": _window(whole),
            "steady": _window(metrics.windows.steady),
            "steady_rule": RULE,
            "steady_reason": metrics.windows.not_steady,
        },
        "arrivals": _arrivals(report),
        "slip_by_worker": [{"worker": worker} | asdict(slip) for worker, slip in sorted(metrics.slip_by_worker.items())],
        "slip_over_time": [
            {"start_s": part.start_s, "end_s": part.end_s} | asdict(part.slip) for part in metrics.slip_over_time
        ],
        "output_tokens_sources": list(report.requests.output_tokens_sources),
        "client": None if report.client is None else asdict(report.client),
        "server": None if report.server is None else asdict(report.server),
        "phases": [asdict(phase) | {"unexplained_ms": phase.unexplained_ms} for phase in report.phases],
        "calibration": _calibration(report),
        "schedule": {key: report.manifest["schedule"][key] for key in ("digest", "seed")},
    }


def write_summary(report: RunReport, path: Path) -> None:
    path.write_text(json_text(summary(report)), encoding="utf-8")


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else {"value": rate.value, "interval": _pair(rate.interval), "interval_reason": rate.reason}


def _value_of(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else {"value": rate.value, "interval": _pair(rate.interval)}


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _window(window: Window | None) -> dict[str, Any] | None:
    if window is None:
        return None
    return {
        "start_s": window.start_s,
        "end_s": window.end_s,
        "request_throughput": _rate(window.request_throughput),
        "output_token_throughput": _rate(window.output_token_throughput),
        "ttft_ms": _distribution(window.ttft_ms),
        "e2e_ms": _distribution(window.e2e_ms),
    }


def _arrivals(report: RunReport) -> dict[str, Any]:
    """The law that was asked for, the test of the sends against it, and how bursty they were."""
    law = law_of(report.manifest)
    test = None if law is None else check_arrivals(report.requests, law)
    return {
        "scheduled_index_of_dispersion": report.metrics.scheduled_dispersion,
        "sent_index_of_dispersion": report.metrics.sent_dispersion,
        "law": None if law is None else {"name": law.name, "rate_per_s": law.rate_per_s, "shape": law.shape},
        "test": None
        if test is None
        else {"gaps": test.gaps, "statistic": test.statistic, "p_value": test.p_value, "rejected": test.rejected},
    }


def _goodput(found: Goodput | None) -> dict[str, Any]:
    if found is None:
        return {"goodput": None, "attainment": None}
    objectives = [
        {"objective": str(objective), "attainment": met / found.sent}
        for objective, met in zip(found.objectives, found.met, strict=True)
    ]
    return {
        "goodput": _value_of(found.rate),
        "attainment": {"value": found.attainment, "interval": _pair(found.attainment_interval), "objectives": objectives},
    }


def _calibration(report: RunReport) -> dict[str, Any] | None:
    """What the client adds, and how busy it was beside what was calibrated."""
    found = client_calibration(report.manifest)
    if found is None:
        return None
    peak = peak_rates(report.requests)
    return {
        "made_on": found.made_on,
        "client_adds_ttft_ms": {"mean": found.ttft.mean_ms, "stdev": found.ttft.stdev_ms},
        "client_adds_icl_ms": {"mean": found.icl.mean_ms, "stdev": found.icl.stdev_ms},
        "workers": found.workers,
        "requests_per_s": {"peak": peak.requests_per_s, "calibrated": found.requests_per_s},
        "responses_per_s": {"peak": peak.responses_per_s, "calibrated": found.responses_per_s},
    }


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
        "p99_9": d.p99_9,
        "max": d.max,
        "n": d.n,
        "failed": d.failed,
        "mean_interval": _pair(d.mean_interval),
        "p50_interval": _pair(d.p50_interval),
        "p99_interval": _pair(d.p99_interval),
        "p99_9_interval": _pair(d.p99_9_interval),
        "interval_reasons": dict(d.reasons),
        "at_least": dict(d.at_least),
        "p99_supported": d.supports(0.99),
    }
