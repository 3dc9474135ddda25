"""Every metric, once: its key in JSON, its label, unit and definition, and in which direction it is better.

Tables, pictures, JSON, CSV, objectives, comparison, sweep, trend and docs/reference/metrics.md read their names from here.
``reports/numbers.py`` names the functions that compute each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Better(Enum):
    """In which direction a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Metric:
    """``key`` is the metric's name in ``summary.json``, ``label`` its name in tables and pictures.

    ``definition`` is Markdown, for the documentation. ``better`` is None for a metric that describes the load or the answers
    rather than the target's performance. Where they are given, ``short`` stands for ``label`` in narrow columns, ``title`` in
    the documentation, and ``counted`` names in tables what is counted per second. ``streamed_only``: an unstreamed run does
    not have it, since its tokens arrive together.
    """

    key: str
    label: str
    unit: str
    definition: str
    better: Better | None = None
    short: str = ""
    title: str = ""
    counted: str = ""
    streamed_only: bool = False

    @property
    def name(self) -> str:
        """The key without "_ms", as ``--fail_if`` and the documents of comparisons spell it: "ttft" for "ttft_ms"."""
        return self.key.removesuffix("_ms")

    @property
    def full_name(self) -> str:
        """The name in the documentation."""
        return self.title or self.label

    @property
    def table_unit(self) -> str:
        """The unit in tables: "requests/s" where JSON has "1/s"."""
        return f"{self.counted}/s" if self.counted else self.unit

    @property
    def label_with_unit(self) -> str:
        return f"{self.label} ({self.table_unit})"

    @property
    def column(self) -> str:
        """The head of a narrow column: "TTFT ms"."""
        return f"{self.short or self.label} {self.unit}"


TTFT = Metric(
    "ttft_ms",
    "TTFT",
    "ms",
    "first response that carries a generated token − anchor; of streamed runs only",
    Better.LOWER,
    streamed_only=True,
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
)
E2E = Metric("e2e_ms", "E2E latency", "ms", "last response that carries a generated token − anchor", Better.LOWER, short="E2E")
TPOT = Metric(
    "tpot_ms",
    "TPOT",
    "ms",
    "(last token − first token) / (output tokens − 1), of requests with at least 2 tokens that came in at least 2 responses",
    Better.LOWER,
    streamed_only=True,
)
ITL = Metric(
    "itl_ms",
    "ITL",
    "ms",
    "ICL divided by the tokens of the later response, counted once for each of them, pooled",
    Better.LOWER,
    streamed_only=True,
)
ICL = Metric(
    "icl_ms",
    "Inter-chunk latency",
    "ms",
    "each gap between consecutive responses with tokens, pooled over requests",
    Better.LOWER,
    title="Inter-chunk latency (ICL)",
    streamed_only=True,
)
SCHEDULE_SLIP = Metric(
    "slip_ms",
    "Schedule slip",
    "ms",
    "sent − scheduled, of every request sent",
    Better.LOWER,
)
CEILING_WAIT = Metric(
    "ceiling_wait_ms",
    "of it, waited at the ceiling",
    "ms",
    "the part of the schedule slip in which a request waited because `--max_concurrency` requests were in flight; it is no "
    "delay of the client",
    title="Wait at the ceiling",
)
CAUSAL_DELAY = Metric(
    "causal_delay_ms",
    "Causal delay",
    "ms",
    "scheduled − the turn's own time, of each later turn of a session that has such a time: the answer before it ended so much "
    "later, so it is part of neither latency nor slip",
)
REQUEST_THROUGHPUT = Metric(
    "request_throughput", "Request throughput", "1/s", "successful requests / window", Better.HIGHER, counted="requests"
)
OUTPUT_TOKEN_THROUGHPUT = Metric(
    "output_token_throughput",
    "Output token throughput",
    "tokens/s",
    "Σ output tokens of successful requests, and of those cancelled as planned until then / window",
    Better.HIGHER,
)
OFFERED_RATE = Metric(
    "offered_rate",
    "Offered rate",
    "1/s",
    "(n − 1) / (last − first) of the scheduled sends; a closed loop offers none",
    counted="requests",
)
ACHIEVED_RATE = Metric(
    "achieved_rate", "Achieved rate", "1/s", "(n − 1) / (last − first) of the actual sends", counted="requests"
)
WINDOW = Metric("window_s", "Window", "s", "first scheduled arrival → end of the last success", title="Whole window")
GOODPUT = Metric(
    "goodput",
    "Goodput",
    "1/s",
    "requests that meet every objective / window ([Goodput](../explanation/measurement.md#goodput))",
    Better.HIGHER,
    counted="requests",
)
ATTAINMENT = Metric(
    "attainment",
    "Attainment",
    "share",
    "requests that meet every objective / all sent but those cut off before that was decided "
    "([Goodput](../explanation/measurement.md#goodput))",
    Better.HIGHER,
)
FAILED_SHARE = Metric(
    "failed_share",
    "Failed requests",
    "share",
    "requests that the target failed / those and the successes, with tokens or without; "
    "the same number in gates, comparisons and trends",
    Better.LOWER,
)
INPUT_TOKENS = Metric(
    "input_tokens", "input tokens", "tokens", "tokens of the prompt; the report shows their mean", title="Input tokens"
)
OUTPUT_TOKENS = Metric(
    "output_tokens",
    "output tokens",
    "tokens",
    "the server's count, else the length of `output_ids`, else the text tokenised again; an echoed prompt is never counted; "
    "the report shows their mean",
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
OBJECTIVE_METRICS = (TTFT, TPOT, E2E)
METRICS = (
    *LATENCIES, *THROUGHPUTS, *ARRIVAL_RATES, GOODPUT, ATTAINMENT, FAILED_SHARE, WINDOW, DISPERSION, INPUT_TOKENS, OUTPUT_TOKENS
)  # fmt: skip
