"""Every number of a run's report, with its place in the report and in ``summary.json`` and the function that computes it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from tools.reference.markdown import plain, table


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the report, or a family of numbers that one function computes.

    ``label`` is the row of the report's table, or its beginning where the rest depends on the run; ``key`` the dotted path in
    ``summary.json``, "" where it is in the report alone; ``function`` is ``module:function``.
    """

    table: str
    label: str
    key: str
    function: str


_RUN = "reports.metrics.run_metrics"
_LATENCY = "reports.metrics.latency"
_EVENTS = "reports.metrics.output_events"
_PERCENTILES = "reports.statistics.percentiles"
_ARRIVALS = "reports.metrics.arrival_law"
_MODELS = "reports.metrics.model_statistics"
_SERVER = "reports.metrics.server_load"
_CLIENT = "reports.metrics.client_health"
_CALIBRATION = "reports.metrics.client_calibration"

NUMBERS = (
    Number("Summary", "Requests: succeeded, scheduled", "requests", f"{_RUN}:compute_metrics"),
    Number("Summary", "Requests: prepared", "requests.prepared", "reports.metrics.asked_load:load_of"),
    Number("Summary", "Requests: failed", "requests.failed", f"{_RUN}:_failed_by_kind"),
    Number("Summary", "Window", "metrics.window_s", "reports.metrics.windows:whole_window"),
    Number("Summary", "Mean tokens in, out", "", f"{_RUN}:compute_metrics"),
    Number("Percentiles", "TTFT", "metrics.ttft_ms", f"{_LATENCY}:latencies_ms"),
    Number("Percentiles", "E2E latency", "metrics.e2e_ms", f"{_LATENCY}:latencies_ms"),
    Number("Percentiles", "TPOT", "metrics.tpot_ms", f"{_LATENCY}:time_per_output_token_ms"),
    Number("Percentiles", "ITL", "metrics.itl_ms", f"{_LATENCY}:inter_token_latencies_ms"),
    Number("Percentiles", "Inter-chunk latency", "metrics.icl_ms", f"{_LATENCY}:inter_chunk_latencies_ms"),
    Number("Percentiles", "Schedule slip", "metrics.slip_ms", f"{_LATENCY}:schedule_slip_ms"),
    Number("Percentiles", "of it, waited at the ceiling", "metrics.ceiling_wait_ms", f"{_LATENCY}:ceiling_waits_ms"),
    Number("Percentiles", "mean, n, failed, max of each", "metrics.*.mean", f"{_PERCENTILES}:summarise"),
    Number("Percentiles", "p50, p90, p95, p99 of each", "metrics.*.p99", f"{_PERCENTILES}:nearest_rank"),
    Number("Percentiles", "whether n supports p99", "metrics.*.p99_supported", f"{_PERCENTILES}:required_samples"),
    Number("95 % intervals", "of means", "metrics.*.mean_interval", "reports.statistics.autocorrelation:Mean.interval"),
    Number("95 % intervals", "of percentiles", "metrics.*.p99_interval", f"{_PERCENTILES}:percentile_limits"),
    Number("p99.9", "p99.9, and its interval", "metrics.*.p99_9", f"{_PERCENTILES}:nearest_rank"),
    Number("Rates", "Offered rate", "metrics.offered_rate", f"{_RUN}:mean_rate"),
    Number("Rates", "Achieved rate", "metrics.achieved_rate", f"{_RUN}:mean_rate"),
    Number("Rates", "Request throughput", "metrics.request_throughput", f"{_EVENTS}:rate"),
    Number("Rates", "Output token throughput", "metrics.output_token_throughput", f"{_EVENTS}:rate"),
    Number("Rates", "Index of dispersion", "arrivals.sent_index_of_dispersion", f"{_ARRIVALS}:index_of_dispersion"),
    Number("Rates", "Goodput", "metrics.goodput", "reports.metrics.goodput:goodput"),
    Number("Rates", "Attainment", "metrics.attainment", "reports.metrics.goodput:goodput"),
    Number("Rates", "interval of the attainment", "metrics.attainment.interval", "reports.metrics.goodput:share_interval"),
    Number("Rates", "test of the arrivals", "arrivals.test", f"{_ARRIVALS}:check_arrivals"),
    Number("Rates", "source of the output tokens", "output_tokens_sources", "reports.metrics.requests:from_columns"),
    Number("Windows", "Whole run: start, end", "windows.whole", "reports.metrics.windows:whole_window"),
    Number("Windows", "Steady: start, end", "windows.steady", "reports.metrics.steady_state:find_steady"),
    Number("Windows", "requests/s", "windows.*.request_throughput", f"{_EVENTS}:completions"),
    Number("Windows", "tokens/s", "windows.*.output_token_throughput", f"{_EVENTS}:output_tokens"),
    Number("Windows", "p50, p99", "windows.*.ttft_ms", "reports.metrics.windows:compute_windows"),
    Number("Slip by worker", "sends, p50, p99, max", "slip_by_worker", "reports.metrics.slip:slip_by_worker"),
    Number("Slip over time", "sends, p50, p99, max", "slip_over_time", "reports.metrics.slip:slip_over_time"),
    Number("Server", "Active requests", "server.active_requests", "reports.metrics.server_series:Telemetry.level"),
    Number("Server", "Requests in the batch", "server.scheduled_requests", "reports.metrics.server_series:Telemetry.level"),
    Number("Server", "Requests waiting", "server.waiting_requests", "reports.metrics.server_series:Telemetry.level"),
    Number("Server", "KV cache used", "server.kv_cache_used_fraction", "reports.metrics.server_series:Telemetry.level"),
    Number("Server", "GPU busy", "server.gpu_utilization", "reports.metrics.server_series:Telemetry.level"),
    Number("Server", "CPU busy", "server.cpu_utilization", "reports.metrics.server_series:Telemetry.level"),
    Number("Server", "tokens, times, cache reuse", "server", f"{_SERVER}:server_load"),
    Number(
        "Triton's statistics",
        "each column",
        "server.models",
        f"{_MODELS}:model_work",
    ),
    Number("Where a request's time went", "server, client, between", "phases", "reports.metrics.phases:phases"),
    Number("Client", "Event loop woke late", "client.lag", f"{_CLIENT}:client_health"),
    Number("Client", "CPU of the busiest worker", "client.workers", f"{_CLIENT}:client_health"),
    Number("Client", "CPU of the whole client", "client", f"{_CLIENT}:ClientHealth.cpu_cores"),
    Number("Client", "Waited for a core", "client.workers", f"{_CLIENT}:ClientHealth.run_queue_wait_share"),
    Number("Client", "Longest garbage collection", "client.workers", f"{_CLIENT}:ClientHealth.gc_longest_ms"),
    Number("Client", "Machine: busy", "client.busy_cores", f"{_CLIENT}:client_health"),
    Number("Client", "Machine: steal", "client.steal_cores", f"{_CLIENT}:client_health"),
    Number("Client", "what the client adds", "calibration", f"{_CALIBRATION}:client_calibration"),
    Number("Client", "busiest seconds of the run", "calibration.requests_per_s.peak", f"{_CALIBRATION}:peak_rates"),
    Number("Slowest requests", "each column", "", "reports.run.tables:slowest_table"),
    Number("Failures", "requests by kind", "requests.by_kind", f"{_RUN}:_failed_by_kind"),
    Number("Failures", "requests by message", "", "reports.run.tables:failure_tables"),
    Number("Upstream's table", "Requests/Sec", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "OP tokens/sec", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "Avg. latency (ms)", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "P99 latency (ms)", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "P90 latency (ms)", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "Avg. IP tokens per request", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "Avg. OP tokens per request", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "Total latency (ms)", "", f"{_RUN}:_upstream_table"),
    Number("Upstream's table", "Total requests", "", f"{_RUN}:_upstream_table"),
    Number("Findings", "evidence of each finding", "findings", "reports.findings.checks:find"),
    Number("Manifest", "digest and seed", "schedule", "workloads.schedule:Schedule.digest"),
)


def numbers_markdown() -> str:
    """One table for each table of the report."""
    lines: list[str] = []
    for title, group in groupby(NUMBERS, lambda number: number.table):
        rows = ((plain(n.label), f"`{n.key}`" if n.key else "–", f"`{n.function}`") for n in group)
        lines += [f"**{plain(title)}**", *table(("number", "in `summary.json`", "function"), rows)]
    return "\n".join(lines)


_READ = (
    "harness/cli/report.py",
    "harness/cli/measurement/report_run.py",
    "reports/run_report.py",
    "reports/metrics/run_metrics.py",
)
_WRITE = ("reports/run/writing.py", "reports/run/page.py")

PATHS = {
    "p99 TTFT": (*_READ, "reports/metrics/latency.py", "reports/statistics/percentiles.py", *_WRITE),
    "output token throughput": (*_READ, "reports/metrics/windows.py", "reports/metrics/output_events.py", *_WRITE),
    "goodput": (*_READ, "reports/metrics/goodput.py", "reports/metrics/output_events.py", *_WRITE),
}
"""The files that ``bench report`` enters for a number, in their order; at most 8 each."""


def paths_markdown() -> str:
    """One column for each number of ``PATHS``."""
    rows = ((str(place), *(f"`{file}`" for file in files)) for place, *files in zip(range(1, 9), *PATHS.values(), strict=True))
    return "\n".join(table(("", *PATHS), rows))
