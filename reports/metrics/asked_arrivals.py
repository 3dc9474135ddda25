"""Arrivals as their law asks for them, as they were drawn, and as they were sent: rate, and variation of the gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench_records.manifest import LoadStage, Manifest
from reports.metrics.arrival_law import at_even_rate_ns
from reports.metrics.configuration import configured_load
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, known

_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class ArrivalSample:
    """The mean rate of ``gaps`` + 1 arrivals, and standard deviation (n in the denominator) over mean of the gaps between them;
    None for fewer than two gaps. The rate of a stage is the number of arrivals in its time over this time.
    """

    rate_per_s: float
    gap_cv: float | None
    gaps: int


@dataclass(frozen=True, slots=True)
class AskedArrivals:
    """Arrivals of ``unit`` (requests, or sessions, which are first turns), in the whole run, or in ``stage`` of it (from 1 on).

    ``asked_rate`` and ``asked_gap_cv`` are the law's, None where it has none. ``scheduled`` are the arrivals that the law drew
    or that a trace has, ``sent`` the sends; both without a ramp, and ``sent`` without the wait at a ceiling, as
    ``check_arrivals`` takes them. None for fewer than two.
    """

    law: str
    unit: str
    stage: int | None
    asked_rate: float
    asked_gap_cv: float | None
    scheduled: ArrivalSample | None
    sent: ArrivalSample | None


def asked_arrivals(requests: Requests, manifest: Manifest) -> tuple[AskedArrivals, ...]:
    """The whole run, then each stage of a rate that changes by steps; empty where the arrivals have no rate."""
    load = manifest.load
    if load is None or load.asked_arrivals is None:
        return ()
    asked = load.asked_arrivals
    ramp_up_s = configured_load(manifest).ramp_up_s
    arriving = np.isnan(requests.parent)  # only later turns of sessions have a parent
    times_ns = [
        at_even_rate_ns(np.sort(known(column[arriving])), ramp_up_s)
        for column in (requests.scheduled_ns, requests.sent_ns - requests.ceiling_wait_ns)
    ]
    law, unit, cv = asked.law, asked.unit, asked.law_gap_cv
    whole = AskedArrivals(law, unit, None, asked.rate_per_s, asked.gap_cv, *map(_sample, times_ns))
    stages = tuple(
        AskedArrivals(law, unit, number, stage.rate_per_s, cv, *(_within(column, stage) for column in times_ns))
        for number, stage in enumerate(load.stages or (), start=1)
    )
    return (whole, *stages)


def _sample(times_ns: FloatArray) -> ArrivalSample | None:
    if times_ns.size < 2 or times_ns[-1] == times_ns[0]:
        return None
    gaps = np.diff(times_ns)
    rate = gaps.size / float(times_ns[-1] - times_ns[0]) * _NS_PER_S
    return ArrivalSample(rate, float(gaps.std() / gaps.mean()) if gaps.size > 1 else None, gaps.size)


def _within(times_ns: FloatArray, stage: LoadStage) -> ArrivalSample | None:
    begin_s, end_s = stage.begin_s, stage.end_s
    within = times_ns[(times_ns >= begin_s * _NS_PER_S) & (times_ns < end_s * _NS_PER_S)]
    sample = _sample(within)
    if sample is None:
        return None
    return ArrivalSample(within.size / (end_s - begin_s), sample.gap_cv, sample.gaps)
