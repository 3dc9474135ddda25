"""The targets of a run of several servers (``--url`` more than once), each with its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench_records.manifest import Manifest, OneTarget
from bench_records.record import FAILURES
from reports.metrics.censoring import latencies_by_request
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.full_batch import FullBatch, without_rare_tails
from reports.metrics.model_statistics import counted_by, failed_by
from reports.metrics.requests import Requests
from reports.metrics.server_load import ServerLoad
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution


@dataclass(frozen=True, slots=True)
class CountedByServer:
    """What a target counted of the run itself, probes included; None is unknown. Requests are those of the measured model,
    failed ones included where its statistics count them. Triton's do not know whether a request of a decoupled model failed.
    """

    requests: float | None
    failed: float | None
    output_tokens: float | None


@dataclass(frozen=True, slots=True)
class TargetNumbers:
    """The requests of the load that were sent to one target. ``output_tokens`` arrived, also of requests that failed or were
    cancelled; None where a count is unknown. Latencies count from the schedule; None where there are none, and TTFT of an
    unstreamed run.

    ``number`` is the place among --url, from 0 on, and that in the records.
    """

    number: int
    address: str
    sent: int
    done: int
    withdrawn: int
    failed: int
    failed_by_kind: Mapping[str, int]
    output_tokens: float | None
    ttft_ms: Distribution | None
    e2e_ms: Distribution | None
    counted: CountedByServer


def target_numbers(
    requests: Requests,
    manifest: Manifest,
    loads: Mapping[str, ServerLoad],
    streaming: bool,
    batch: FullBatch | None = None,
) -> tuple[TargetNumbers, ...]:
    """The targets in the order of --url; empty for a run of one. ``loads`` are the servers' by the URLs of their pages."""
    targets = manifest.targets or ()
    pages = () if manifest.telemetry is None else manifest.telemetry.pages or ()
    paired: list[ServerLoad | None] = [None] * len(targets)
    if len(pages) == len(targets):  # else a page is not known to be that of a target
        paired = [loads.get(page.url or "") for page in pages]
    return tuple(
        _of_target(number, target, requests.only(requests.target == number), _counted(manifest, target, load), streaming, batch)
        for number, (target, load) in enumerate(zip(targets, paired, strict=True))
    )


def _of_target(
    number: int, target: OneTarget, own: Requests, counted: CountedByServer, streaming: bool, batch: FullBatch | None
) -> TargetNumbers:
    clustered = clustered_arrivals(own)

    def latency(ends_ns: FloatArray) -> Distribution | None:
        found = latencies_by_request(own, ends_ns, own.scheduled_ns).summary(clustered)
        return without_rare_tails(found, batch)

    failed: NDArray[np.bool_] = np.isin(own.outcome, [kind.value for kind in FAILURES])
    kinds, counts = np.unique(own.outcome[failed], return_counts=True)
    return TargetNumbers(
        number=number,
        address=target.address or f"target {number}",
        sent=len(own.outcome),
        done=int(own.done.sum()),
        withdrawn=int(own.withdrawn.sum()),
        failed=int(failed.sum()),
        failed_by_kind=dict(zip(kinds.tolist(), counts.tolist(), strict=True)),
        output_tokens=_arrived(own),
        ttft_ms=latency(own.first_token_ns) if streaming else None,
        e2e_ms=latency(own.last_token_ns),
        counted=counted,
    )


def _arrived(own: Requests) -> float | None:
    """The sum of the output tokens; None where an answer has an unknown number."""
    counts = own.output_tokens[own.done | own.has_tokens]
    return None if np.isnan(counts).any() else float(counts.sum())


def _counted(manifest: Manifest, target: OneTarget, load: ServerLoad | None) -> CountedByServer:
    model = manifest.target.model or ""
    counted = counted_by(target.server_statistics, model)
    if counted is not None and counted < 0:  # its counts began anew
        return CountedByServer(None, None, None)
    final = load if load is not None and load.until_end else None  # before the last answer its counters lack requests
    return CountedByServer(
        requests=(None if final is None else final.finished_requests) if counted is None else counted,
        failed=None if counted is None or manifest.target.decoupled else failed_by(target.server_statistics, model),
        output_tokens=None if final is None else final.generated_tokens,
    )
