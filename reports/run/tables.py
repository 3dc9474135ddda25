"""The tables of one run, from the rows that all formats share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from bench_records.manifest import Document
from bench_records.record import Outcome
from reports.metrics.catalogue import E2E, INPUT_TOKENS, OUTPUT_TOKENS, TTFT
from reports.metrics.latency import client_slip_by_request_ms
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import failures_by_kind
from reports.render.counts import counted
from reports.render.plain_text import printable
from reports.render.tables import Cell, Table
from reports.run.rows import (
    INTERVAL_COLUMNS,
    LATENCY_COLUMNS,
    SLIP_COLUMNS,
    WINDOW_COLUMNS,
    bounded,
    cut_off_note,
    guard_note,
    interval_rows,
    latency_rows,
    percentile_cell,
    rate_rows,
    slip_by_worker_rows,
    slip_over_time_rows,
    tail_rows,
    unsupported_p99,
    upstream_rows,
    window_rows,
)
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution, required_samples

_SLOWEST = 20
_STAGE_LATENCIES = ("TTFT p50 ms", "TTFT p99 ms", "E2E p50 ms", "E2E p99 ms")
_MOST_MESSAGES = 30
_MOST_CHARACTERS = 400


def latency_table(report: RunReport) -> Table:
    metrics = report.metrics
    guard, sent = guard_note(metrics), counted(metrics.scheduled - metrics.not_sent, "request")
    return Table(
        "latency",
        "Percentiles",
        ("ms", *LATENCY_COLUMNS),
        tuple((name, *_percentiles(d)) for name, d in latency_rows(metrics)),
        f"{metrics.failed:,} of {sent} sent failed; percentiles count those that "
        'the target failed as slower than every success. "From schedule" is the latency for a user arriving on time; "from '
        'send" leaves out the delay of the client. Percentiles are nearest-rank.'
        + cut_off_note(metrics)
        + ("" if guard is None else f" Some latencies have {guard}: {'; '.join(unsupported_p99(metrics))}."),
    )


def tail_table(report: RunReport) -> Table:
    """p99.9 of the latencies with enough values for it; no rows where there are none."""
    rows = tuple(tail_rows(report.metrics))
    note = f"Latencies with at least {required_samples(0.999):,} values."
    return Table("tails", "p99.9", ("ms", "p99.9", "95 % interval"), rows, note)


def interval_table(report: RunReport) -> Table:
    return Table(
        "intervals",
        "95 % intervals",
        ("ms", *INTERVAL_COLUMNS),
        tuple(interval_rows(report.metrics)),
        "The range of the number in other runs like this one, at 95 % confidence; requests that wait in the same queue are "
        'treated as correlated. "effective n 200" means that the requests hold as much information as 200 independent ones: '
        'too few for this percentile; "arrivals in few clusters" that the load changed too seldom for any interval; "queues in '
        'few spells" that requests waited for a place in the batch too seldom to show how long a tail can be; "requests cut '
        'off" that the client ended some before that time; "≥" is a lower limit where there is no upper one.',
    )


def rate_table(report: RunReport) -> Table:
    return Table("rates", "Rates", ("rate", "value", "95 % interval"), tuple(rate_rows(report.metrics)))


def window_table(report: RunReport) -> Table:
    """The windows; in place of a missing one, the reason in the first column."""
    rows: list[tuple[Cell, ...]] = []
    for name, cells in window_rows(report.metrics):
        missing = isinstance(cells, str)
        rows.append((f"{name}: none, {cells}" if missing else name, *([None] * len(WINDOW_COLUMNS) if missing else cells)))
    return Table(
        "windows",
        "Windows",
        ("window", *WINDOW_COLUMNS),
        tuple(rows),
        "Output is credited to a window when it arrives; latencies cover the requests scheduled in it. The steady window "
        "leaves out the ramp, by MSER-5, and the drain.",
    )


def stage_table(report: RunReport) -> Table:
    """A row for each stage of a rate that was configured to change by steps."""
    rows = tuple(
        (
            number,
            stage.begin_s,
            stage.end_s,
            stage.asked_rate,
            stage.scheduled / (stage.end_s - stage.begin_s),
            stage.sent_rate,
            stage.failed,
            *(
                None if latency is None else percentile_cell(latency, q)
                for latency in (stage.ttft_ms, stage.e2e_ms)
                for q in (0.5, 0.99)
            ),
            stage.scheduled,
        )
        for number, stage in enumerate(report.stages, start=1)
    )
    return Table(
        "stages",
        "Stages",
        ("stage", "start s", "end s", "requested/s", "scheduled/s", "sent/s", "failed", *_STAGE_LATENCIES, "n"),
        rows,
        f"Each row covers the requests scheduled in it; a p99 from fewer than {required_samples(0.99)} is unreliable.",
    )


def arrival_law_table(report: RunReport) -> Table:
    """Rate and variation of gaps that the law of arrivals requests beside those that were drawn and sent."""
    rows: list[tuple[Cell, ...]] = []
    for arrivals in report.asked_arrivals:
        name = f"all {arrivals.unit}" if arrivals.stage is None else f"stage {arrivals.stage}"
        rates = (
            arrivals.asked_rate,
            *(None if sample is None else sample.rate_per_s for sample in (arrivals.scheduled, arrivals.sent)),
        )
        variations = (
            arrivals.asked_gap_cv,
            *(None if sample is None else sample.gap_cv for sample in (arrivals.scheduled, arrivals.sent)),
        )
        rows.append((name, *rates, *variations, None if arrivals.sent is None else arrivals.sent.gaps))
    law = printable(report.asked_arrivals[0].law) if rows else ""
    return Table(
        "arrival_laws",
        "Arrivals, requested and sent",
        ("arrivals", "requested/s", "drawn/s", "sent/s", "requested cv", "drawn cv", "sent cv", "gaps"),
        tuple(rows),
        f"Requested: {law}. Drawn: the schedule's own arrivals, whose rate has an expected relative error of ±2·cv/√gaps. "
        "Sent: without a ramp and the wait at a ceiling. The cv of gaps is their standard deviation over their mean.",
    )


def slip_tables(report: RunReport) -> list[Table]:
    """The client's delay of the sends, by worker where there are several, and over time."""
    note = "The client's delay of the sends, without the wait at a ceiling on requests in flight."
    by_worker = tuple((name, *cells) for name, cells in slip_by_worker_rows(report.metrics))
    over_time = tuple((name, *cells) for name, cells in slip_over_time_rows(report.metrics))
    tables = [
        Table("slip_by_worker", "Slip by worker", ("worker", *SLIP_COLUMNS), by_worker, note),
        Table("slip_over_time", "Slip over time", ("due", *SLIP_COLUMNS), over_time, note),
    ]
    return [table for table in tables if table.rows]


def length_table(report: RunReport) -> Table:
    """Requested lengths of prompts and answers beside the actual ones."""
    named = ((INPUT_TOKENS.full_name, report.input_lengths), (OUTPUT_TOKENS.full_name, report.output_lengths))
    rows = tuple(
        (name, lengths.mean_requested, lengths.mean_actual, 100 * lengths.deviation_share, lengths.requests)
        for name, lengths in named
        if lengths is not None
    )
    template = 0 if report.input_lengths is None else report.input_lengths.template_tokens
    return Table(
        "lengths",
        "Lengths",
        ("Mean of a request", "requested", "actual", "deviation %", "n"),
        rows,
        "Deviation is the mean of |actual − requested| over the mean requested length. Prompts are those that the server "
        "counted."
        + (f" The {template} tokens that the server adds to each prompt (its chat template) are left out." if template else ""),
    )


def length_law_table(report: RunReport) -> Table:
    """Lengths that the workload's law requests beside those that were sent, and the actual ones."""
    rows: list[tuple[Cell, ...]] = []
    for metric, length in ((INPUT_TOKENS, report.input_law), (OUTPUT_TOKENS, report.output_law)):
        if length.sent is None and length.law is None:
            continue
        means = (length.asked_mean, *(None if spread is None else spread.mean for spread in (length.sent, length.actual)))
        stdevs = (length.asked_stdev, *(None if spread is None else spread.stdev for spread in (length.sent, length.actual)))
        sent = None if length.sent is None else length.sent.requests
        rows.append((metric.full_name, None if length.law is None else printable(length.law), *means, *stdevs, sent))
    dropped = report.manifest.workload.dropped_too_long or 0
    template = 0 if report.input_lengths is None else report.input_lengths.template_tokens
    return Table(
        "length_laws",
        "Lengths, requested and sent",
        (
            "tokens",
            "law",
            "requested mean",
            "sent mean",
            "actual mean",
            "requested stdev",
            "sent stdev",
            "actual stdev",
            "n sent",
        ),
        tuple(rows),
        "Requested: the law's, after rounding and bounds. Sent: those of the requests that were sent. Actual: those of the "
        f"successes, as they were counted, a prompt with the {f'{template:,} ' if template else ''}tokens of a chat template. "
        "By chance the sent mean has an expected error of ±2·stdev/√n."
        + (f" {counted(dropped, 'prompt was', 'prompts were')} drawn by the law, but too long to be sent." if dropped else ""),
    )


def upstream_table(report: RunReport) -> Table:
    return Table(
        "upstream",
        "As upstream's benchmark_core_model.py prints it",
        ("Stat", "Value"),
        tuple(upstream_rows(report.metrics.upstream)),
        "By upstream's definitions: latency counts from the send to the end of the response.",
    )


def gate_table(report: RunReport) -> Table:
    """The requirements of the run, of --slo and --fail_if, and whether the evidence shows that they hold."""
    rows = tuple((str(gate.requirement), gate.status.value, gate.why) for gate in report.gates)
    return Table(
        "gates",
        "Gates",
        ("requirement", "status", "evidence"),
        rows,
        "Percentiles, attainment and failures are judged by the share of requests beyond the limit, other numbers by their "
        "95 % interval; undecided unless the evidence is on one side of the limit.",
    )


def slowest_table(report: RunReport) -> Table:
    """The successful requests with the longest E2E latency from the schedule."""
    requests = report.requests
    e2e_ms = (requests.last_token_ns - requests.scheduled_ns) / 1e6
    known = np.flatnonzero(requests.done & ~np.isnan(e2e_ms))
    slowest = known[np.argsort(-e2e_ms[known], kind="stable")][:_SLOWEST]
    slip_ms = client_slip_by_request_ms(requests)
    ttft_ms = (requests.first_token_ns - requests.scheduled_ns) / 1e6
    rows = tuple(
        (
            int(requests.index[k]),
            float(requests.scheduled_ns[k]) / 1e9,
            _known(slip_ms, k),
            _known(ttft_ms, k) if report.metrics.streamed else None,
            float(e2e_ms[k]),
            _count(requests.input_tokens, k),
            _count(requests.output_tokens, k),
        )
        for k in slowest
    )
    columns = ("request", "scheduled s", "slip ms", TTFT.column, E2E.column, INPUT_TOKENS.label, OUTPUT_TOKENS.label)
    return Table(
        "slowest",
        "Slowest requests",
        columns,
        rows,
        f"The {counted(len(rows), 'success', 'successes')} with the longest E2E latency; latencies count from the schedule. A "
        "request's number is its index in requests.parquet.",
    )


def failure_tables(report: RunReport) -> list[Table]:
    """Failures of the load by kind, and their messages, those of probes among them."""
    if not failures_by_kind(report.all_requests):
        return []
    kinds = failures_by_kind(report.requests)
    tables = [Table("failures", "Failures by kind", ("kind", "requests"), tuple(kinds.items()))] if kinds else []
    messages = _messages(report.all_requests)
    if messages:
        shown = f" The {_MOST_MESSAGES} most frequent of {len(messages):,}." if len(messages) > _MOST_MESSAGES else ""
        shown += " Messages of probes are among them." if report.probe else ""
        tables.append(
            Table(
                "messages",
                "Messages of failed requests",
                ("message", "kind", "requests", "first request"),
                tuple((_cut(message), kind, count, first) for (message, kind), (count, first) in messages[:_MOST_MESSAGES]),
                f"Messages as received, shortened to {_MOST_CHARACTERS} characters.{shown}",
            )
        )
    return tables


def manifest_table(report: RunReport) -> Table:
    rows = tuple(
        (printable(key), value if isinstance(value, int | float) else printable(value))
        for key, value in flatten(_without_configurations(report.document))
    )
    note = "run.json: everything needed to repeat the run. It has the configuration of each model, too."
    return Table("manifest", "Manifest", ("key", "value"), rows, note, long=True)


def _without_configurations(document: Document) -> Document:
    """The manifest with the names of the server's models in place of their configurations, which are hundreds of rows."""
    deployment = document.get("deployment")
    models = deployment.get("models") if isinstance(deployment, dict) else None
    if not isinstance(deployment, dict) or not isinstance(models, dict):
        return document
    return {**document, "deployment": {**deployment, "models": list(models)}}


def flatten(value: Any, prefix: str = "") -> list[tuple[str, str | int | float]]:
    """A nested manifest as (dotted key, text or number) rows."""
    if isinstance(value, dict):
        return [row for key, child in value.items() for row in flatten(child, f"{prefix}.{key}" if prefix else str(key))]
    if isinstance(value, list) and any(isinstance(child, dict | list) for child in value):
        return [row for number, child in enumerate(value) for row in flatten(child, f"{prefix}[{number}]")]
    if isinstance(value, list):
        return [(prefix, ", ".join(map(str, value)))]
    return [(prefix, "–" if value is None else str(value))]


def _percentiles(d: Distribution | None) -> tuple[Cell, ...]:
    if d is None:
        return (None,) * len(LATENCY_COLUMNS)
    percentiles = (percentile_cell(d, q) for q in (0.5, 0.9, 0.95, 0.99))
    return bounded(d.mean.value, d.mean.lower_bound), *percentiles, bounded(d.max, d.max_lower_bound), d.n


def _known(values: FloatArray, k: int) -> float | None:
    return None if np.isnan(values[k]) else float(values[k])


def _count(values: FloatArray, k: int) -> int | None:
    return None if np.isnan(values[k]) else int(values[k])


def _messages(requests: Requests) -> list[tuple[tuple[str, str], tuple[int, int]]]:
    """((message, kind), (count, first request)), the most frequent first."""
    failed = np.flatnonzero(requests.outcome != Outcome.DONE.value).tolist()
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    for k in failed:
        message = requests.errors[k]
        if message is None:
            continue
        key = (message, str(requests.outcome[k]))
        counts[key] += 1
        first.setdefault(key, int(requests.index[k]))
    return [(key, (count, first[key])) for key, count in counts.most_common()]


def _cut(message: str) -> str:
    text = printable(message)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
