"""Cold start: a beginning of a run in which the target is slow at a load that is no heavier than later.

Latencies fall with the load, too: a trace begins in its busiest hour, or with a burst. So the observed times are compared with
what the arrivals alone explain: the times in a server of even speed (Lindley 1952) that met the same arrivals. How near to its
capacity the target was is not known, nor what its work depends on, so each of several loads and measures of work may explain
latencies. Where more work arrived at the beginning, a cold start cannot be distinguished from that, and none is reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.in_flight import ends_at_even_server
from reports.metrics.requests import Requests
from reports.metrics.steady_state import latencies_by_due
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES, mean_of
from reports.statistics.probability import student_quantile

_SHARES = (1 / 24, 1 / 12, 1 / 6, 1 / 4, 1 / 3)  # of the sending that may be a cold start
_RATIO = 1.25
_SIGNIFICANCE = 0.001 / len(_SHARES)  # as in Bonferroni's correction
_FEWEST = 20  # requests
_LOADS = (0.5, 0.7, 0.9, 1.0)  # of the even servers, over the whole of the sending
EXPLAINED_SHARE = 0.5
"""What the arrivals must explain of the excess of early latencies, in an even server ..."""
EXPLAINED_RATIO = 2.0
"""... or by how many times they alone lengthen its times: a target of batches and caches suffers more than an even one."""


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The mean latency of the requests due in the first ``seconds``, and of those due in the second half of the sending."""

    seconds: float
    early_ms: float
    later_ms: float

    @property
    def ratio(self) -> float:
        return self.early_ms / self.later_ms


def find_cold_start(requests: Requests, load: ConfiguredLoad = OPEN_LOOP) -> ColdStart | None:
    """The beginning of a run whose TTFT is significantly and considerably above that of its second half, although no more work
    arrived in it; None without one.

    The error of the means follows from the long-run variance of the second half. The most significant of several possible ends
    counts. The first request of each user of a closed loop is left out, since all may start together; its users are as many
    early as later, so that its arrivals, which follow from the answers, explain nothing.
    """
    due_ns, latency_ns = (values[(load.concurrency or 0) if load.closed else 0 :] for values in latencies_by_due(requests))
    if due_ns.size < 2 * FEWEST_VALUES:
        return None
    start_ns = float(requests.scheduled_ns.min())
    since_ns = due_ns - start_ns
    length_ns = float(since_ns.max())
    is_later = since_ns > length_ns / 2
    later = latency_ns[is_later]
    if later.size < FEWEST_VALUES:
        return None
    by_arrivals = _ratio_by_arrivals(requests)
    found: tuple[float, ColdStart] | None = None
    for share in _SHARES:
        is_early = since_ns <= share * length_ns
        early = latency_ns[is_early]
        excess = _excess(early, later)
        if excess is None or (found is not None and excess <= found[0]):
            continue
        cold = ColdStart(share * length_ns / 1e9, float(early.mean()) / 1e6, float(later.mean()) / 1e6)
        if load.closed or not _explains(by_arrivals(is_early, is_later), cold.ratio):
            found = (excess, cold)
    return None if found is None else found[1]


def _explains(by_arrivals: float, ratio: float) -> bool:
    """Whether arrivals that lengthen the times in an even server ``by_arrivals`` explain latencies ``ratio`` times as long."""
    return by_arrivals >= min(1.0 + EXPLAINED_SHARE * (ratio - 1.0), EXPLAINED_RATIO)


def _ratio_by_arrivals(requests: Requests) -> Callable[[NDArray[np.bool_], NDArray[np.bool_]], float]:
    """A function of which requests are early and which later, of those of ``latencies_by_due``: the largest ratio of their mean
    times in an even server, over loads and measures of work. The servers are simulated where it is called first.
    """
    times: list[FloatArray] = []

    def ratio(is_early: NDArray[np.bool_], is_later: NDArray[np.bool_]) -> float:
        if not times:
            times.extend(_times_at_even_servers(requests))
        return max(float(series[is_early].mean() / series[is_later].mean()) for series in times)

    return ratio


def _times_at_even_servers(requests: Requests) -> list[FloatArray]:
    """The time of each request of ``latencies_by_due``, in ns, among all that were sent: failures were a load, too."""
    sent = ~np.isnan(requests.sent_ns)
    due_ns = requests.scheduled_ns[sent]
    prompts, outputs = (
        np.where(np.isnan(actual), requested, actual)[sent]
        for actual, requested in (
            (requests.input_tokens, requests.requested_input_tokens),
            (requests.output_tokens, requests.requested_output_tokens),
        )
    )
    works = [work for work in (np.ones(due_ns.size), prompts, outputs, prompts + outputs) if work.sum() > 0]  # NaN is not
    sending_ns = float(due_ns.max() - due_ns.min())
    services = [work * (load * sending_ns / work.sum()) for work in works for load in _LOADS]
    answered = (requests.done & requests.has_tokens)[sent]
    return [(ends_at_even_server(due_ns, service_ns) - due_ns)[answered] for service_ns in services]


def _excess(early: FloatArray, later: FloatArray) -> float | None:
    """By how many standard errors the mean of ``early`` exceeds that of ``later``; None where that may be chance."""
    if early.size < _FEWEST or np.median(early) < _RATIO * np.median(later):
        return None
    mean = mean_of(later)
    difference = float(early.mean()) - mean.value
    error = math.sqrt(mean.long_run.variance / later.size * (1 / early.size + 1 / later.size))
    limit = student_quantile(1.0 - _SIGNIFICANCE, mean.long_run.degrees)
    if early.mean() < _RATIO * mean.value or difference <= limit * error:
        return None
    return difference / error if error else math.inf
