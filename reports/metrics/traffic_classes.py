"""The classes of a mixture (``--class``), and the probes beside a load (``--probe_rate``), each with its own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench_records.record import FAILURES, PROBE
from reports.metrics.censoring import latencies_by_request
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.full_batch import FullBatch, without_rare_tails
from reports.metrics.goodput import Goodput, Objective, good_ends_ns, goodput
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, known
from reports.statistics.percentiles import Distribution


@dataclass(frozen=True, slots=True)
class ClassNumbers:
    """The requests of one class. Latencies count from the schedule; None where there are none, and TTFT of an unstreamed run.

    ``name`` is None for requests that belong to no class. ``goodput`` is by the class's own objectives, or by those of the run
    where it has none; ``goodput_rate`` counts the requests that met them, per second of the run: from the first scheduled
    arrival to the end of the last success, or of the last request that met the objectives of its class and was cancelled.
    """

    name: str | None
    scheduled: int
    done: int
    withdrawn: int
    failed: int
    ttft_ms: Distribution | None
    e2e_ms: Distribution | None
    goodput: Goodput | None
    goodput_rate: float | None

    @property
    def is_probe(self) -> bool:
        """Whether these are the probes, which are no part of the run's other numbers."""
        return self.name == PROBE


@dataclass(frozen=True, slots=True)
class Judged:
    """The ``objectives`` of a run, and those of classes of their own ``by_class``."""

    objectives: Sequence[Objective]
    by_class: Mapping[str, Sequence[Objective]]

    def of(self, name: str | None) -> Sequence[Objective]:
        """The objectives of a class."""
        return self.by_class.get(name or "") or self.objectives


def traffic_classes(
    requests: Requests, judged: Judged, streaming: bool, batch: FullBatch | None = None
) -> tuple[ClassNumbers, ...]:
    """The classes of ``requests``, probes included and last; empty where no request has one. All share ``batch``."""
    if not requests.class_names:
        return ()
    names: list[str | None] = sorted(requests.class_names, key=lambda name: (name == PROBE, name))
    if (requests.class_of < 0).any():
        names = [None, *names]
    by_name = {name: requests.only(requests.class_of < 0 if name is None else requests.of_class(name)) for name in names}
    window_s = _goodput_window_s({name: own for name, own in by_name.items() if name != PROBE}, judged)
    return tuple(_of_class(own, name, judged.of(name), window_s, streaming, batch) for name, own in by_name.items())


def _goodput_window_s(load: Mapping[str | None, Requests], judged: Judged) -> float:
    """The window of goodput of all classes, as that of a run without classes; 0 where it has no end."""
    ends_ns = [
        known(ends) for name, own in load.items() for ends in (own.done_ns[own.done], good_ends_ns(own, judged.of(name)))
    ]
    starts_ns = np.concatenate([own.scheduled_ns for own in load.values()]) if load else np.empty(0)
    last_ns = max((float(ends.max()) for ends in ends_ns if ends.size), default=None)
    return 0.0 if last_ns is None else (last_ns - float(starts_ns.min())) / 1e9


def _of_class(
    own: Requests,
    name: str | None,
    objectives: Sequence[Objective],
    window_s: float,
    streaming: bool,
    batch: FullBatch | None,
) -> ClassNumbers:
    clustered = clustered_arrivals(own)
    met = goodput(own, objectives, clustered)

    def latency(ends_ns: FloatArray) -> Distribution | None:
        found = latencies_by_request(own, ends_ns, own.scheduled_ns).summary(clustered)
        return without_rare_tails(found, batch)

    return ClassNumbers(
        name=name,
        scheduled=len(own.outcome),
        done=int(own.done.sum()),
        withdrawn=int(own.withdrawn.sum()),
        failed=int(np.isin(own.outcome, [kind.value for kind in FAILURES]).sum()),
        ttft_ms=latency(own.first_token_ns) if streaming else None,
        e2e_ms=latency(own.last_token_ns),
        goodput=met,
        goodput_rate=None if met is None or not window_s else met.good / window_s,
    )
