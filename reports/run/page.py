"""``report.html``: a run as one self-contained page that opens without a network."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from reports.metrics.output_events import Rate
from reports.metrics.run_metrics import Anchored
from reports.page.page import Block, Card, Note, Page, Remark, Section, Tone, write_page
from reports.render.plain_text import printable
from reports.render.tables import Table, cell_text
from reports.run.headline import describe, describe_calibration, verdict
from reports.run.pictures.of_run import RunPictures
from reports.run.tables import (
    failure_tables,
    interval_table,
    latency_table,
    manifest_table,
    rate_table,
    slip_tables,
    slowest_table,
    tail_table,
    upstream_table,
    window_table,
)
from reports.run.watched_tables import client_tables, server_tables
from reports.run_report import RunReport


def write_html(report: RunReport, pictures: RunPictures, path: Path) -> None:
    """Write the page. Raises OSError."""
    write_page(run_page(report, pictures), path)


def run_page(report: RunReport, pictures: RunPictures) -> Page:
    """What the page of a run says, and in which order."""
    target, workload = report.manifest.get("target", {}), report.manifest.get("workload", {})
    return Page(
        title=printable(f"{target.get('model', 'unknown model')} over {target.get('protocol', '?')}, {_streamed(target)}"),
        lead=printable(f"{workload.get('description', 'unknown workload')}; {report.manifest.get('arrivals', '')}"),
        facts=_facts(report),
        verdict=verdict(report),
        tone=Tone.GOOD if report.valid else Tone.BAD,
        aside=_counted(report),
        cards=_cards(report),
        sections=tuple(section for section in _sections(report, pictures) if section.blocks),
        footer=_footer(report),
    )


def _sections(report: RunReport, pictures: RunPictures) -> list[Section]:
    remarks = tuple(Remark(f.severity.value, describe(f), f.advice, f.code) for f in report.findings)
    latency = [_with_rows(table) for table in (latency_table(report), interval_table(report), tail_table(report))]
    load = [_with_rows(table) for table in (rate_table(report), window_table(report))]
    return [
        Section("findings", "Findings", (remarks,) if remarks else (Note("Nothing to find fault with."),)),
        Section("latency", "Latency", (*_joined(latency[:1]), *pictures.latency, *_joined(latency[1:])), pairs=True),
        Section("arrivals", "Arrivals", (*_joined(load), *pictures.arrivals, *slip_tables(report)), pairs=True),
        Section("tokens", "Tokens", pictures.tokens, pairs=True),
        Section("server", "Server", (*server_tables(report), *pictures.server), pairs=True),
        Section("client", "Client", (Note(describe_calibration(report)), *client_tables(report), *pictures.client), pairs=True),
        Section("slowest", "Slowest requests", _joined([_with_rows(slowest_table(report))])),
        Section("failures", "Failures", tuple(failure_tables(report))),
        Section("manifest", "Manifest", (upstream_table(report), manifest_table(report))),
    ]


def _with_rows(table: Table) -> Table | None:
    return table if table.rows else None


def _joined(tables: list[Table | None]) -> tuple[Block, ...]:
    return tuple(table for table in tables if table is not None)


def _streamed(target: dict[str, Any]) -> str:
    return "streamed" if target.get("streaming") else "unstreamed"


def _facts(report: RunReport) -> tuple[tuple[str, str], ...]:
    """What was run, for a reader who compares two pages."""
    manifest, metrics = report.manifest, report.metrics
    target, schedule = manifest.get("target", {}), manifest.get("schedule", {})
    window = metrics.window_s
    facts: list[tuple[str, Any]] = [
        ("Requests", f"{metrics.done:,} of {metrics.scheduled:,} succeeded"),
        ("Window", None if window is None else f"{cell_text(window)} s"),
        ("Mean tokens in, out", _means(metrics.mean_input_tokens, metrics.mean_output_tokens)),
        ("Target", "embedded pipeline" if target.get("embedded") else target.get("address")),
        ("Seed", schedule.get("seed")),
        ("Schedule digest", None if schedule.get("digest") is None else str(schedule["digest"])[:12]),
        ("Started", _started(manifest.get("started_at"))),
        ("bench", manifest.get("bench_version")),
    ]
    return tuple((name, printable(str(value))) for name, value in facts if value not in (None, ""))


def _means(inputs: float | None, outputs: float | None) -> str:
    return f"{cell_text(inputs)}, {cell_text(outputs)}"


def _started(text: Any) -> str | None:
    return None if text is None else str(text)[:19].replace("T", " ") + " UTC"


def _counted(report: RunReport) -> str:
    """How many findings there are, the gravest first."""
    counts = Counter(finding.severity.value for finding in report.findings)
    return ", ".join(f"{n} {severity}{'s' if n > 1 and severity != 'invalid' else ''}" for severity, n in counts.items())


def _cards(report: RunReport) -> tuple[Card, ...]:
    """Four numbers: what a user feels in the tail, and what the target gave; and goodput where there are objectives."""
    metrics, whole = report.metrics, report.metrics.windows.whole
    latencies = (
        [_latency_card("E2E latency", "p50", metrics.e2e_ms), _latency_card("E2E latency", "p99", metrics.e2e_ms)]
        if metrics.ttft_ms is None
        else [_latency_card("TTFT", "p99", metrics.ttft_ms), _latency_card("E2E latency", "p99", metrics.e2e_ms)]
    )
    goodput = () if metrics.goodput is None else (_rate_card("Goodput", "requests/s", metrics.goodput.rate),)
    return (
        *latencies,
        _rate_card("Request throughput", "requests/s", None if whole is None else whole.request_throughput),
        _rate_card("Output token throughput", "tokens/s", None if whole is None else whole.output_token_throughput),
        *goodput,
    )


def _latency_card(name: str, percentile: str, anchored: Anchored) -> Card:
    d = anchored.scheduled
    if d is None:
        return Card(f"{percentile} {name}", cell_text(None), "", "unknown")
    value = d.p50 if percentile == "p50" else d.p99
    shown, unit = ("failed", "") if value is None else (cell_text(value), "ms")
    return Card(f"{percentile} {name}, from schedule", shown, unit, _interval(d.interval_text(percentile)))


def _rate_card(name: str, unit: str, rate: Rate | None) -> Card:
    if rate is None:
        return Card(name, cell_text(None), "", "unknown")
    return Card(name, cell_text(rate.value), unit, _interval(rate.interval_text))


def _interval(text: str) -> str:
    return f"95 %: {text}" if text[:1].isdigit() or text.startswith("≥") else f"no interval: {text}"


def _footer(report: RunReport) -> str:
    return (
        "Drag in a picture to zoom, double click to go back; pictures over time zoom together. Arrow keys walk through a "
        "picture that has the focus. A click on a series hides it, on a column's head sorts. Definitions: "
        f"docs/reference/metrics.md of inflight-bench {printable(str(report.manifest.get('bench_version', '')))}".rstrip()
        + "."
    )
