"""``report.html``: a run as one self-contained page that opens without a network."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reports.gates.gate import Status
from reports.gates.words import percentage
from reports.glossary import terms
from reports.metrics.catalogue import E2E, GOODPUT, THROUGHPUTS, TTFT, WINDOW
from reports.metrics.goodput import Goodput
from reports.metrics.metric import FROM_SCHEDULE, Anchored, Metric
from reports.metrics.phase_shares import FEWEST_AROUND
from reports.page.page import Block, Card, Note, Page, Remark, Section, Tone, write_page
from reports.render.picture import Picture
from reports.render.plain_text import printable
from reports.render.tables import Table, cell_text
from reports.run.class_table import class_table
from reports.run.headline import describe_calibration, verdict
from reports.run.pictures.client import client_pictures
from reports.run.pictures.latency import latency_pictures
from reports.run.pictures.server import server_pictures
from reports.run.pictures.traffic import arrival_pictures, token_pictures
from reports.run.rows import percentile_cell
from reports.run.simulated import simulation_table
from reports.run.tables import (
    arrival_law_table,
    failure_tables,
    gate_table,
    interval_table,
    latency_table,
    length_law_table,
    length_table,
    manifest_table,
    rate_table,
    slip_tables,
    slowest_table,
    stage_table,
    tail_table,
    upstream_table,
    window_table,
)
from reports.run.target_table import target_table
from reports.run.watched_tables import client_tables, server_tables, times_tables, worker_tables
from reports.run_report import RunReport
from reports.statistics.estimate import Estimate
from reports.statistics.percentiles import percentile_key
from reports.why.answer import METRICS, Detail, explain
from reports.why.documents import (
    class_parts_table,
    parts_table,
    request_parts_table,
    stretch_parts_table,
    without_table,
)
from reports.why.words import answer, remarks, remedy, without_largest

_EXPLAINED = 0.99
_STRETCHES, _SLOWEST = 5, 5


@dataclass(frozen=True)
class RunPictures:
    """The pictures of a run, by the section of the page that they belong to."""

    latency: tuple[Picture, ...]
    arrivals: tuple[Picture, ...]
    tokens: tuple[Picture, ...]
    server: tuple[Picture, ...]
    client: tuple[Picture, ...]

    @property
    def all(self) -> tuple[Picture, ...]:
        return (*self.latency, *self.arrivals, *self.tokens, *self.server, *self.client)


def run_pictures(report: RunReport) -> RunPictures:
    """The pictures for which the run has data. Raises RunFolderError when a table of the folder is damaged."""
    return RunPictures(
        tuple(latency_pictures(report)),
        tuple(arrival_pictures(report)),
        tuple(token_pictures(report)),
        tuple(server_pictures(report.telemetry)),
        tuple(client_pictures(report.folder.read_client())),
    )


def write_html(report: RunReport, pictures: RunPictures, path: Path) -> None:
    """Write the page. Raises OSError."""
    write_page(run_page(report, pictures), path)


def run_page(report: RunReport, pictures: RunPictures) -> Page:
    """The contents of a run's page, in their order."""
    return Page(
        title=printable(str(report.target)),
        lead=printable(f"{report.manifest.workload.description or 'unknown workload'}; {report.manifest.arrivals or ''}"),
        facts=_facts(report),
        verdict=verdict(report),
        tone=_tone(report),
        aside=_counted(report),
        cards=_cards(report),
        sections=tuple(section for section in _sections(report, pictures) if section.blocks),
        footer=_footer(report),
        terms=terms(),
    )


def _tone(report: RunReport) -> Tone:
    """The colour of the verdict: a valid run that failed a gate is no good news, and a simulated one no measurement."""
    if not report.valid:
        return Tone.BAD
    failed = any(gate.status is Status.FAILED for gate in report.gates)
    return Tone.CAUTION if failed or report.manifest.simulation is not None else Tone.GOOD


def _sections(report: RunReport, pictures: RunPictures) -> list[Section]:
    remarks = tuple(Remark(f.severity.value, (f.sentence,), f.advice, f.code) for f in report.findings)
    tables = (latency_table(report), simulation_table(report), interval_table(report), tail_table(report))
    latency = [_with_rows(table) for table in tables]
    classes = _joined([_with_rows(class_table(report))])
    load_tables = (rate_table(report), stage_table(report), arrival_law_table(report), window_table(report))
    load = [_with_rows(table) for table in load_tables]
    lengths = [_with_rows(table) for table in (length_law_table(report), length_table(report))]
    return [
        Section("gates", "Gates", _joined([_with_rows(gate_table(report))])),
        Section("findings", "Findings", (remarks,) if remarks else (Note("No findings."),)),
        Section("latency", "Latency", (*_joined(latency[:2]), *pictures.latency, *_joined(latency[2:])), pairs=True),
        Section("why", "Why", _why(report)),
        Section("classes", "Classes", classes),
        Section("targets", "Targets", _joined([_with_rows(target_table(report))])),
        Section("arrivals", "Arrivals", (*_joined(load), *pictures.arrivals, *slip_tables(report)), pairs=True),
        Section("tokens", "Tokens", (*_joined(lengths), *pictures.tokens), pairs=True),
        Section("server", "Server", (*server_tables(report), *pictures.server), pairs=True),
        Section(
            "client",
            "Client",
            (
                Note(describe_calibration(report)),
                *client_tables(report),
                *worker_tables(report),
                *times_tables(report),
                *pictures.client,
            ),
            pairs=True,
        ),
        Section("slowest", "Slowest requests", _joined([_with_rows(slowest_table(report))])),
        Section("failures", "Failures", tuple(failure_tables(report))),
        Section("manifest", "Manifest", (upstream_table(report), manifest_table(report))),
    ]


def _why(report: RunReport) -> tuple[Block, ...]:
    """Where the time of p99 went, as far as the run has sources of it; the remarks say which sources are missing."""
    stretches = _STRETCHES if report.requests.outcome.size >= _STRETCHES * FEWEST_AROUND else 0
    run = explain([report], METRICS, _EXPLAINED, Detail(stretches, _SLOWEST)).runs[0]
    blocks: list[Block] = []
    for latency in run.latencies:
        parts = latency.percentiles[-1]
        answered = f"{answer(latency.metric, parts)} {without_largest(latency.metric, parts)}".strip()
        blocks += [
            Note(answered),
            parts_table(latency),
            without_table(latency),
            class_parts_table(run.classes_of(latency.metric)),
            stretch_parts_table(run.stretches_of(latency.metric)),
            request_parts_table(run.slowest[latency.metric.key], latency.metric.label),
            Note(" ".join((*remarks(report, parts), remedy(parts))).strip()),
        ]
    return tuple(block for block in blocks if not isinstance(block, Table) or block.rows)


def _with_rows(table: Table) -> Table | None:
    return table if table.rows else None


def _joined(tables: list[Table | None]) -> tuple[Block, ...]:
    return tuple(table for table in tables if table is not None)


def _facts(report: RunReport) -> tuple[tuple[str, str], ...]:
    """Size and identity of the run in a few lines."""
    manifest, metrics = report.manifest, report.metrics
    target, schedule = report.target, report.schedule
    window = metrics.window_s
    facts: list[tuple[str, Any]] = [
        ("Requests", f"{metrics.done:,} of {metrics.scheduled:,} succeeded"),
        ("Cancelled as planned", f"{metrics.withdrawn:,}" if metrics.withdrawn else None),
        ("Probes", None if report.probe is None else f"{report.probe.done:,} of {report.probe.scheduled:,} succeeded"),
        (WINDOW.label, None if window is None else f"{cell_text(window)} {WINDOW.unit}"),
        ("Mean tokens in, out", _means(metrics.mean_input_tokens, metrics.mean_output_tokens)),
        ("Target", "embedded pipeline" if target.embedded else target.address),
        ("Seed", schedule.seed),
        ("Schedule digest", schedule.digest[:12]),
        ("Started", _started(manifest.started_at)),
        ("bench", manifest.bench_version),
    ]
    return tuple((name, printable(str(value))) for name, value in facts if value not in (None, ""))


def _means(inputs: float | None, outputs: float | None) -> str:
    return f"{cell_text(inputs)}, {cell_text(outputs)}"


def _started(text: str | None) -> str | None:
    return None if text is None else text[:19].replace("T", " ") + " UTC"


def _counted(report: RunReport) -> str:
    """The numbers of findings by severity, most severe first, and of gates by status."""
    counts = Counter(finding.severity.value for finding in report.findings)
    findings = [f"{n} {severity}{'s' if n > 1 and severity != 'invalid' else ''}" for severity, n in counts.items()]
    statuses = Counter(gate.status.value for gate in report.gates)
    gates = [f"{n} gate{'s' if n > 1 else ''} {status}" for status, n in statuses.items()]
    return ", ".join([*findings, *gates])


def _cards(report: RunReport) -> tuple[Card, ...]:
    """Two latencies, two throughputs, and goodput where there are objectives."""
    metrics = report.metrics
    first = _latency_card(E2E, 0.50, metrics.e2e_ms) if metrics.ttft_ms is None else _latency_card(TTFT, 0.99, metrics.ttft_ms)
    goodput = () if metrics.goodput is None else (_goodput_card(metrics.goodput),)
    throughputs = (_rate_card(metric, metrics.rates[metric]) for metric in THROUGHPUTS)
    return (first, _latency_card(E2E, 0.99, metrics.e2e_ms), *throughputs, *goodput)


def _latency_card(metric: Metric, q: float, anchored: Anchored) -> Card:
    title, d = f"{percentile_key(q)} {metric.label}", anchored.scheduled
    if d is None:
        return Card(title, cell_text(None), "", "unknown")
    percentile = d.percentile(q)
    cell = percentile_cell(d, q)
    return Card(
        f"{title}, {FROM_SCHEDULE}",
        cell_text(cell),
        "" if isinstance(cell, str) else metric.unit,
        _interval(percentile),
    )


def _goodput_card(goodput: Goodput) -> Card:
    """The card of goodput names its objectives."""
    card = _rate_card(GOODPUT, goodput.rate)
    objectives = " and ".join(map(str, goodput.objectives))
    share = f"{percentage(goodput.attainment)} % of requests"
    return replace(card, title=f"{card.title}: {objectives}", interval=f"{share}; {card.interval}")


def _rate_card(metric: Metric, rate: Estimate) -> Card:
    if rate.value is None:
        return Card(metric.label, cell_text(None), "", "unknown")
    return Card(metric.label, cell_text(rate.value), metric.table_unit, _interval(rate))


def _interval(estimate: Estimate) -> str:
    has_limit = estimate.interval is not None or estimate.at_least is not None
    return f"{'95 %' if has_limit else 'no interval'}: {estimate.interval_text}"


def _footer(report: RunReport) -> str:
    return (
        "Drag in a picture to zoom, double click to go back; pictures over time zoom together. Arrow keys walk through a "
        "picture that has the focus. A click on a series hides it, on a column's head sorts. Definitions: "
        f"docs/reference/metrics.md of inflight-bench {printable(report.manifest.bench_version or '')}".rstrip()
        + "."
    )
