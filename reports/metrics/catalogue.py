"""Every metric, once: its names, unit and definition, in which direction it is better, and how it is computed.

Tables, pictures, JSON, CSV, DataFrames, objectives, criteria, comparison, sweep, trend and docs/reference/metrics.md follow
from it. A new latency is the time of each request at which it ends, in ``requests.py``, and an entry here; one that has no such
time, and a new throughput, are a function in ``latency.py`` or ``output_events.py``, and an entry.
"""

from __future__ import annotations

from reports.metrics.failures import failed_by_request
from reports.metrics.latency import (
    causal_delays_ms,
    ceiling_waits_ms,
    counted_gap_share,
    inter_chunk_latencies_ms,
    inter_token_latencies_ms,
    schedule_slip_by_request_ms,
    schedule_slip_ms,
    time_per_output_token_as_objective,
    time_per_output_token_by_request_ms,
    time_per_output_token_ms,
)
from reports.metrics.metric import Better, MeasuredRun, Metric
from reports.metrics.output_events import completions, output_tokens
from reports.statistics.percentiles import Distribution, summarise

ITL_COVERAGE = 0.99  # share of the inter-chunk gaps that ITL must cover


def _inter_token_latency(run: MeasuredRun) -> Distribution | None:
    """ITL; with one token a response it is ICL. None where the counts of tokens cover less than ``ITL_COVERAGE`` of the gaps.

    Counts are known where no chunks were joined, and chunks are joined in slow answers: the ITL of the others is too low.
    """
    counts = run.requests.token_counts
    if counts.size and (counts == 1.0).all():
        return run.inter_chunk_ms
    if (counted_gap_share(run.requests) or 0.0) < ITL_COVERAGE:
        return None
    return run.summary(inter_token_latencies_ms(run.requests))


TTFT = Metric(
    "ttft_ms",
    "TTFT",
    "ms",
    "first response that carries a generated token − anchor; of streamed runs only",
    Better.LOWER,
    streamed_only=True,
    ends_ns=lambda requests: requests.first_token_ns,
    compared=(0.50, 0.99),
    in_criteria=True,
    is_objective=True,
)
TTFO = Metric(
    "ttfo_ms",
    "TTFO",
    "ms",
    "first response that carries text of the answer rather than of its reasoning − anchor; of streamed runs in which answers "
    "have reasoning, and without the answers that have nothing else",
    Better.LOWER,
    title="Time to first output token (TTFO)",
    streamed_only=True,
    ends_ns=lambda requests: requests.first_output_token_ns,
    exists=lambda run: bool(run.requests.has_reasoning.any()),
    of_some_runs=True,
    in_criteria=True,
    column_text="TTFO from `scheduled_ns`; where the answer has no reasoning, TTFT",
    column_null="the answer has reasoning only",
    has_sent_column=False,
)
E2E = Metric(
    "e2e_ms",
    "E2E latency",
    "ms",
    "last response that carries a generated token − anchor",
    Better.LOWER,
    short="E2E",
    ends_ns=lambda requests: requests.last_token_ns,
    compared=(0.50, 0.99),
    in_criteria=True,
    is_objective=True,
)
TPOT = Metric(
    "tpot_ms",
    "TPOT",
    "ms",
    "(last token − first token) / (output tokens − 1), without reasoning that the server counts and does not send, of requests "
    "with at least 2 tokens that came in at least 2 responses",
    Better.LOWER,
    streamed_only=True,
    series_ms=time_per_output_token_ms,
    each_ms=time_per_output_token_by_request_ms,
    compared=(None,),
    in_criteria=True,
    is_objective=True,
    judged_ms=time_per_output_token_as_objective,
    column_text="TPOT",
    column_null="the request failed; fewer than 2 tokens, or fewer than 2 responses with tokens",
)
ITL = Metric(
    "itl_ms",
    "ITL",
    "ms",
    "ICL divided by the tokens of the later response, counted once for each of them, pooled",
    Better.LOWER,
    streamed_only=True,
    series_ms=inter_token_latencies_ms,
    of_run=_inter_token_latency,
    in_criteria=True,
)
ICL = Metric(
    "icl_ms",
    "Inter-chunk latency",
    "ms",
    "each gap between consecutive responses with tokens, pooled over requests",
    Better.LOWER,
    title="Inter-chunk latency (ICL)",
    streamed_only=True,
    series_ms=inter_chunk_latencies_ms,
    of_run=lambda run: run.inter_chunk_ms,
    in_criteria=True,
)
SCHEDULE_SLIP = Metric(
    "slip_ms",
    "Schedule slip",
    "ms",
    "sent − scheduled, of every request sent",
    Better.LOWER,
    series_ms=schedule_slip_ms,
    each_ms=schedule_slip_by_request_ms,
    of_run=lambda run: summarise(schedule_slip_ms(run.requests)),
    column_text="schedule slip: `sent_ns` − `scheduled_ns`",
    column_null="not sent",
)
CEILING_WAIT = Metric(
    "ceiling_wait_ms",
    "of it, waited at the ceiling",
    "ms",
    "the part of the schedule slip in which a request waited because `--max_concurrency` requests were in flight; it is no "
    "delay of the client",
    title="Wait at the ceiling",
    series_ms=ceiling_waits_ms,
    of_run=lambda run: summarise(ceiling_waits_ms(run.requests)),
    exists=lambda run: run.load.max_concurrency is not None,
    of_some_runs=True,
)
CAUSAL_DELAY = Metric(
    "causal_delay_ms",
    "Causal delay",
    "ms",
    "scheduled − the turn's own time, of each later turn of a session that has such a time: the answer before it ended so much "
    "later, so it is part of neither latency nor slip",
    series_ms=causal_delays_ms,
    of_run=lambda run: summarise(causal_delays_ms(run.requests)),
    of_some_runs=True,
)
REQUEST_THROUGHPUT = Metric(
    "request_throughput",
    "Request throughput",
    "1/s",
    "successful requests / window",
    Better.HIGHER,
    counted="requests",
    events=completions,
    compared=(None,),
    in_criteria=True,
)
OUTPUT_TOKEN_THROUGHPUT = Metric(
    "output_token_throughput",
    "Output token throughput",
    "tokens/s",
    "Σ output tokens of successful requests, and of those cancelled as planned until then / window",
    Better.HIGHER,
    events=output_tokens,
    compared=(None,),
    in_criteria=True,
)
OFFERED_RATE = Metric(
    "offered_rate",
    "Offered rate",
    "1/s",
    "(n − 1) / (last − first) of the scheduled sends, without those after the end of a run that was stopped; a closed loop "
    "offers none",
    counted="requests",
    times_ns=lambda requests: requests.scheduled_ns[requests.offered],
    exists=lambda run: not run.load.waits_for_answers,
)
ACHIEVED_RATE = Metric(
    "achieved_rate",
    "Achieved rate",
    "1/s",
    "(n − 1) / (last − first) of the actual sends",
    counted="requests",
    times_ns=lambda requests: requests.sent_ns,
)
WINDOW = Metric("window_s", "Window", "s", "first scheduled arrival → end of the last success", title="Whole window")
GOODPUT = Metric(
    "goodput",
    "Goodput",
    "1/s",
    "requests that meet every objective / window ([Goodput](../explanation/measurement.md#goodput))",
    Better.HIGHER,
    counted="requests",
    in_criteria=True,
)
ATTAINMENT = Metric(
    "attainment",
    "Attainment",
    "share",
    "requests that meet every objective / all sent but those cut off before that was decided "
    "([Goodput](../explanation/measurement.md#goodput))",
    Better.HIGHER,
    in_criteria=True,
)
FAILED_SHARE = Metric(
    "failed_share",
    "Failed requests",
    "share",
    "requests that the target failed / those and the successes, with tokens or without; "
    "the same number in gates, comparisons and trends",
    Better.LOWER,
    happened=failed_by_request,
    compared=(None,),
    in_criteria=True,
)
INPUT_TOKENS = Metric(
    "input_tokens", "input tokens", "tokens", "tokens of the prompt; the report shows their mean", title="Input tokens"
)
OUTPUT_TOKENS = Metric(
    "output_tokens",
    "output tokens",
    "tokens",
    "the server's count, else the length of `output_ids`, else the number of chunks if the server's complete answers have one "
    "token in each, else the text tokenised again, which is inexact (`tokens_counted_from_text`); an echoed prompt is never "
    "counted; the report shows their mean",
    title="Output tokens",
)
DISPERSION = Metric(
    "sent_index_of_dispersion",
    "Index of dispersion of the sends",
    "–",
    "variance / mean of the number of sends in windows of 10 on average: 1 for a Poisson process, 0 for even gaps; a ramp is "
    "taken off",
    title="Index of dispersion",
)

LATENCIES = (TTFT, TTFO, E2E, TPOT, ITL, ICL, SCHEDULE_SLIP, CEILING_WAIT, CAUSAL_DELAY)
THROUGHPUTS = (REQUEST_THROUGHPUT, OUTPUT_TOKEN_THROUGHPUT)
ARRIVAL_RATES = (OFFERED_RATE, ACHIEVED_RATE)
METRICS = (
    *LATENCIES, *THROUGHPUTS, *ARRIVAL_RATES, GOODPUT, ATTAINMENT, FAILED_SHARE, WINDOW, DISPERSION, INPUT_TOKENS, OUTPUT_TOKENS
)  # fmt: skip
OBJECTIVE_METRICS = tuple(metric for metric in METRICS if metric.is_objective)
