"""The rows of a report's tables, the same in every format."""

from __future__ import annotations

from reports.metrics.output_events import Rate
from reports.metrics.run_metrics import Metrics, UpstreamTable
from reports.metrics.slip import Slip
from reports.metrics.windows import Window
from reports.statistics.percentiles import Distribution, required_samples


def latency_rows(metrics: Metrics) -> list[tuple[str, Distribution | None]]:
    """Latencies in ms; the token latencies only of a streamed run."""
    rows: list[tuple[str, Distribution | None]] = []
    for name, anchored in (("TTFT", metrics.ttft_ms), ("E2E latency", metrics.e2e_ms)):
        if anchored is not None:
            rows += [(f"{name}, from schedule", anchored.scheduled), (f"{name}, from send", anchored.sent)]
    if metrics.ttft_ms is not None:
        rows += [("TPOT", metrics.tpot_ms), ("ITL", metrics.itl_ms), ("Inter-chunk latency", metrics.icl_ms)]
    rows.append(("Schedule slip", metrics.slip_ms))
    return rows if metrics.ceiling_wait_ms is None else [*rows, ("of it, waited at the ceiling", metrics.ceiling_wait_ms)]


def interval_rows(metrics: Metrics) -> list[tuple[str, str, str, str]]:
    """Name, and the 95 % intervals of mean, p50 and p99, in ms, or why there is none."""
    return [
        (name, d.interval_text("mean"), d.interval_text("p50"), d.interval_text("p99"))
        for name, d in latency_rows(metrics)
        if d is not None
    ]


def rate_rows(metrics: Metrics) -> list[tuple[str, float | None, str]]:
    """Rates of the whole run, with their 95 % intervals, and how bursty the requests came."""
    whole = metrics.windows.whole
    throughputs = (None, None) if whole is None else (whole.request_throughput, whole.output_token_throughput)
    return [
        ("Offered rate (requests/s)", metrics.offered_rate, ""),
        ("Achieved rate (requests/s)", metrics.achieved_rate, ""),
        ("Request throughput (requests/s)", metrics.request_throughput, _interval_text(throughputs[0])),
        ("Output token throughput (tokens/s)", metrics.output_token_throughput, _interval_text(throughputs[1])),
        ("Index of dispersion of the sends (1: Poisson)", metrics.sent_dispersion, ""),
        *_goodput_rows(metrics),
    ]


def _goodput_rows(metrics: Metrics) -> list[tuple[str, float | None, str]]:
    found = metrics.goodput
    if found is None:
        return []
    interval = found.attainment_interval
    percent = "" if interval is None else f"{100 * interval[0]:.2f} – {100 * interval[1]:.2f}"
    every = " and ".join(map(str, found.objectives))
    rows: list[tuple[str, float | None, str]] = [
        (f"Goodput: {every} (requests/s)", None if found.rate is None else found.rate.value, _interval_text(found.rate)),
        (f"Attainment (% of {found.sent:,} sent)", 100 * found.attainment, percent),
    ]
    if len(found.objectives) > 1:
        rows += [
            (f"  {objective} alone (%)", 100 * met / found.sent, "")
            for objective, met in zip(found.objectives, found.met, strict=True)
        ]
    return rows


def tail_rows(metrics: Metrics) -> list[tuple[str, float | None, str]]:
    """p99.9 in ms of what has values enough for it, and its 95 % interval or why there is none."""
    return [
        (name, d.p99_9, d.interval_text("p99_9")) for name, d in latency_rows(metrics) if d is not None and d.supports(0.999)
    ]


def guard_note(metrics: Metrics) -> str | None:
    """What a mark beside a p99 means, where one is of too few values for a claim; else None."""
    if all(d is None or d.supports(0.99) for _, d in latency_rows(metrics)):
        return None
    return f"too few values for a claim about p99, which needs {required_samples(0.99):,} (99 % confidence)"


SLIP_COLUMNS = ("sends", "p50 ms", "p99 ms", "max ms")


def slip_by_worker_rows(metrics: Metrics) -> list[tuple[str, tuple[float | int | None, ...]]]:
    """The client's slip under SLIP_COLUMNS, by worker; none where there was one worker."""
    if len(metrics.slip_by_worker) < 2:
        return []
    return [(f"Worker {worker}", _slip_row(slip)) for worker, slip in sorted(metrics.slip_by_worker.items())]


def slip_over_time_rows(metrics: Metrics) -> list[tuple[str, tuple[float | int | None, ...]]]:
    """The client's slip under SLIP_COLUMNS, in tenths of the time in which requests were due."""
    return [(f"{part.start_s:.2f} – {part.end_s:.2f} s", _slip_row(part.slip)) for part in metrics.slip_over_time]


def _slip_row(slip: Slip) -> tuple[float | int | None, ...]:
    return slip.sends, slip.p50_ms, slip.p99_ms, slip.max_ms


WINDOW_COLUMNS = ("start s", "end s", "requests/s", "tokens/s", "p50 ms", "p99 ms")


def window_rows(metrics: Metrics) -> list[tuple[str, tuple[float | None, ...] | str]]:
    """The whole run and its steady part under WINDOW_COLUMNS; in place of a steady part that there is not, why."""
    windows = metrics.windows
    if windows.whole is None:
        return []
    latency = "E2E latency" if metrics.ttft_ms is None else "TTFT"
    steady = windows.not_steady or "" if windows.steady is None else _window_row(windows.steady)
    return [
        (f"Whole run (p50, p99: {latency})", _window_row(windows.whole)),
        (f"Steady (MSER-5; p50, p99: {latency})", steady),
    ]


def _window_row(window: Window) -> tuple[float | None, ...]:
    latency = window.e2e_ms if window.ttft_ms is None else window.ttft_ms
    rates = (window.request_throughput, window.output_token_throughput)
    percentiles = (None, None) if latency is None else (latency.p50, latency.p99)
    return (window.start_s, window.end_s, *(None if rate is None else rate.value for rate in rates), *percentiles)


def _interval_text(rate: Rate | None) -> str:
    return "" if rate is None else rate.interval_text


def upstream_rows(table: UpstreamTable) -> list[tuple[str, float | int | None]]:
    """Upstream's rows under upstream's names. "Avg. InFlight requests" is left out: upstream prints a constant 0."""
    return [
        ("Requests/Sec", table.requests_per_s),
        ("OP tokens/sec", table.output_tokens_per_s),
        ("Avg. latency (ms)", table.mean_latency_ms),
        ("P99 latency (ms)", table.p99_latency_ms),
        ("P90 latency (ms)", table.p90_latency_ms),
        ("Avg. IP tokens per request", table.mean_input_tokens),
        ("Avg. OP tokens per request", table.mean_output_tokens),
        ("Total latency (ms)", table.total_latency_ms),
        ("Total requests", table.total_requests),
    ]
