"""How far the client's times are from the truth: what its records say, held against what the server stamped.

The two are durations on the same clock, so no clock needs to be set. An error is ours minus the truth, in ms:

- TTFT: (first response read − request sent) − (first response sent − request received): what the way there and back adds,
  both sides' system calls, loopback and the waiting in queues included;
- ICL: each gap between responses as read − the same gap as sent;
- E2E latency: as TTFT, of the last response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from harness.calibration.null_server.stamps import Stamps
from harness.journal.worker_journal import Exchange
from harness.records.record import Outcome, Record

FloatArray = NDArray[np.float64]
ReadStamps = Callable[[bytes], Stamps | None]


@dataclass(frozen=True, slots=True)
class Truth:
    """One request as the server saw it: when it was received, and when each response with tokens was sent; shape [responses].

    Times are ns of any one clock.
    """

    received_ns: int
    sent_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Errors:
    """Ours minus the truth: ``ttft_ms`` and ``e2e_ms`` of each request, ``icl_ms`` of each gap, pooled."""

    ttft_ms: FloatArray
    icl_ms: FloatArray
    e2e_ms: FloatArray


@dataclass(frozen=True, slots=True)
class Spread:
    """Errors in few numbers: their mean and standard deviation, and of their sizes (without the sign) mean and percentiles."""

    n: int
    mean_ms: float
    stdev_ms: float
    size_mean_ms: float
    size_p50_ms: float
    size_p99_ms: float


def spread(errors_ms: FloatArray) -> Spread | None:
    """The spread of ``errors_ms``, shape [n]; None where there are none."""
    if errors_ms.size == 0:
        return None
    sizes = np.abs(errors_ms)
    return Spread(
        n=int(errors_ms.size),
        mean_ms=float(errors_ms.mean()),
        stdev_ms=float(errors_ms.std()),
        size_mean_ms=float(sizes.mean()),
        size_p50_ms=nearest_rank(sizes, 0.50),
        size_p99_ms=nearest_rank(sizes, 0.99),
    )


def nearest_rank(values: FloatArray, share: float) -> float:
    """The percentile of at least one value, as ``reports`` computes it; ``share`` from 0 to 1."""
    return float(np.partition(values, ceil(share * values.size) - 1)[ceil(share * values.size) - 1])


def stamped_truths(exchanges: Iterable[Exchange], read_stamps: ReadStamps) -> dict[int, Truth]:
    """What a null server's responses say of themselves, by the index of the request."""
    truths: dict[int, Truth] = {}
    for exchange in exchanges:
        stamps = [found for body in exchange.bodies if (found := read_stamps(body)) is not None]
        if stamps:
            truths[exchange.index] = Truth(stamps[0].received_ns, np.array([stamp.sent_ns for stamp in stamps], np.int64))
    return truths


def errors_of(records: Iterable[Record], truths: Mapping[int, Truth]) -> Errors:
    """The errors of every request that succeeded.

    Raises ValueError where a record and its truth are not of the same responses: then neither could be believed.
    """
    ttft, e2e, icl = [], [], [np.empty(0)]
    for record in records:
        if record.outcome is not Outcome.DONE:
            continue
        truth = truths.get(record.index)
        if truth is None or record.sent_ns is None or len(record.token_times_ns) != len(truth.sent_ns):
            sent = None if truth is None else len(truth.sent_ns)
            read = len(record.token_times_ns)
            raise ValueError(f"request {record.index}: {read} responses with tokens were read, and {sent} were sent")
        read_ns = np.array(record.token_times_ns, np.int64)
        late_ns = (read_ns - record.sent_ns) - (truth.sent_ns - truth.received_ns)
        ttft.append(late_ns[0])
        e2e.append(late_ns[-1])
        icl.append(np.diff(late_ns))
    return Errors(np.array(ttft) / 1e6, np.concatenate(icl) / 1e6, np.array(e2e) / 1e6)
