"""The parts of a request's time that the server measures, beside the whole that the client measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.model_statistics import ModelWork
from reports.metrics.requests import Requests
from reports.metrics.server_load import ServerLoad
from reports.statistics.arrays import FloatArray

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Phase:
    """A mean over the run's requests, in ms, by the server, and by the client of the span that contains it."""

    name: str
    server_ms: float
    client_ms: float

    @property
    def unexplained_ms(self) -> float:
        """The difference: network, Triton, and all that the server does not count."""
        return self.client_ms - self.server_ms


def phases(requests: Requests, server: ServerLoad | None, model: str) -> tuple[Phase, ...]:
    """The phases that both sides measure, from the send on; empty where not every request is a success on both sides.

    A server sums the times of all its requests. The two are comparable only if these are exactly the run's requests.
    """
    if server is None or not requests.done.size or not requests.done.all() or not _counts_ours(requests, server, model):
        return ()
    exchange_ms = _mean_ms(requests.done_ns - requests.sent_ns)
    ttft_ms = _mean_ms(requests.first_token_ns - requests.sent_ns)
    e2e_ms = _mean_ms(requests.last_token_ns - requests.sent_ns)
    triton = next((work for work in server.models if work.name == model), None)
    known = (
        *_of_triton(triton, server.times.ttft_ms, exchange_ms),
        ("Queue, by the engine", server.times.queue_ms, ttft_ms),
        ("TTFT, by the engine", server.times.ttft_ms, ttft_ms),
        ("E2E, by the engine", server.times.e2e_ms, e2e_ms),
    )
    return tuple(
        Phase(name, server_ms, client_ms)
        for name, server_ms, client_ms in known
        if server_ms is not None and client_ms is not None
    )


def _of_triton(
    model: ModelWork | None, engine_ttft_ms: float | None, exchange_ms: float | None
) -> tuple[tuple[str, float | None, float | None], ...]:
    if model is None or model.request_ms is None:
        return ()
    if engine_ttft_ms is not None and model.request_ms < engine_ttft_ms:  # a decoupled model: Triton counts no further
        return (("Taking it in, by Triton", model.request_ms, exchange_ms),)
    return (
        ("Queue and compute, by Triton", _sum(model.queue_ms, model.compute_ms), exchange_ms),
        ("Whole, by Triton", model.request_ms, exchange_ms),
    )


def _counts_ours(requests: Requests, server: ServerLoad, model: str) -> bool:
    counts = [work.succeeded for work in server.models if work.name == model]
    if server.times.requests is not None:
        counts.append(round(server.times.requests))
    return bool(counts) and all(count == len(requests.outcome) for count in counts)


def _mean_ms(times_ns: FloatArray) -> float | None:
    return None if np.isnan(times_ns).any() else float(times_ns.mean()) / _NS_PER_MS


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
