"""Runs that provoke findings, and parts of their manifests. Times are in ms."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from bench_records.record import Outcome, Record
from tests.reports.manifests import asked_load
from workloads.arrivals.processes import Arrivals

Make = Callable[..., Record]

CEILING = {"mode": "open", "max_concurrency": 4, "concurrency": None, "duration_s": None, "ramp_up_s": 0.0}
CLOSED = {"mode": "closed", "max_concurrency": None, "concurrency": 8, "duration_s": 20.0, "ramp_up_s": 0.0, "prepared": 5000}
AT_ONCE = {"mode": "open", "max_concurrency": None, "concurrency": None, "duration_s": None, "ramp_up_s": 0.0}
EXPONENTIAL = asked_load(100.0)


def withdrawn(record: Record, tokens: int) -> Record:
    """``record`` as one that was cancelled as planned after its first ``tokens`` responses of a token each."""
    return replace(
        record,
        outcome=Outcome.WITHDRAWN,
        token_times_ns=record.token_times_ns[:tokens],
        token_counts=(1,) * tokens if tokens else None,
        output_tokens=tokens or None,
        done_ns=record.token_times_ns[tokens] - 1_000_000,
        cancel_after_tokens=max(1, tokens),
    )


def late_sends(answered: Make, slip_ms: float, latency_ms: float, count: int = 50) -> list[Record]:
    """One request each 100 ms, all sent late."""
    return [
        answered(k, 100 * k, 100 * k + slip_ms, [(100 * k + slip_ms + latency_ms, 1)], ignore_eos=False) for k in range(count)
    ]


def stretched_sends(answered: Make, stretch: float) -> list[Record]:
    """A schedule of 100 requests/s, sent at 100 / ``stretch``."""
    return [answered(k, 10 * k, 10 * k * stretch, [(10 * k * stretch + 5_000, 1)]) for k in range(101)]


def cold_start(answered: Make, slow_share: float = 0.1, ratio: float = 3.0, count: int = 1_000) -> list[Record]:
    """Requests every 10 ms with a TTFT of about 50 ms, the first of them ``ratio`` times as long."""
    rng = np.random.default_rng(1)
    ttfts_ms = 50.0 * rng.lognormal(0.0, 0.2, count)
    ttfts_ms[: int(slow_share * count)] *= ratio
    return [answered(k, 10 * k, 10 * k, [(10 * k + ttft, 1), (10 * k + ttft + 5, 1)]) for k, ttft in enumerate(ttfts_ms)]


def paused_streams(answered: Make, pause_ms: float, streams: int = 8) -> list[Record]:
    """Requests of 49 tokens, ``streams`` at once, one token each 20 ms; after 4 s, all of them stop once."""
    records = []
    for k in range(6 * streams):
        due = 1_000.0 * (k // streams) + 100.0 * (k % streams)
        at = [due + 20.0 * step + (pause_ms if due + 20.0 * step > 4_010.0 else 0.0) for step in range(1, 50)]
        records.append(answered(k, due, due, [(ms, 1) for ms in at]))
    return records


def queue_of_one_server(answered: Make, service_ms: float, count: int = 700) -> list[Record]:
    """One server, one arrival each 10 ms: with more than 10 ms of service the queue grows from beginning to end."""
    records, free = [], 0.0
    for k in range(count):
        free = max(free, 10.0 * k) + service_ms
        records.append(answered(k, 10 * k, 10 * k, [(free, 1)], done=free))
    return records


def sends_of(answered: Make, arrivals: Arrivals, count: int = 700) -> list[Record]:
    """Requests sent on time by ``arrivals``, each answered after 100 ms."""
    offsets_ms = arrivals.offsets_ns(count, seed=1) / 1e6
    return [answered(k, at, at, [(at + 100, 1)]) for k, at in enumerate(offsets_ms.tolist())]


def held_at_ceiling(answered: Make, waits_ms: float, share: float = 0.05, slip_ms: float = 0.0) -> list[Record]:
    """700 requests, one each 10 ms, answered 20 ms after the send; the last ``share`` of them waited at the ceiling."""
    records = []
    for k in range(700):
        due = 10 * k
        released = due + (waits_ms if k >= 700 * (1 - share) else 0.0)
        sent = released + slip_ms
        records.append(answered(k, due, sent, [(sent + 20, 1)], released_ns=round(released * 1e6)))
    return records


def closed_loop(answered: Make, users: int, answers: int, latency_ms: float) -> list[Record]:
    """Users that start together and send when the last answer ended. Latencies differ, so that the users drift apart."""
    records, free = [], [(0.0, user) for user in range(users)]
    for k in range(users * answers):
        due, user = min(free)
        sent = due + 0.05
        end = sent + latency_ms * (0.5 + (k * 7919 % 101) / 100)
        records.append(answered(k, due, sent, [(end - 5, 1), (end, 1)], done=end))
        free[user] = (end, user)
    return records


def full_for_moments(answered: Make, slots: int = 52, count: int = 2_000, seed: int = 1) -> list[Record]:
    """Poisson arrivals at a batch of ``slots``, in which an answer takes 0.4 s on average and has its first token about 20 ms
    after it found a place; 42 are in the batch on average.
    """
    rng = np.random.default_rng(seed)
    due_ms = np.cumsum(rng.exponential(10.0, count))
    first_ms, last_ms = 20.0 * rng.lognormal(0.0, 0.2, count), rng.exponential(400.0, count)
    free_ms, records = [0.0] * slots, []
    for k, due in enumerate(due_ms.tolist()):
        begin = max(due, heapq.heappop(free_ms))
        first, end = begin + float(first_ms[k]), begin + float(first_ms[k] + last_ms[k])
        heapq.heappush(free_ms, end)
        records.append(answered(k, due, due, [(first, 1), (end, 1)], done=end))
    return records


def in_step(answered: Make, users: int, latency_s: float, duration_s: float, spread: float = 0.03) -> list[Record]:
    """Users that start together and send until ``duration_s``, each when its last answer ended; all answers take about as long,
    and their ten parts come evenly.
    """
    rng, records = np.random.default_rng(1), []
    free = [(0, user) for user in range(users)]
    while free:
        due_us, user = heapq.heappop(free)
        took_us = round(latency_s * 1e6 * float(rng.lognormal(0.0, spread)))
        tokens = [((due_us + took_us * part // 10) / 1e3, 50) for part in range(1, 11)]
        records.append(answered(len(records), due_us / 1e3, due_us / 1e3, tokens, done=(due_us + took_us) / 1e3))
        if due_us + took_us < duration_s * 1e6:
            heapq.heappush(free, (due_us + took_us, user))
    return records


def served_in_batches(answered: Make, batch: int, services_ms: Sequence[float]) -> list[Record]:
    """Requests that are all sent at once to a target that serves ``batch`` of them at a time, in 50 tokens each."""
    free, records = [0.0] * batch, []
    for number, service_ms in enumerate(services_ms):
        begin = heapq.heappop(free)
        heapq.heappush(free, begin + service_ms)
        tokens = [(begin + service_ms * k / 50, 1) for k in range(1, 51)]
        records.append(answered(number, 0, number / 100, tokens, done=begin + service_ms))
    return records


def dies(answered: Make, failed: Make, at_ms: float = 6_400.0, count: int = 3_000) -> list[Record]:
    """Requests every 10 ms that are answered after about 50 ms, until the server goes; after that no connection is made."""
    ttfts_ms = 50.0 * np.random.default_rng(1).lognormal(0.0, 0.2, count)
    records = []
    for k, ttft in enumerate(ttfts_ms.tolist()):
        at = 10.0 * k
        if at + ttft <= at_ms:
            records.append(answered(k, at, at, [(at + ttft, 1)], done=at + ttft))
        else:
            kind, end = (Outcome.STREAM_CUT, at_ms + 0.1) if at < at_ms else (Outcome.CONNECT, at + 0.5)
            records.append(failed(k, at, kind, at, end))
    return records


def doubled_tokens(answered: Make, doubled: int) -> list[Record]:
    """700 answers of 2 tokens, as requested; the responses of ``doubled`` of them arrived twice."""
    once = [(100, 1), (110, 1)]
    return [
        answered(k, 10 * k, 10 * k, [(10 * k + ms, n) for ms, n in once * (1 + (k < doubled))], requested_output_tokens=2)
        for k in range(700)
    ]


def held_open(answered: Make, held_open_ms: float) -> list[Record]:
    """1,500 streams that stay open after their last token."""
    return [answered(k, 10 * k, 10 * k, [(10 * k + 100, 1)], done=10 * k + 100 + held_open_ms) for k in range(1_500)]


def chunks_joined(answered: Make, joined: int, alone: int) -> list[Record]:
    """``joined`` answers with tokens 20 ms apart, in chunks of unknown counts, and ``alone`` ones with tokens 10 ms apart."""
    return [
        answered(k, 10 * k, 10 * k, [(10 * k + 100, 1), (10 * k + 140, 2)], token_counts=None)
        if k < joined
        else answered(k, 10 * k, 10 * k, [(10 * k + 100, 1), (10 * k + 110, 1), (10 * k + 120, 1)])
        for k in range(joined + alone)
    ]
