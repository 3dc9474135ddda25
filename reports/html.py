"""``report.html``: one self-contained file that opens without a network."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from reports.charts import charts
from reports.metrics import Metrics
from reports.prose import describe, describe_run, verdict
from reports.rows import WINDOW_COLUMNS, interval_rows, latency_rows, rate_rows, upstream_rows, window_rows
from reports.run_report import RunReport
from reports.statistics import Distribution
from reports.watched_rows import watched_tables


def write_html(report: RunReport, path: Path) -> None:
    """Render the report. Whatever came from outside is escaped: only our own markup is markup."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = _number
    template = environment.from_string(files("reports").joinpath("report.html.j2").read_text(encoding="utf-8"))
    page = template.render(
        title=describe_run(report),
        verdict=verdict(report),
        valid=report.valid,
        headline=_headline(report.metrics),
        findings=[(finding.severity.value, describe(finding), finding.advice) for finding in report.findings],
        latencies=latency_rows(report.metrics),
        intervals=interval_rows(report.metrics),
        rates=rate_rows(report.metrics),
        windows=window_rows(report.metrics),
        window_columns=WINDOW_COLUMNS,
        watched=watched_tables(report),
        failures=report.metrics.failed_by_kind,
        failed=report.metrics.failed,
        scheduled=report.metrics.scheduled,
        upstream=upstream_rows(report.metrics.upstream),
        charts=charts(report),
        manifest=_flatten(report.manifest),
    )
    path.write_text(page, encoding="utf-8")


def _headline(metrics: Metrics) -> list[tuple[str, str, str]]:
    latency = metrics.ttft_ms or metrics.e2e_ms
    name = "TTFT" if metrics.ttft_ms is not None else "E2E latency"
    d = latency.scheduled
    return [
        (f"p50 {name}", _percentile(d, None if d is None else d.p50), "ms from the schedule"),
        (f"p99 {name}", _percentile(d, None if d is None else d.p99), "ms from the schedule"),
        ("Requests", _number(metrics.request_throughput), "per second"),
        ("Output tokens", _number(metrics.output_token_throughput), "per second"),
    ]


def _percentile(d: Distribution | None, value: float | None) -> str:
    return "failed" if d is not None and value is None else _number(value)


def _number(value: float | int | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A nested manifest as (dotted key, text) rows."""
    if isinstance(value, dict):
        return [row for key, child in value.items() for row in _flatten(child, f"{prefix}.{key}" if prefix else str(key))]
    if isinstance(value, list) and any(isinstance(child, dict | list) for child in value):
        return [row for number, child in enumerate(value) for row in _flatten(child, f"{prefix}[{number}]")]
    return [(prefix, ", ".join(map(str, value)) if isinstance(value, list) else "–" if value is None else str(value))]
