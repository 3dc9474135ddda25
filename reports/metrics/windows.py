"""The numbers of one window of a run: the whole of it, or its steady part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reports.metrics.catalogue import THROUGHPUTS
from reports.metrics.censoring import latencies_by_request
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.full_batch import FullBatch, without_rare_tails
from reports.metrics.full_load import full_load, rate_of_run
from reports.metrics.metric import Metric
from reports.metrics.output_events import Events, rate, without_interval
from reports.metrics.requests import Requests
from reports.metrics.steady_state import Steady, find_steady
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import UNKNOWN, Estimate, Reason
from reports.statistics.percentiles import Distribution

_Outputs = Mapping[Metric, Events | None]  # what each of THROUGHPUTS counts


@dataclass(frozen=True)
class Window:
    """From ``start_s`` to ``end_s`` since the run's start: the output in it per second, and the latencies from the schedule,
    in ms, of the requests that were scheduled in it. None is unknown or does not exist.
    """

    start_s: float
    end_s: float
    throughputs: Mapping[Metric, Estimate]
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
    requests: Requests,
    ttft_ms: Distribution | None,
    e2e_ms: Distribution | None,
    load: ConfiguredLoad = OPEN_LOOP,
    no_interval_reason: Reason | None = None,
    batch: FullBatch | None = None,
) -> Windows:
    """Both windows; ``ttft_ms`` and ``e2e_ms`` are the whole run's, from the schedule (TTFT None where not streamed).

    No number has an interval where there is a ``no_interval_reason``, and no tail an upper limit that ``batch`` does not allow.
    """
    if not requests.done.any():
        return Windows(None, None, "no request succeeded", True)
    outputs = _outputs(requests)
    steady = find_steady(requests, [events for events in outputs.values() if events is not None][-1], load)
    return Windows(
        _whole(requests, outputs, ttft_ms, e2e_ms, no_interval_reason),
        _steady(requests, outputs, steady, ttft_ms is not None, no_interval_reason, batch),
        steady.reason,
        steady.too_few,
    )


def whole_window(
    requests: Requests, ttft_ms: Distribution | None, e2e_ms: Distribution | None, no_interval_reason: Reason | None = None
) -> Window | None:
    """The whole run alone; None where nothing succeeded."""
    if not requests.done.any():
        return None
    return _whole(requests, _outputs(requests), ttft_ms, e2e_ms, no_interval_reason)


def _outputs(requests: Requests) -> _Outputs:
    return {metric: metric.events(requests) for metric in THROUGHPUTS if metric.events is not None}


def _whole(
    requests: Requests, outputs: _Outputs, ttft_ms: Distribution | None, e2e_ms: Distribution | None, reason: Reason | None
) -> Window:
    start_ns, end_ns = float(requests.scheduled_ns.min()), float(requests.done_ns[requests.done].max())

    def of_run(events: Events | None) -> Estimate:
        if events is None:
            return UNKNOWN
        return without_interval(rate_of_run(events, start_ns, end_ns, full_load(requests, events)), reason)

    throughputs = {metric: of_run(events) for metric, events in outputs.items()}
    return Window(start_ns / 1e9, end_ns / 1e9, throughputs, ttft_ms, e2e_ms)


def _steady(
    requests: Requests, outputs: _Outputs, steady: Steady, streaming: bool, reason: Reason | None, batch: FullBatch | None
) -> Window | None:
    if steady.window_ns is None:
        return None
    start_ns, end_ns = steady.window_ns
    within = (requests.scheduled_ns >= start_ns) & (requests.scheduled_ns <= end_ns)

    def latency(ends_ns: FloatArray) -> Distribution | None:
        found = latencies_by_request(requests, ends_ns, requests.scheduled_ns).of(within).summary(reason)
        return without_rare_tails(found, batch)

    def of_window(events: Events | None) -> Estimate:
        return UNKNOWN if events is None else without_interval(rate(events, start_ns, end_ns), reason)

    return Window(
        start_s=start_ns / 1e9,
        end_s=end_ns / 1e9,
        throughputs={metric: of_window(events) for metric, events in outputs.items()},
        ttft_ms=latency(requests.first_token_ns) if streaming else None,
        e2e_ms=latency(requests.last_token_ns),
    )
