"""Every number of the reports with the functions that compute it, for readers of the code and docs/architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from reports.compare.comparison import compare
from reports.compare.difference import between_pairs, between_runs, between_schedules, compare_measures
from reports.compare.looks import weighted_holm
from reports.compare.measures import mean, percentile, share, throughput
from reports.compare.single_runs import quantiles_within_pairs, quantiles_within_runs, within_pairs, within_runs
from reports.findings.checks import find
from reports.gates.judge import judge, judge_together
from reports.gates.numbers import judge_number
from reports.gates.shares import judge_share
from reports.metrics.arrival_law import at_even_rate_ns, check_arrivals, index_of_dispersion
from reports.metrics.asked_arrivals import asked_arrivals
from reports.metrics.catalogue import (
    ARRIVAL_RATES,
    ATTAINMENT,
    DISPERSION,
    FAILED_SHARE,
    GOODPUT,
    INPUT_TOKENS,
    LATENCIES,
    OUTPUT_TOKENS,
    THROUGHPUTS,
    WINDOW,
)
from reports.metrics.censoring import latencies_by_request
from reports.metrics.client_calibration import client_calibration, peak_rates
from reports.metrics.client_health import client_health
from reports.metrics.configuration import configured_law, configured_load
from reports.metrics.engine_latencies import engine_latencies
from reports.metrics.estimates import over_runs
from reports.metrics.failures import failed_by_request, failed_share_of
from reports.metrics.goodput import goodput, severities
from reports.metrics.gpu_use import gpu_use
from reports.metrics.host_energy import host_energy
from reports.metrics.in_flight import mean_in_system
from reports.metrics.latency import client_slip_ms
from reports.metrics.length_laws import input_law, output_law
from reports.metrics.lengths import input_lengths, output_lengths
from reports.metrics.metric import Metric
from reports.metrics.model_statistics import model_work
from reports.metrics.mser import mser5
from reports.metrics.output_events import mean_rate, rate
from reports.metrics.phase_shares import latency_parts
from reports.metrics.phases import phases
from reports.metrics.prefix_cache import cached_tokens, prefix_cache
from reports.metrics.request_phases import phase_times
from reports.metrics.requests import from_columns
from reports.metrics.run_metrics import compute_metrics, failures_by_kind
from reports.metrics.server_load import server_load
from reports.metrics.server_loads import server_loads
from reports.metrics.server_series import Telemetry, telemetry_of
from reports.metrics.slip import slip_by_worker, slip_over_time
from reports.metrics.stages import stages
from reports.metrics.steady_state import find_steady
from reports.metrics.target_numbers import target_numbers
from reports.metrics.traffic_classes import traffic_classes
from reports.metrics.upstream import upstream_statistics
from reports.metrics.windows import compute_windows, whole_window
from reports.run.op_stats import check_perf
from reports.run.pictures.over_time import per_second, percentile_per_part
from reports.run.simulated import simulation_table
from reports.run.tables import failure_tables, slowest_table
from reports.statistics.arrays import mean_of_known
from reports.statistics.autocorrelation import Mean, mean_of
from reports.statistics.exceedances import exceedances, interval_of_share_above
from reports.statistics.percentiles import nearest_rank, percentile_limits, required_samples, summarise
from reports.statistics.quantile_curve import curve_of
from reports.sweep.held import gates_of, held_of
from reports.sweep.points import pareto_front
from reports.trend.history import estimates_of
from reports.why.answer import explain

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or a group of numbers that are computed together.

    ``key`` is its place in ``summary.json``, or in the document that is named; "" where it is in pictures and tables alone.
    ``functions`` compute it, in the order of the computation; the last one returns it.
    """

    name: str
    key: str
    functions: tuple[Function, ...]


OF_METRICS: Mapping[Metric, tuple[Function, ...]] = MappingProxyType(
    {
        **{metric: (metric.series_ms or latencies_by_request, summarise) for metric in LATENCIES},
        **{metric: (metric.events, rate) for metric in THROUGHPUTS if metric.events is not None},
        **dict.fromkeys(ARRIVAL_RATES, (mean_rate,)),
        GOODPUT: (goodput,),
        ATTAINMENT: (goodput,),
        FAILED_SHARE: (failed_by_request, share),
        WINDOW: (whole_window,),
        DISPERSION: (at_even_rate_ns, index_of_dispersion),
        INPUT_TOKENS: (mean_of_known,),
        OUTPUT_TOKENS: (mean_of_known,),
    }
)
"""The functions that compute each metric from the columns of ``requests.parquet``."""

_METRIC_PLACES: Mapping[Metric, str] = MappingProxyType(
    {FAILED_SHARE: "compare.json", DISPERSION: f"arrivals.{DISPERSION.key}", INPUT_TOKENS: "", OUTPUT_TOKENS: ""}
)

NUMBERS = (
    *(
        Number(metric.full_name, _METRIC_PLACES.get(metric, f"metrics.{metric.key}"), OF_METRICS[metric])
        for metric in OF_METRICS
    ),
    # Statistics that every metric has
    Number("Mean and its interval", "metrics.*.mean, mean_interval", (mean_of, Mean.interval)),
    Number("Percentiles", "metrics.*.p50 … p99_9", (nearest_rank,)),
    Number("Interval and lower limit of a percentile", "metrics.*.p99_interval, at_least", (percentile_limits,)),
    Number("Interval of a rate", "metrics.*.interval", (mean_of, Mean.interval, rate)),
    Number("Interval of a share", "metrics.attainment.interval", (severities, exceedances, interval_of_share_above)),
    Number("Attainment from the send", "metrics.attainment.from_send", (goodput,)),
    Number("Whether p99 is supported", "metrics.*.p99_supported", (required_samples,)),
    Number("Points of the percentile pictures", "", (curve_of,)),
    # A run
    Number("Prepared requests", "requests.prepared", (configured_load,)),
    Number("Scheduled, successful and failed requests", "requests", (compute_metrics,)),
    Number("Failures by kind", "requests.by_kind", (failures_by_kind,)),
    Number("Failures by message", "", (failure_tables,)),
    Number("Evidence of the findings", "findings", (find,)),
    Number("Share of failed requests, of a gate", "gates", (failed_share_of,)),
    Number("Requirements and what the evidence shows of them", "gates", (judge_share, judge_number, judge_together, judge)),
    Number("Gauges of the server", "server.active_requests … cpu_utilization", (Telemetry.level,)),
    Number("Rates and latencies of the whole window", "windows.whole", (whole_window,)),
    Number("Limits, rates and latencies of the steady window", "windows.steady", (mser5, find_steady, compute_windows)),
    Number("Configured arrival law", "arrivals.law", (configured_law,)),
    Number("Test of the sends against the arrival law", "arrivals.test", (check_arrivals,)),
    Number("Slip by worker", "slip_by_worker", (slip_by_worker,)),
    Number("Slip over time", "slip_over_time", (slip_over_time,)),
    Number("Slip without the wait at the ceiling", "findings", (client_slip_ms,)),
    Number("Sources of the output token counts", "output_tokens_sources", (from_columns,)),
    Number("Client health: loop lag, CPU, run queue, garbage collection", "client", (client_health,)),
    Number("Server load: requests, KV cache, tokens, engine times", "server", (telemetry_of, server_load)),
    Number("Triton's statistics of each model", "server.models", (model_work,)),
    Number("The engine's own latencies", "server.latencies", (engine_latencies,)),
    Number("Power, energy and clocks of the GPUs", "gpus", (gpu_use,)),
    Number("Energy and power of this machine's CPU and DRAM", "host_energy", (host_energy,)),
    Number("Requested and actual lengths", "lengths", (input_lengths, output_lengths)),
    Number("Lengths of the law, as sent and as counted", "length_laws", (input_law, output_law)),
    Number("Arrivals of the law, as drawn and as sent", "arrival_laws", (asked_arrivals,)),
    Number("Reuse of the prefix cache, and its limit", "prefix_cache", (cached_tokens, prefix_cache)),
    Number("Numbers by class, and of the probes", "classes", (traffic_classes,)),
    Number("Numbers by target, of several", "targets", (target_numbers,)),
    Number("Each server's own numbers, of several", "servers", (server_loads,)),
    Number("Stages of a rate that changes by steps", "stages", (stages,)),
    Number("Phases of a request, by server and client", "phases", (phases,)),
    Number("Calibration of the client", "calibration", (client_calibration,)),
    Number("Peak rates of the client", "calibration.requests_per_s, responses_per_s", (peak_rates,)),
    Number("Upstream's statistics", "--op_stats_csv", (upstream_statistics,)),
    Number("Check against reference numbers", "--check_perf_json", (check_perf,)),
    Number("Model's error of a simulated run", "simulation.ranges", (simulation_table,)),
    Number("Slowest requests", "", (slowest_table,)),
    Number("Requests and tokens per second over time", "", (per_second,)),
    Number("Percentiles over time", "", (percentile_per_part,)),
    Number("Requests in flight over time", "", (mean_in_system,)),
    # Several runs
    Number("Compared measures of a run", "compare.json: a, b", (percentile, mean, throughput, share)),
    Number("Difference of means and rates, one run each", "compare.json: change, interval", (within_pairs, within_runs)),
    Number(
        "Difference of percentiles, one run each",
        "compare.json: change, interval",
        (quantiles_within_pairs, quantiles_within_runs),
    ),
    Number(
        "Difference and interval, repeated runs",
        "compare.json: change, interval",
        (between_pairs, between_runs, between_schedules),
    ),
    Number("Adjusted p-value and verdict", "compare.json: p_adjusted, verdict", (weighted_holm, compare_measures)),
    Number("Quantile differences", "compare.json: quantiles", (compare_measures, compare)),
    Number("Mean over repeated runs of a sweep's point", "sweep.json: points", (over_runs,)),
    Number("Pareto front", "sweep.json: pareto", (pareto_front,)),
    Number("Load that the target held", "sweep.json: gates", (held_of, gates_of)),
    Number("Measures of a run in a trend", "trend.json: measures", (estimates_of,)),
    # Why
    Number("Phases of a percentile", "why.json: phases", (phase_times, latency_parts)),
    Number("Difference of two runs by phases", "why.json: differences", (latency_parts, explain)),
)
