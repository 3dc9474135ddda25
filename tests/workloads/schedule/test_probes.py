"""Probes beside a load: a Poisson stream of their own that leaves the load as it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals.processes import AllAtOnce, Exponential
from workloads.elements.errors import WorkloadError
from workloads.elements.request import Request
from workloads.schedule.probes import ProbeStream, probe_offsets_ns, probe_seed, with_probes
from workloads.schedule.schedule import Schedule, SessionSchedule, make_schedule


def _schedule(count: int, seed: int = 3) -> Schedule:
    return make_schedule([Request(50, prompt=f"p{number}") for number in range(count)], Exponential(20.0), seed)


def _probed(plain: Schedule, rate_per_s: float = 2.0) -> Schedule:
    offsets = probe_offsets_ns(ProbeStream(rate_per_s, 4, 2), plain, plain.seed).tolist()
    probed = with_probes(plain, [Request(2, prompt=f"probe {number}") for number in range(len(offsets))], offsets)
    assert isinstance(probed, Schedule)
    return probed


@given(st.integers(0, 2**32), st.integers(1, 300), st.floats(0.1, 20.0))
def test_the_load_is_the_same_request_for_request_with_probes_beside_it(seed: int, count: int, rate_per_s: float) -> None:
    plain = _schedule(count, seed)
    probed = _probed(plain, rate_per_s)
    assert probed.requests[:count] == plain.requests
    assert probed.offsets_ns[:count] == plain.offsets_ns
    assert all(request.traffic_class == "probe" for request in probed.requests[count:])
    assert all(0 < offset_ns < plain.offsets_ns[-1] for offset_ns in probed.offsets_ns[count:])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_send_load_and_probes_in_order_of_time_and_the_load_from_the_same_workers(workers: int) -> None:
    plain, sent = _schedule(200), list[int]()
    probed = _probed(plain)
    for worker in range(workers):
        part = probed.part(worker, workers)
        assert list(part.offsets_ns) == sorted(part.offsets_ns)
        assert tuple(index for index in part.indices if index < 200) == plain.part(worker, workers).indices
        assert part.offsets_ns == tuple(probed.offsets_ns[index] for index in part.indices)
        sent += part.indices
    assert sorted(sent) == list(range(len(probed)))
    assert len(probed) > 200


def test_probes_are_a_poisson_process_of_the_asked_rate() -> None:
    plain = _schedule(40_000)
    offsets = probe_offsets_ns(ProbeStream(5.0, 4, 2), plain, plain.seed)
    expected = 5.0 * plain.offsets_ns[-1] / 1e9
    assert abs(offsets.size - expected) < 4 * np.sqrt(expected)
    gaps = np.diff(offsets)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_probes_come_in_the_silence_before_the_first_request_of_a_trace_s_window() -> None:
    schedule = Schedule(_schedule(2, 0).requests, (10 * 10**9, 11 * 10**9), 0)
    offsets_s = probe_offsets_ns(ProbeStream(20.0, 3, 2), schedule, 0) / 1e9
    assert 150 < np.sum(offsets_s < 10.0) < 250
    assert offsets_s[-1] < 11.0


def test_the_first_probe_does_not_come_with_the_first_request() -> None:
    firsts = [int(probe_offsets_ns(ProbeStream(2.0, 4, 2), _schedule(200, seed), seed)[0]) for seed in range(200)]
    assert np.mean(firsts) / 1e9 == pytest.approx(0.5, rel=0.25)


def test_a_load_that_is_sent_at_once_leaves_no_time_for_probes() -> None:
    at_once = make_schedule([Request(5, prompt="p")] * 10, AllAtOnce(), 3)
    assert probe_offsets_ns(ProbeStream(100.0, 4, 2), at_once, 3).size == 0


def test_probes_end_with_the_last_send_that_has_a_time() -> None:
    turns = tuple(Request(5, prompt="p", session="s") for _ in range(3))
    sessions = SessionSchedule(turns, (0, None, 50_000_000_000), (None, 0, 1), (0, 5, 5), 3)
    offsets = probe_offsets_ns(ProbeStream(2.0, 4, 2), sessions, 3)
    assert 40_000_000_000 < offsets[-1] < 50_000_000_000
    assert offsets.tolist() == Exponential(2.0).offsets_ns(1_000, probe_seed(3))[1 : offsets.size + 1].tolist()
    assert probe_offsets_ns(ProbeStream(2.0, 4, 2), replace(sessions, requests=(), offsets_ns=()), 3).size == 0


def test_a_stream_of_probes_prints_its_lengths_and_its_rate() -> None:
    assert str(ProbeStream(0.5, 16, 4)) == "probes of 16 + 4 tokens at 0.5/s"


def test_their_seed_is_their_own() -> None:
    assert probe_seed(3) != 3
    assert len({probe_seed(seed) for seed in range(1_000)}) == 1_000


def test_probes_are_sessions_of_one_turn_beside_sessions() -> None:
    turns = tuple(Request(5, prompt="p", session="s") for _ in range(3))
    plain = SessionSchedule(turns, (0, None, 9_000), (None, 0, 1), (0, 5, 5), 3)
    probed = with_probes(plain, [Request(1, prompt="x")], [700])
    assert isinstance(probed, SessionSchedule)
    assert probed.requests == (*turns, Request(1, prompt="x", traffic_class="probe"))
    first = replace(probed, requests=turns, offsets_ns=probed.offsets_ns[:3], parents=probed.parents[:3])
    assert replace(first, think_times_ns=probed.think_times_ns[:3]) == plain
    assert (probed.offsets_ns[3], probed.parents[3], probed.think_times_ns[3]) == (700, None, 0)
    assert sorted(probed.part(0, 2).indices + probed.part(1, 2).indices) == [0, 1, 2, 3]


def test_probes_beside_sessions_join_nothing() -> None:
    requests = tuple(Request(5, prompt=str(number)) for number in range(3))
    plain = SessionSchedule(requests, (0, None, None), (None, 0, 0), (0, 0, 0), 1, joins=((), (), (1,)))
    probed = with_probes(plain, [Request(2, prompt="probe")], [7])
    assert isinstance(probed, SessionSchedule)
    assert probed.joins == ((), (), (1,), ())
    assert sorted(index for worker in range(2) for index in probed.part(worker, 2).indices) == [0, 1, 2, 3]


def test_more_probes_than_memory_holds_are_refused_by_their_own_option() -> None:
    schedule = Schedule(_schedule(2).requests, (0, 2_500_000_000_000), 3)
    with pytest.raises(WorkloadError, match=r"^probe_rate 2000\.5: more than 5,000,000 probes in 2,500 s; lower it$"):
        probe_offsets_ns(ProbeStream(2_000.5, 4, 2), schedule, 3)


def test_as_many_probes_as_memory_holds_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.schedule.probes._MOST_PROBES", 10)
    requests = _schedule(2).requests
    probe_offsets_ns(ProbeStream(2.0, 4, 2), Schedule(requests, (0, 5_000_000_000), 3), 3)  # 2 · 5
    with pytest.raises(WorkloadError, match="more than 10 probes in 5 s"):
        probe_offsets_ns(ProbeStream(2.0, 4, 2), Schedule(requests, (0, 5_000_000_001), 3), 3)
