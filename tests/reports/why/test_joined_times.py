"""Times without a name are joined with the requests that they belong to, also where many are in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from bench_records.record import Record
from reports.metrics.requests import Requests
from reports.why.joined_times import Stamps, joined

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
_START_NS = 50_000_000_000_000


@dataclass(frozen=True)
class _Served:
    """Requests by an engine of batches, in ms, shape [n]: sends, first and last tokens at the client, and the engine's stamps,
    shape [n, 4].
    """

    sent: NDArray[np.float64]
    first: NDArray[np.float64]
    last: NDArray[np.float64]
    stamps: NDArray[np.float64]

    def times(self) -> list[Stamps]:
        return [Stamps(*(_START_NS + int(1e6 * ms) for ms in stamps)) for stamps in self.stamps.tolist()]


def _served(n: int, rate_per_s: float, tokens: NDArray[np.int64], slots: int, seed: int) -> _Served:
    """An engine of steps of 8 ms with ``slots``. The front end takes 1 ms and more; of the tokens of a step the client has
    each 0.05 ms after the one before.
    """
    rng = np.random.default_rng(seed)
    sent = np.cumsum(rng.exponential(1e3 / rate_per_s, n))
    arrival = sent + 1.0 + rng.exponential(2.0, n)
    started, first, last = np.zeros(n), np.zeros(n), np.zeros(n)
    client_first, client_last = np.zeros(n), np.zeros(n)
    waiting, running, left = list(np.argsort(arrival)), list[int](), tokens.copy()
    now = 0.0
    while waiting or running:
        if not running:
            now = max(now, arrival[waiting[0]])
        while waiting and len(running) < slots and arrival[waiting[0]] <= now:
            running.append(waiting.pop(0))
            started[running[-1]] = now
        now += 8.0 + rng.exponential(0.3)
        seen = now + 0.3 + np.cumsum(rng.exponential(0.05, len(running)))
        for place, k in enumerate(rng.permutation(running)):
            if left[k] == tokens[k]:
                first[k], client_first[k] = now, seen[place]
            left[k] -= 1
            if not left[k]:
                last[k], client_last[k] = now, max(seen[place], client_first[k])
        running = [k for k in running if left[k]]
    return _Served(sent, client_first, client_last, np.column_stack([arrival, started, first, last]))


@pytest.mark.parametrize("varied", [True, False], ids=["lengths vary", "one length"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "at once"])
def test_most_are_joined_rightly_at_a_high_load(
    make_requests: MakeRequests, answered: Make, varied: bool, streamed: bool
) -> None:
    n = 600
    tokens = np.random.default_rng(3).integers(8, 40, n) if varied else np.full(n, 24)
    served = _served(n, rate_per_s=330.0, tokens=tokens, slots=64, seed=11)
    tokens_at = zip(served.first.tolist(), served.last.tolist(), strict=True)
    answers = [[(first, 1), (last, 1)] if streamed else [(last, 2)] for first, last in tokens_at]
    records = [answered(k, sent, sent, answers[k]) for k, sent in enumerate(served.sent.tolist())]
    times = [served.times()[k] for k in np.random.default_rng(1).permutation(n)]
    found = joined(make_requests(records), times, _START_NS)
    off_ms = np.abs(found.server_arrival_ns - _START_NS - 1e6 * served.stamps[:, 0]) / 1e6
    queue_ms = served.stamps[:, 1] - served.stamps[:, 0]
    assert np.isfinite(off_ms).mean() >= 0.99
    assert (off_ms < 0.001).mean() >= (0.95 if varied else 0.65)
    assert np.nanpercentile(off_ms, 99) < 8.0
    quantiles = (0.5, 0.9, 0.99)
    of_joined = np.nanquantile(found.server_queue_ns / 1e6, quantiles)
    assert of_joined == pytest.approx(np.quantile(queue_ms, quantiles), rel=0.02, abs=0.2)


def test_entries_of_other_clients_and_lost_ones_change_nothing(make_requests: MakeRequests, answered: Make) -> None:
    n = 300
    served = _served(n, 100.0, np.random.default_rng(3).integers(8, 40, n), 64, seed=5)
    ours = np.arange(n) % 2 == 0
    answers = zip(served.sent[ours], served.first[ours], served.last[ours], strict=True)
    records = [answered(k, sent, sent, [(first, 1), (last, 1)]) for k, (sent, first, last) in enumerate(answers)]
    times = served.times()
    lost = {0, 10, 20, 30}
    found = joined(make_requests(records), [times[k] for k in range(n) if k not in lost], _START_NS)
    off_ms = np.abs(found.server_arrival_ns - _START_NS - 1e6 * served.stamps[ours, 0]) / 1e6
    assert (off_ms[~np.isin(np.flatnonzero(ours), list(lost))] < 0.001).mean() >= 0.95


def _waves(waves: int, users: int, seed: int) -> _Served:
    """``users`` requests within 20 ms, then no other until all have ended: 24 steps of 8 ms, and all end in one."""
    rng = np.random.default_rng(seed)
    parts = []
    for wave in range(waves):
        sent = 400.0 * wave + np.sort(rng.uniform(0.0, 20.0, users))
        arrival = sent + 1.0 + rng.exponential(2.0, users)
        started = np.full(users, arrival.max() + 0.1)
        first, last = started + 8.0, started + 8.0 * 24 + rng.uniform(0.0, 0.01, users)
        client_first = first + rng.permutation(0.3 + np.cumsum(rng.exponential(0.05, users)))
        client_last = last + rng.permutation(0.3 + np.cumsum(rng.exponential(0.05, users)))
        parts.append(_Served(sent, client_first, client_last, np.column_stack([arrival, started, first, last])))
    return _Served(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("sent", "first", "last", "stamps")))


def _records(make: Make, served: _Served) -> list[Record]:
    answers = zip(served.sent.tolist(), served.first.tolist(), served.last.tolist(), strict=True)
    return [make(k, sent, sent, [(first, 1), (last, 1)]) for k, (sent, first, last) in enumerate(answers)]


@pytest.mark.parametrize("users", [48, 100, 256])
def test_all_are_joined_where_one_step_ends_many_answers(make_requests: MakeRequests, answered: Make, users: int) -> None:
    served = _waves(4, users, seed=1)
    times = served.times()
    found = joined(make_requests(_records(answered, served)), list(reversed(times)), _START_NS)
    off_ms = np.abs(found.server_arrival_ns - _START_NS - 1e6 * served.stamps[:, 0]) / 1e6
    assert np.isfinite(off_ms).mean() >= 0.99
    assert np.nanmedian(off_ms) < 3.0  # requests of a wave may be swapped
    assert np.nanmax(off_ms) < 32.0  # within the wave
    queue_ms = served.stamps[:, 1] - served.stamps[:, 0]
    quantiles = (0.5, 0.9, 0.99)
    of_joined = np.nanquantile(found.server_queue_ns / 1e6, quantiles)
    assert of_joined == pytest.approx(np.quantile(queue_ms, quantiles), rel=0.02, abs=0.2)


def test_half_of_a_full_step_may_be_of_other_clients(make_requests: MakeRequests, answered: Make) -> None:
    served = _waves(4, 200, seed=2)
    ours = np.arange(800) % 2 == 0
    own = _Served(served.sent[ours], served.first[ours], served.last[ours], served.stamps[ours])
    found = joined(make_requests(_records(answered, own)), served.times(), _START_NS)
    off_ms = np.abs(found.server_arrival_ns - _START_NS - 1e6 * own.stamps[:, 0]) / 1e6
    assert np.isfinite(off_ms).mean() >= 0.95
    assert np.nanmedian(off_ms) < 3.0
    assert np.nanmax(off_ms) < 32.0
