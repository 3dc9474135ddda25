"""Coverage of the 95 % intervals of ``bench report`` over simulated runs of the processes of benchmarks/serving_processes.py.

The true value is that of three very long runs. Requirement: where more than a tenth of the runs have an interval, at least 90 %
of these intervals contain the true value; processes of infinite variance aside. For rates, the width of the interval over the
spread of the numbers (3.92 standard deviations over the runs) is at most 1.5 from 2,000 requests on.

Run: python -m benchmarks.interval_coverage [--runs 400] [--seed 11] [--drawn SEED] [--sizes 300 2000 20000] [--only NAME …]
                                            [--processes 2]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from tabulate import tabulate

from bench_records.record import Outcome
from benchmarks.serving_processes import PARTS, PROCESSES, Process, Run, drawn
from reports.metrics.catalogue import TTFT
from reports.metrics.censoring import latencies_by_request
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.failures import failed_share_of
from reports.metrics.full_batch import full_batch, without_rare_tails
from reports.metrics.goodput import Objective, goodput
from reports.metrics.requests import Requests
from reports.metrics.windows import whole_window
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution

MEASURES = (
    *("mean TTFT", "p50 TTFT", "p99 TTFT", "mean E2E", "p50 E2E", "p99 E2E", "attainment", "failed share"),
    *("requests/s", "tokens/s", "goodput"),
)
TRUE = 8  # the first measures have a known true value; of rates it is the mean of the runs
_MISSED, _FAILED = 0.05, 0.02  # shares of the requests with the longest TTFT, which miss an objective, and fail
LONG_RUN, LONG_RUNS = 1_500_000, 3
_FEWEST_GIVEN, _LEAST_COVERAGE, _WIDEST_RATE, _WIDTH_FROM = 0.10, 0.90, 1.5, 2_000


@dataclass(frozen=True)
class Statement:
    """A report's statement about one number: its value, and an interval, a lower limit (no ``high``), or neither."""

    value: float
    low: float = float("nan")
    high: float = float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="simulated runs of each process and size")
    parser.add_argument("--processes", type=int, default=2, help="that simulate beside each other")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--sizes", type=int, nargs="+", default=[300, 2_000, 20_000], help="requests of a run")
    parser.add_argument("--drawn", type=int, default=None, metavar="SEED", help="engines with parameters drawn from this seed")
    parser.add_argument("--only", nargs="+", default=None, metavar="NAME", help="processes whose names contain one of these")
    options = parser.parse_args()
    start_s, failed, cells = time.monotonic(), [], 0
    numbers = _numbers(options.drawn, options.only)
    jobs = [(number, size, options.seed, options.runs, options.drawn) for number in numbers for size in options.sizes]
    headers = (
        "process",
        "requests",
        "of",
        "with interval",
        "correct",
        "lower limit alone",
        "wrong lower limit",
        "width / spread",
    )
    with ProcessPoolExecutor(options.processes) as pool:
        truths = dict(zip(numbers, pool.map(true_values, product(numbers, [options.drawn])), strict=True))
        for (number, size, *_), statements in zip(
            jobs, pool.map(statements_of_runs, [(job, truths[job[0]]) for job in jobs]), strict=True
        ):
            process, rows = processes(options.drawn)[number], []
            for k, measure in enumerate(MEASURES):
                cell = coverage(truths[number][k] if k < TRUE else float("nan"), statements[:, k])
                cells += 1
                rows.append((process.name, f"{size:,}", measure, *cell.texts))
                if cell.fails(rate=k >= TRUE, size=size) and not process.infinite_variance:
                    failed.append(" ".join(map(str, rows[-1])))
            print(tabulate(rows, headers=headers, disable_numparse=True), flush=True)  # at once: all take up to an hour
    print(f"\n{time.monotonic() - start_s:.0f} s, {options.runs} runs a cell. Not as required: {len(failed)} of {cells} cells.")
    print("\n".join(failed))
    sys.exit(1 if failed else 0)


def processes(seed: int | None) -> tuple[Process, ...]:
    return PROCESSES if seed is None else drawn(seed)


def _numbers(seed: int | None, only: Sequence[str] | None) -> list[int]:
    return [k for k, each in enumerate(processes(seed)) if only is None or any(part in each.name for part in only)]


def true_values(job: tuple[int, int | None]) -> FloatArray:
    """The true values of the first measures, of very long runs; the TTFT above which requests miss an objective, and fail."""
    number, seed = job
    process, found = processes(seed)[number], []
    for k in range(LONG_RUNS):
        rng = np.random.default_rng([2**32, number, k])
        run = process.run(process.work(LONG_RUN, rng), rng)
        ttft, e2e = ((times.mean(), *np.quantile(times, [0.50, 0.99])) for times in (run.ttft_ms, run.e2e_ms))
        found.append((*ttft, *e2e, 1.0 - _MISSED, _FAILED, *np.quantile(run.ttft_ms, [1.0 - _MISSED, 1.0 - _FAILED])))
    means: FloatArray = np.array(found, dtype=np.float64).mean(axis=0)
    return means


def statements_of_runs(job: tuple[tuple[int, int, int, int, int | None], FloatArray]) -> FloatArray:
    """The statements of the reports of simulated runs: (process, requests, seed, runs, seed of drawn processes), and the
    process's ``true_values``.

    Shape [runs, measures, 3]: value, lower and upper limit.
    """
    (number, size, seed, runs, drawn_seed), truth = job
    process, found = processes(drawn_seed)[number], []
    for k in range(runs):
        rng = np.random.default_rng([seed, number, size, k])
        run = process.run(process.work(size, rng), rng)
        found.append([(s.value, s.low, s.high) for s in statements_of(run, *truth[-2:])])
    return np.array(found, dtype=np.float64)


def statements_of(run: Run, objective_ms: float, fails_above_ms: float) -> tuple[Statement, ...]:
    """The statements of a run's report, in the order of MEASURES."""
    requests = as_requests(run)
    clustered, batch = clustered_arrivals(requests), full_batch(requests)
    ttft, e2e = (
        without_rare_tails(latencies_by_request(requests, ends_ns, requests.scheduled_ns).summary(clustered), batch)
        for ends_ns in (requests.first_token_ns, requests.last_token_ns)
    )
    whole = whole_window(requests, ttft, None, clustered)
    good = goodput(requests, [Objective(TTFT, objective_ms)], clustered)
    outcome = np.where(run.ttft_ms > fails_above_ms, Outcome.SERVER_ERROR.value, Outcome.DONE.value)
    failures = failed_share_of(replace(requests, outcome=outcome), clustered)
    assert ttft is not None and e2e is not None and whole is not None and good is not None and failures is not None  # noqa: PT018
    rates = (*whole.throughputs.values(), good.rate)
    return (
        *_of_latency(ttft),
        *_of_latency(e2e),
        Statement(good.attainment, *(good.attainment_interval or ())),
        Statement(failures.value, *(failures.interval or ())),
        *(Statement(rate.value, *(rate.interval or ())) for rate in rates if rate.value is not None),
    )


def _of_latency(latency: Distribution) -> Iterator[Statement]:
    """Mean, p50 and p99."""
    assert latency.mean.value is not None
    yield Statement(latency.mean.value, *(latency.mean.interval or ()))
    for percentile in (latency.percentile(0.50), latency.percentile(0.99)):
        yield Statement(
            float(percentile.value or 0.0),
            *(percentile.interval or ((percentile.at_least,) if percentile.at_least is not None else ())),
        )


def as_requests(run: Run) -> Requests:
    """A run without slip: a first response with one token, and the rest of the answer in PARTS."""
    n = run.arrivals_s.size
    scheduled_ns = np.round(run.arrivals_s * 1e9)  # whole ns, as in records: differences of others have errors that grow
    last_ns = scheduled_ns + np.round(run.e2e_ms * 1e6)
    first_ns = np.minimum(scheduled_ns + np.round(run.ttft_ms * 1e6), last_ns - 1_000)
    progress = np.arange(1, PARTS + 1) / PARTS if run.progress is None else run.progress
    parts_ns = first_ns[:, None] + np.round(progress * (last_ns - first_ns)[:, None])
    lengths = np.maximum(run.output_tokens, 3).astype(np.float64)
    parts = np.diff(np.floor((lengths - 1.0)[:, None] * np.arange(PARTS + 1) / PARTS), axis=1)
    return Requests(
        index=np.arange(n),
        outcome=np.full(n, "done"),
        scheduled_ns=scheduled_ns,
        released_ns=scheduled_ns,
        sent_ns=scheduled_ns,
        done_ns=last_ns,
        input_tokens=run.input_tokens.astype(np.float64),
        requested_input_tokens=run.input_tokens.astype(np.float64),
        server_counted_input=np.zeros(n, dtype=np.bool_),
        output_tokens=lengths,
        requested_output_tokens=lengths,
        ignore_eos=np.zeros(n, dtype=np.bool_),
        class_of=np.full(n, -1, dtype=np.int64),
        class_names=(),
        session_of=np.full(n, -1, dtype=np.int64) if run.session is None else run.session,
        parent=np.full(n, np.nan),
        planned_ns=np.full(n, np.nan),
        prompt_echoed=np.zeros(n, dtype=np.bool_),
        token_times_ns=np.column_stack([first_ns, parts_ns]).ravel(),
        token_counts=np.column_stack([np.ones(n), parts]).ravel(),
        token_starts=np.arange(n + 1) * (1 + PARTS),
        text_tokens=np.full(n, np.nan),
        errors=(None,) * n,
        output_tokens_sources=("ids",),
        worker=np.zeros(n),
        has_reasoning=np.zeros(n, dtype=np.bool_),
        first_output_ns=np.full(n, np.nan),
        cached_input_tokens=np.full(n, np.nan),
        finish_reason=np.full(n, ""),
        end_marker_missing=np.zeros(n, dtype=np.bool_),
        server_arrival_ns=np.full(n, np.nan),
        server_queue_ns=np.full(n, np.nan),
        server_prefill_ns=np.full(n, np.nan),
        server_decode_ns=np.full(n, np.nan),
        connect_ns=np.full(n, np.nan),
        router_ns=np.full(n, np.nan),
        written_ns=np.full(n, np.nan),
        head_ns=np.full(n, np.nan),
        hidden_tokens=np.full(n, np.nan),
        server_beside_prefill_ns=np.full(n, np.nan),
        target=np.zeros(n),
        counted_from_text=np.zeros(n, dtype=np.bool_),
    )


@dataclass(frozen=True)
class Coverage:
    """Shares of the runs: with an interval (``given``), of those with a correct one (``correct``), with a lower limit alone,
    and with a wrong one; and the intervals' median width over the numbers' spread.
    """

    given: float
    correct: float
    lower_alone: float
    wrong_lower: float
    width: float

    @property
    def texts(self) -> tuple[str, ...]:
        return (
            f"{self.given:.0%}",
            f"{self.correct:.1%}" if self.given else "–",
            f"{self.lower_alone:.0%}",
            f"{self.wrong_lower:.1%}",
            f"{self.width:.2f}" if self.given else "–",
        )

    def fails(self, *, rate: bool, size: int) -> bool:
        if self.given <= _FEWEST_GIVEN:
            return False
        return self.correct < _LEAST_COVERAGE or (rate and size >= _WIDTH_FROM and self.width > _WIDEST_RATE)


def coverage(truth: float, statements: FloatArray) -> Coverage:
    """The coverage of ``statements``, shape [runs, 3]; an unknown truth is the mean of the numbers."""
    value, low, high = statements.T
    true = float(value.mean()) if np.isnan(truth) else truth
    given, lower = ~np.isnan(high), np.isnan(high) & ~np.isnan(low)
    correct = given & (low <= true) & (true <= high)
    return Coverage(
        given=float(given.mean()),
        correct=float(correct.sum() / max(1, given.sum())),
        lower_alone=float(lower.mean()),
        wrong_lower=float((lower & (low > true)).mean()),
        width=float(np.median((high - low)[given]) / (3.92 * value.std())) if given.any() else float("nan"),
    )


if __name__ == "__main__":
    main()
