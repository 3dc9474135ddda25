"""The parts of a request's time that the server measures, beside the whole that the client measures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.configuration import ConfiguredTarget
from reports.metrics.model_statistics import ModelWork
from reports.metrics.requests import Requests
from reports.metrics.server_load import ServerLoad
from reports.statistics.arrays import FloatArray

ENGINE_TTFT, ENGINE_E2E = "TTFT, by the engine", "E2E, by the engine"
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Phase:
    """A mean over the run's requests, in ms: ``server_ms`` by the server, ``client_ms`` of the same span by the client.

    The same span ends with the same event and begins, on the client, with the send. ``client_ms`` is None for a part that the
    client cannot see, such as a queue. ``whole_ms`` is the shortest span of the client that contains the part.
    """

    name: str
    server_ms: float
    client_ms: float | None
    whole_ms: float

    @property
    def unexplained_ms(self) -> float | None:
        """Client less server: network, connection and front end, all that passes outside of the server's clock."""
        return None if self.client_ms is None else self.client_ms - self.server_ms


def phases(requests: Requests, server: ServerLoad | None, target: ConfiguredTarget) -> tuple[Phase, ...]:
    """The phases that both sides measure, from the send on; empty where not every request is a success on both sides.

    A server sums the times of all its requests. The two are comparable only if these are exactly the run's requests. Where the
    first token of an answer comes with the last, the engine's TTFT is a part of it that the client cannot see.
    """
    if server is None or not requests.done.size or not requests.done.all() or not _counts_ours(requests, server, target.model):
        return ()
    exchange_ms = _mean_ms(requests.done_ns - requests.sent_ns)
    ttft_ms = _mean_ms(requests.first_token_ns - requests.sent_ns)
    e2e_ms = _mean_ms(requests.last_token_ns - requests.sent_ns)
    triton = next((work for work in server.models if work.name == target.model), None)
    known = (
        *_of_triton(triton, server.times.ttft_ms, exchange_ms),
        _part("Queue, by the engine", server.times.queue_ms, ttft_ms),
        _part("Prefill, by the engine", server.times.prefill_ms, exchange_ms),
        (_span if _comes_in_pieces(requests, target) else _part)(ENGINE_TTFT, server.times.ttft_ms, ttft_ms),
        _part("Decode, by the engine", server.times.decode_ms, exchange_ms),
        _span(ENGINE_E2E, server.times.e2e_ms, e2e_ms),
    )
    return tuple(phase for phase in known if phase is not None)


def _comes_in_pieces(requests: Requests, target: ConfiguredTarget) -> bool:
    """Whether most answers of several tokens come in several responses: not if they are not streamed, nor if a proxy before the
    server sends on whole streams alone.
    """
    several = requests.output_tokens >= 2
    at_once = several & (np.diff(requests.token_starts) == 1)
    return target.streaming and 2 * np.count_nonzero(at_once) <= np.count_nonzero(several)


def _of_triton(model: ModelWork | None, engine_ttft_ms: float | None, exchange_ms: float | None) -> tuple[Phase | None, ...]:
    if model is None or model.request_ms is None:
        return ()
    if engine_ttft_ms is not None and model.request_ms < engine_ttft_ms:  # a decoupled model: Triton counts no further
        return (_part("Taking it in, by Triton", model.request_ms, exchange_ms),)
    return (
        _part("Queue and compute, by Triton", _sum(model.queue_ms, model.compute_ms), exchange_ms),
        _span("Whole, by Triton", model.request_ms, exchange_ms),
    )


def _span(name: str, server_ms: float | None, client_ms: float | None) -> Phase | None:
    return None if server_ms is None or client_ms is None else Phase(name, server_ms, client_ms, client_ms)


def _part(name: str, server_ms: float | None, whole_ms: float | None) -> Phase | None:
    return None if server_ms is None or whole_ms is None else Phase(name, server_ms, None, whole_ms)


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
