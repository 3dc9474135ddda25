"""The errors of the client's times: its records, compared with the server's stamps.

Both are durations on the same clock, so no clocks need to be synchronised. An error is the client's value minus the true
one, in ms:

- TTFT: (first response read − request sent) − (first response sent − request received): the time that the way there and
  back adds, system calls on both sides, loopback and queues included;
- ICL: each gap between responses as read − the same gap as sent;
- E2E latency: as TTFT, of the last response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from bench_records.record import Outcome, Record
from harness.calibration.null_server.stamps import Stamps
from harness.journal.worker_journal import Exchange

FloatArray = NDArray[np.float64]
ReadStamps = Callable[[bytes], Stamps | None]


@dataclass(frozen=True, slots=True)
class Truth:
    """The server's times of one request: when it was received, and when each response with tokens was sent; shape [responses].

    Times are ns of any one clock.
    """

    received_ns: int
    sent_ns: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Errors:
    """The client's values minus the true ones: ``ttft_ms`` and ``e2e_ms`` of each request, ``icl_ms`` of each gap, pooled."""

    ttft_ms: FloatArray
    icl_ms: FloatArray
    e2e_ms: FloatArray


@dataclass(frozen=True, slots=True)
class Spread:
    """A summary of errors: mean and standard deviation, and the mean and percentiles of their absolute values."""

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
    """The times in a null server's stamps, by the index of the request."""
    truths: dict[int, Truth] = {}
    for exchange in exchanges:
        stamps = [stamp for body in exchange.bodies if (stamp := read_stamps(body)) is not None]
        if stamps:
            truths[exchange.index] = Truth(stamps[0].received_ns, np.array([stamp.sent_ns for stamp in stamps], np.int64))
    return truths


def errors_of(records: Iterable[Record], truths: Mapping[int, Truth]) -> Errors:
    """The errors of every request that succeeded.

    Raises ValueError where a record and its truth have different numbers of responses.
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
