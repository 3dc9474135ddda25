"""The stages of a run whose rate was configured to change by steps (``--rate_profile stages:…``), each with its own numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench_records.manifest import LoadStage, Manifest
from bench_records.record import FAILURES
from reports.metrics.censoring import latencies_by_request
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.configuration import configured_target
from reports.metrics.full_batch import full_batch, without_rare_tails
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Stage:
    """The requests that were scheduled from ``begin_s`` to ``end_s``, of which ``failed`` failed; ``sent_rate`` is the rate of
    the sends in that time. Latencies count from the schedule; None where there are none, and TTFT of an unstreamed run.
    """

    begin_s: float
    end_s: float
    asked_rate: float
    scheduled: int
    failed: int
    sent_rate: float
    ttft_ms: Distribution | None
    e2e_ms: Distribution | None


def stages(requests: Requests, manifest: Manifest, batch_limit: int | None = None) -> tuple[Stage, ...]:
    """The stages of a run; empty where its rate had none. ``batch_limit`` is the target's largest batch, where it is known."""
    configured = None if manifest.load is None else manifest.load.stages
    streaming = configured_target(manifest).streaming
    return tuple(_stage(requests, stage, streaming, batch_limit) for stage in configured or ())


def _stage(requests: Requests, configured: LoadStage, streaming: bool, batch_limit: int | None) -> Stage:
    begin_s, end_s = configured.begin_s, configured.end_s
    chosen = _within(requests.scheduled_ns, begin_s, end_s)
    failed = np.isin(requests.outcome[chosen], [kind.value for kind in FAILURES])
    clustered = clustered_arrivals(requests, chosen=chosen)
    batch = full_batch(requests.only(chosen), batch_limit)

    def latency(ends_ns: FloatArray) -> Distribution | None:
        found = latencies_by_request(requests, ends_ns, requests.scheduled_ns).of(chosen).summary(clustered)
        return without_rare_tails(found, batch)

    return Stage(
        begin_s,
        end_s,
        configured.rate_per_s,
        int(chosen.sum()),
        int(failed.sum()),
        float(_within(requests.sent_ns, begin_s, end_s).sum()) / (end_s - begin_s),
        latency(requests.first_token_ns) if streaming else None,
        latency(requests.last_token_ns),
    )


def _within(times_ns: FloatArray, begin_s: float, end_s: float) -> NDArray[np.bool_]:
    return (times_ns >= begin_s * _NS_PER_S) & (times_ns < end_s * _NS_PER_S)
