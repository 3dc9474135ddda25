"""The numbers of one window of a run: the whole of it, or its steady part."""

from __future__ import annotations

from dataclasses import dataclass

from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.full_load import full_load, rate_of_run
from reports.metrics.latency import latencies_ms
from reports.metrics.output_events import Events, Rate, completions, output_tokens, rate
from reports.metrics.requests import Requests
from reports.metrics.steady_state import Steady, find_steady
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution, summarise


@dataclass(frozen=True)
class Window:
    """From ``start_s`` to ``end_s`` since the run's start: the output in it per second, and the latencies from the schedule,
    in ms, of the requests that were scheduled in it. None is unknown or does not exist.
    """

    start_s: float
    end_s: float
    request_throughput: Rate | None
    output_token_throughput: Rate | None
    ttft_ms: Distribution | None
    e2e_ms: Distribution | None

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Windows:
    """The whole run (first scheduled arrival to the end of the last success), and its steady part where there is one."""

    whole: Window | None
    steady: Window | None
    not_steady: str | None  # the reason for having no steady part
    too_few_to_tell: bool


def compute_windows(
    requests: Requests, ttft_ms: Distribution | None, e2e_ms: Distribution | None, load: ConfiguredLoad = OPEN_LOOP
) -> Windows:
    """Both windows; ``ttft_ms`` and ``e2e_ms`` are the whole run's, from the schedule (TTFT None where not streamed)."""
    if not requests.done.any():
        return Windows(None, None, "no request succeeded", True)
    ended, tokens = completions(requests), output_tokens(requests)
    steady = find_steady(requests, ended if tokens is None else tokens, load)
    return Windows(
        _whole(requests, ended, tokens, ttft_ms, e2e_ms),
        _steady(requests, steady, ended, tokens, ttft_ms),
        steady.reason,
        steady.too_few,
    )


def whole_window(requests: Requests, ttft_ms: Distribution | None, e2e_ms: Distribution | None) -> Window | None:
    """The whole run alone; None where nothing succeeded."""
    if not requests.done.any():
        return None
    return _whole(requests, completions(requests), output_tokens(requests), ttft_ms, e2e_ms)


def _whole(
    requests: Requests, ended: Events, tokens: Events | None, ttft_ms: Distribution | None, e2e_ms: Distribution | None
) -> Window:
    start_ns, end_ns = float(requests.scheduled_ns.min()), float(requests.done_ns[requests.done].max())

    def of_run(events: Events) -> Rate | None:
        return rate_of_run(events, start_ns, end_ns, full_load(requests, events))

    return Window(start_ns / 1e9, end_ns / 1e9, of_run(ended), None if tokens is None else of_run(tokens), ttft_ms, e2e_ms)


def _steady(
    requests: Requests, steady: Steady, ended: Events, tokens: Events | None, ttft_ms: Distribution | None
) -> Window | None:
    if steady.window_ns is None:
        return None
    start_ns, end_ns = steady.window_ns
    within = (requests.scheduled_ns >= start_ns) & (requests.scheduled_ns <= end_ns)

    def latency(ends_ns: FloatArray) -> Distribution | None:
        return summarise(latencies_ms(requests, ends_ns, requests.scheduled_ns, within))

    return Window(
        start_s=start_ns / 1e9,
        end_s=end_ns / 1e9,
        request_throughput=rate(ended, start_ns, end_ns),
        output_token_throughput=None if tokens is None else rate(tokens, start_ns, end_ns),
        ttft_ms=None if ttft_ms is None else latency(requests.first_token_ns),
        e2e_ms=latency(requests.last_token_ns),
    )
