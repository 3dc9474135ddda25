"""Phases of requests: known times are found in the right phase, and the phases of every request add up to its latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from bench_records.manifest import ClockOffset, DistributedWorker, Distribution, WorkerClock, manifest_of
from bench_records.record import Outcome, Record
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.metric import Metric
from reports.metrics.request_phases import ClientClock, Phase, PhaseTimes, client_clock, monotonic_start_ns, phase_times
from reports.metrics.requests import Requests
from tests.reports.manifests import clock_readings, run_manifest

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
Bounds = list[tuple[float, float]]  # in ms

_START_NS = 7_000_000_000_000_123  # of the run, on the monotonic clock


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _timed(make: Make, index: int, due: float, parts: dict[Phase, float], *, stamped: bool = True) -> Record:
    """A request with these parts, in ms, two tokens and what the server says of it; with ``stamped`` its arrival, too."""
    sent = due + parts.get(Phase.SLIP, 0.0) + parts.get(Phase.CEILING, 0.0)
    written = sent + parts.get(Phase.CONNECT, 0.0) + parts.get(Phase.SEND, 0.0)
    arrival = written + parts.get(Phase.ROUTER, 0.0) + parts[Phase.FRONT_END]
    first = arrival + parts[Phase.QUEUE] + parts[Phase.PREFILL] + parts[Phase.RETURN]
    return make(
        index,
        due,
        sent,
        [(first, 1), (first + parts[Phase.DECODE], 1)],
        released_ns=_ns(due + parts.get(Phase.CEILING, 0.0)),
        server_arrival_ns=_START_NS + _ns(arrival) if stamped else None,
        server_queue_ns=_ns(parts[Phase.QUEUE]),
        server_prefill_ns=_ns(parts[Phase.PREFILL]),
        server_decode_ns=_ns(parts[Phase.DECODE]),
        connect_ns=_ns(parts[Phase.CONNECT]) if Phase.CONNECT in parts else None,
        router_ns=_ns(parts[Phase.ROUTER]) if Phase.ROUTER in parts else None,
        written_ns=_ns(written) if Phase.SEND in parts else None,
    )


_PARTS = {
    Phase.SLIP: 1.5,
    Phase.CEILING: 4.0,
    Phase.CONNECT: 6.0,
    Phase.SEND: 0.5,
    Phase.ROUTER: 3.0,
    Phase.FRONT_END: 9.0,
    Phase.QUEUE: 70.25,
    Phase.PREFILL: 12.0,
    Phase.DECODE: 30.0,
    Phase.RETURN: 2.5,
}


def _found_ms(times: PhaseTimes, request: int = 0) -> dict[Phase, float]:
    return {phase: float(span[request]) / 1e6 for phase, span in times.by_phase.items()}


def test_each_part_is_found_where_it_is(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([_timed(answered, 0, 100.0, _PARTS)])
    e2e = phase_times(requests, E2E, True, ClientClock(_START_NS))
    assert _found_ms(e2e) == pytest.approx(_PARTS | {Phase.UNATTRIBUTED: 0.0})
    assert (e2e.clock_error_ns, e2e.timed.tolist(), e2e.contradiction_ns.tolist()) == (0.0, [True], [0.0])
    ttft = phase_times(requests, TTFT, True, ClientClock(_START_NS))
    without_decode = {phase: ms for phase, ms in _PARTS.items() if phase is not Phase.DECODE}
    assert _found_ms(ttft) == pytest.approx(without_decode | {Phase.UNATTRIBUTED: 0.0})


@pytest.mark.parametrize("start_ns", [None, _START_NS + 10**15, _START_NS - 10**15])
def test_without_a_common_clock_front_end_and_return_are_unattributed(
    make_requests: MakeRequests, answered: Make, start_ns: int | None
) -> None:
    requests = make_requests([_timed(answered, 0, 100.0, _PARTS)])
    found = phase_times(requests, E2E, True, ClientClock(start_ns))
    assert found.clock_error_ns is None
    assert not {Phase.FRONT_END, Phase.RETURN} & found.by_phase.keys()
    assert _found_ms(found)[Phase.UNATTRIBUTED] == pytest.approx(_PARTS[Phase.FRONT_END] + _PARTS[Phase.RETURN])
    assert _found_ms(found)[Phase.QUEUE] == pytest.approx(_PARTS[Phase.QUEUE])


def _on_another_host(make: Make, drift: float = 0.0) -> list[Record]:
    """400 requests in 40 s to a server whose clock has another origin, and runs ``drift`` faster; its front end takes at least
    2 ms, and the way back at least 1 ms.
    """
    rng = np.random.default_rng(5)
    records = []
    for k in range(400):
        ways = {Phase.FRONT_END: 2.0 + rng.exponential(8.0), Phase.RETURN: 1.0 + rng.exponential(2.0)}
        parts = _PARTS | ways | {Phase.ROUTER: 0.0}
        record = _timed(make, k, 100.0 * k, parts)
        arrival_ns = (record.server_arrival_ns or 0) + 10**15 + round(drift * 1e8 * k)
        records.append(with_fields(record, server_arrival_ns=arrival_ns))
    return records


@pytest.mark.parametrize("start_ns", [None, _START_NS])
def test_another_clock_is_known_by_the_order_of_events(
    make_requests: MakeRequests, answered: Make, start_ns: int | None
) -> None:
    ours = make_requests(
        [with_fields(r, server_arrival_ns=(r.server_arrival_ns or 0) - 10**15) for r in _on_another_host(answered)]
    )
    truth = phase_times(ours, TTFT, True, ClientClock(_START_NS))
    found = phase_times(make_requests(_on_another_host(answered)), TTFT, True, ClientClock(start_ns))
    assert found.clock_error_ns is not None
    assert 0.5e6 < found.clock_error_ns < 2.5e6
    for phase in (Phase.FRONT_END, Phase.RETURN):
        assert np.abs(found.by_phase[phase] - truth.by_phase[phase]).max() <= found.clock_error_ns
    both = found.by_phase[Phase.FRONT_END] + found.by_phase[Phase.RETURN]
    np.testing.assert_array_equal(both, truth.by_phase[Phase.FRONT_END] + truth.by_phase[Phase.RETURN])
    assert not found.contradiction_ns.any()


@pytest.mark.parametrize(("off_ms", "found_ms"), [(0.4, 0.3), (-0.4, -0.3)])
def test_a_start_that_is_read_late_is_moved_until_no_event_comes_before_its_cause(
    make_requests: MakeRequests, answered: Make, off_ms: float, found_ms: float
) -> None:
    """The process was kept from running between the readings of the two clocks."""
    ways = [(0.1, 5.0), (3.0, 0.1)]  # in ms, to the server and back
    parts = [_PARTS | {Phase.SEND: 0.0, Phase.ROUTER: 0.0, Phase.FRONT_END: there, Phase.RETURN: back} for there, back in ways]
    requests = make_requests([_timed(answered, k, 100.0 * k, each) for k, each in enumerate(parts)])
    found = phase_times(requests, TTFT, True, ClientClock(_START_NS + _ns(off_ms)))
    assert found.clock_error_ns == _ns(abs(found_ms))
    assert not found.contradiction_ns.any()
    assert not found.by_phase[Phase.UNATTRIBUTED].any()


def _offset(ns: int, uncertainty_ns: int) -> ClockOffset:
    return ClockOffset(ns, uncertainty_ns, at_ns=0)


_MINUTE = 60_000.0  # ms between requests, which no bound is near


def _bounded(make: Make, number: int, earliest_ms: float, latest_ms: float, decode_ms: float = 0.0) -> Record:
    """A request of 200 ms whose times say that the run began at ``earliest_ms`` to ``latest_ms`` on the server's clock. All of
    its tokens come together, after ``decode_ms``.
    """
    due, took_ms = number * _MINUTE, 200.0
    in_engine_ms = earliest_ms - latest_ms + took_ms
    of_server = {"server_queue_ns": _ns(in_engine_ms - decode_ms), "server_prefill_ns": 0, "server_decode_ns": _ns(decode_ms)}
    return make(number, due, due, [(due + took_ms, 1)], server_arrival_ns=_ns(due + latest_ms), **of_server)


@pytest.mark.parametrize("decode_ms", [0.0, 1.0])
@pytest.mark.parametrize(
    ("bounds_ms", "start_ms", "error_ms"),
    [
        ([(0.0, 10.0)], 5.0, 5.0),
        ([(0.0, 10.000_001)], 5.0, 5.000_000_5),  # the start is a whole number
        ([(0.0, 20.0)], 10.0, 10.0),
        ([(0.0, 20.1)], None, 10.05),  # off by more than 5 % of 200 ms
        ([(0.0, 10.0), (4.0, 12.0)], 7.0, 3.0 + 3.0),
        ([(4.0, 12.0), (0.0, 10.0)], 7.0, 3.0 + 3.0),
        ([(0.0, 10.0), (4.0, 12.0), (5.0, 16.0)], 7.5, 2.5 + 3.5),  # the second half is 5 to 12
        ([(3.0, 4.0), (0.0, 8.0), (0.0, 8.0), (2.0, 5.0)], 3.5, 0.5),
        ([(5.0, 5.0), (0.0, 10.0)], 5.0, 0.0),
        ([(0.0, 4.0), (4.000_001, 8.0)], None, 0.0),  # they contradict each other
    ],
)
def test_the_start_by_bounds_is_their_middle_and_as_uncertain_as_they_and_its_drift(
    make_requests: MakeRequests,
    answered: Make,
    bounds_ms: Bounds,
    start_ms: float | None,
    error_ms: float | None,
    decode_ms: float,
) -> None:
    """The middle of the first half of the requests and that of the second half differ by the drift."""
    records = [_bounded(answered, k, earliest, latest, decode_ms) for k, (earliest, latest) in enumerate(bounds_ms)]
    found = phase_times(make_requests(records), TTFT, True, ClientClock())
    assert found.clock_error_ns == (None if start_ms is None else pytest.approx(error_ms * 1e6, abs=0.01))
    if start_ms is None:
        assert not {Phase.FRONT_END, Phase.RETURN} & found.by_phase.keys()
        return
    ways = zip(found.by_phase[Phase.FRONT_END].tolist(), found.by_phase[Phase.RETURN].tolist(), strict=True)
    assert list(ways) == [(_ns(latest - start_ms), _ns(start_ms - earliest + decode_ms)) for earliest, latest in bounds_ms]


@pytest.mark.parametrize(
    ("bounds_ms", "late_ms", "error_ms"),
    [
        ([(-0.5, 0.5), (0.25, 0.75)], 0.25, 0.25),
        ([(-0.5, 0.25), (0.25, 0.75)], 0.25, 0.25),
        ([(-0.9, -0.5), (0.5, 0.9)], 0.0, 0.0),  # each may be off by 1 ms, and they contradict each other
        ([(0.999_999, 5.0)], 0.999_999, 0.999_999),
        ([(1.0, 5.0)], 3.0, 2.0),  # off by 1 ms or more: not in order, and known by bounds alone
        ([(-5.0, -0.999_999)], -0.999_999, 0.999_999),
        ([(-5.0, -1.0)], -3.0, 2.0),
        ([(-0.5, 0.5)] * 99 + [(40.0, 50.0)], 0.0, 0.0),
        ([(-0.5, 0.5)] * 98 + [(40.0, 50.0)] * 2, None, None),  # too many of them are not in order
    ],
)
def test_a_start_that_is_known_is_moved_by_what_the_events_in_order_show(
    make_requests: MakeRequests, answered: Make, bounds_ms: Bounds, late_ms: float | None, error_ms: float | None
) -> None:
    requests = make_requests([_bounded(answered, k, *bounds) for k, bounds in enumerate(bounds_ms)])
    found = phase_times(requests, TTFT, True, ClientClock(0))
    assert found.clock_error_ns == (None if error_ms is None else _ns(error_ms))
    if late_ms is not None:
        assert found.by_phase[Phase.FRONT_END].tolist() == [max(0.0, _ns(latest - late_ms)) for _, latest in bounds_ms]


def test_events_may_be_out_of_order_by_the_error_of_a_worker_s_clock(make_requests: MakeRequests, answered: Make) -> None:
    """The server took the request in 1.5 ms before its worker sent it, by a clock that may be 2 ms off."""
    record = with_fields(_bounded(answered, 0, -4.0, -1.5), worker=1)
    assert phase_times(make_requests([record]), TTFT, True, ClientClock(0, {1: _ns(2)})).clock_error_ns == _ns(2 + 1.5)


@pytest.mark.parametrize(("off_ms", "error_ms"), [(10.0, 10.0), (10.000_001, 5.0)])
def test_a_worker_s_clock_that_is_off_by_more_than_a_twentieth_of_the_wait_is_not_used(
    make_requests: MakeRequests, answered: Make, off_ms: float, error_ms: float
) -> None:
    """A wait of 200 ms for the first token; by bounds, the start is known to 5 ms."""
    record = with_fields(_bounded(answered, 0, -4.0, 6.0), worker=1)
    found = phase_times(make_requests([record]), TTFT, True, ClientClock(0, {1: _ns(off_ms)}))
    assert found.clock_error_ns == _ns(error_ms)


def test_a_request_without_a_worker_is_stamped_by_the_measuring_host(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([_timed(answered, 0, 0.0, _PARTS)])
    assert phase_times(requests, TTFT, True, ClientClock(_START_NS, {0: _ns(0.5)})).clock_error_ns == 0.0


def test_workers_that_send_to_a_target_each_have_clocks_of_their_own(make_requests: MakeRequests, answered: Make) -> None:
    """The first worker sent nothing to the first target."""
    records = [with_fields(_bounded(answered, k, 1e3 * k, 1e3 * k + 8.0), worker=k, target=1 - k) for k in range(2)]
    found = phase_times(make_requests(records), TTFT, True, ClientClock(None, dict.fromkeys(range(2), math.inf)))
    assert (found.by_phase[Phase.FRONT_END] / 1e6).tolist() == [4.0, 4.0]


def _of_worker(make: Make, worker: int, off_ms: float) -> list[Record]:
    """20 requests of a worker whose run began ``off_ms`` later than that of the measuring host."""
    records = [_timed(make, 2 * k + worker, 100.0 * k, _PARTS) for k in range(20)]
    return [with_fields(r, worker=worker, server_arrival_ns=(r.server_arrival_ns or 0) + round(off_ms * 1e6)) for r in records]


def test_stamps_of_a_worker_elsewhere_are_as_uncertain_as_its_clock(make_requests: MakeRequests, answered: Make) -> None:
    """The ways there and back are longer than that, so that no event shows that the worker began 0.4 ms late."""
    requests = make_requests(_of_worker(answered, 0, 0.0) + _of_worker(answered, 1, 0.4))
    found = phase_times(requests, TTFT, True, ClientClock(_START_NS, {1: _ns(0.5)}))
    assert found.clock_error_ns == _ns(0.5)
    for phase in (Phase.FRONT_END, Phase.RETURN):
        assert np.abs(found.by_phase[phase] / 1e6 - _PARTS[phase]).max() <= 0.5
    assert phase_times(requests, TTFT, True, ClientClock(_START_NS)).clock_error_ns == 0.0


def test_a_worker_elsewhere_without_a_clock_is_known_by_the_order_of_its_own_events(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests(_of_worker(answered, 0, 0.0) + _of_worker(answered, 1, 10_000.0))
    found = phase_times(requests, TTFT, True, ClientClock(_START_NS, {1: float("inf")}))
    elsewhere = requests.worker == 1
    assert np.unique(found.by_phase[Phase.FRONT_END][~elsewhere]) == pytest.approx(_ns(_PARTS[Phase.FRONT_END]))
    assert Phase.UNATTRIBUTED in found.by_phase
    assert not found.contradiction_ns.any()


def test_targets_on_two_hosts_have_a_clock_each(make_requests: MakeRequests, answered: Make) -> None:
    """The second host started later, so that no clock fits both."""
    records = [_timed(answered, k, 100.0 * k, _PARTS) for k in range(40)]
    requests = make_requests(
        [
            with_fields(r, target=k % 2, server_arrival_ns=(r.server_arrival_ns or 0) - (k % 2) * 10**15)
            for k, r in enumerate(records)
        ]
    )
    found = phase_times(requests, E2E, True, ClientClock(_START_NS))
    on_our_host = requests.target == 0
    for phase in (Phase.FRONT_END, Phase.RETURN):
        assert found.by_phase[phase][on_our_host] == pytest.approx(_ns(_PARTS[phase]))
    assert not found.by_phase[Phase.UNATTRIBUTED][on_our_host].any()
    together_ms = _PARTS[Phase.ROUTER] + _PARTS[Phase.FRONT_END] + _PARTS[Phase.RETURN]
    shown = sum(found.by_phase[phase] for phase in (Phase.ROUTER, Phase.FRONT_END, Phase.RETURN, Phase.UNATTRIBUTED))
    assert shown == pytest.approx(_ns(together_ms))


def test_the_decode_of_an_unstreamed_answer_is_no_return(make_requests: MakeRequests, answered: Make) -> None:
    """The server says nothing of its decode, and the client has all tokens at the end; where it does, there is no stream."""
    record = _timed(answered, 0, 0.0, _PARTS)
    at_end = record.token_times_ns[-1]
    at_once = with_fields(record, token_times_ns=(at_end, at_end), server_decode_ns=None)
    found = _found_ms(phase_times(make_requests([at_once]), E2E, False, ClientClock(_START_NS)))
    assert Phase.RETURN not in found
    assert found[Phase.UNATTRIBUTED] == pytest.approx(_PARTS[Phase.DECODE] + _PARTS[Phase.RETURN])
    decoded = make_requests([with_fields(record, token_times_ns=(at_end, at_end))])
    assert _found_ms(phase_times(decoded, E2E, False, ClientClock(_START_NS))) == pytest.approx(
        _PARTS | {Phase.UNATTRIBUTED: 0.0}
    )


def test_the_return_is_that_of_the_token_to_which_the_server_timed_the_answer(
    make_requests: MakeRequests, answered: Make
) -> None:
    """The stream took 30 ms, and the decode 28: the last token returned 2 ms later. The decode of the second is unknown."""
    record = _timed(answered, 0, 100.0, _PARTS)
    decoded = with_fields(record, server_decode_ns=_ns(28))
    requests = make_requests([decoded, with_fields(record, index=1, server_decode_ns=None)])
    found = phase_times(requests, E2E, True, ClientClock(_START_NS))
    shown = {phase: (found.by_phase[phase] / 1e6).tolist() for phase in (Phase.DECODE, Phase.STREAM, Phase.RETURN)}
    assert shown == {Phase.DECODE: [28.0, 0.0], Phase.STREAM: [0.0, 30.0], Phase.RETURN: [4.5, 2.5]}
    assert found.by_phase[Phase.UNATTRIBUTED].tolist() == [0.0, 0.0]


def test_decode_beside_prefill_is_a_part_of_the_decode(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([_timed(answered, k, 100.0 * k, _PARTS) for k in range(3)])
    beside = replace(requests, server_beside_prefill_ns=np.array([12e6, 31e6, np.nan]))
    found = phase_times(beside, E2E, True, ClientClock(_START_NS))
    parts = [(found.by_phase[Phase.DECODE] / 1e6).tolist(), (found.by_phase[Phase.DECODE_BESIDE_PREFILL] / 1e6).tolist()]
    assert parts == [[18.0, 0.0, 30.0], [12.0, 30.0, 0.0]]


@pytest.mark.parametrize(
    ("clock", "error_ns"),
    [
        (WorkerClock(_offset(7, 2_000), _offset(7, 3_000)), 3_000.0),
        (WorkerClock(_offset(7, 4_000), _offset(7, 3_000)), 4_000.0),
        (WorkerClock(_offset(7, 2_000), _offset(90_007, 3_000)), 93_000.0),
        (WorkerClock(_offset(7, 2_000), _offset(7, 3_000), jump_ns=-500), 3_500.0),
        (WorkerClock(_offset(7, 2_000), None), math.inf),
        (WorkerClock(None, _offset(7, 2_000)), math.inf),
        (None, math.inf),
    ],
)
def test_the_clock_of_a_worker_elsewhere_is_off_by_what_was_found_at_the_start_and_the_end(
    clock: WorkerClock | None, error_ns: float
) -> None:
    worker = DistributedWorker(number=3, host="b", clock=clock)
    manifest = with_fields(manifest_of(run_manifest()), distribution=Distribution(workers=(worker,)))
    assert client_clock(manifest) == ClientClock(None, {3: error_ns})


def test_a_run_of_this_host_has_no_clock_elsewhere() -> None:
    manifest = manifest_of(run_manifest(**clock_readings(), started_at="2026-11-22T01:23:51.000007+00:00"))
    start_ns = monotonic_start_ns(manifest)
    assert start_ns is not None
    assert client_clock(manifest) == ClientClock(start_ns, {})


@pytest.mark.parametrize("drift", [-1e-3, 1e-3])
def test_a_clock_that_drifts_too_much_is_not_used(make_requests: MakeRequests, answered: Make, drift: float) -> None:
    """40 ms within the run, more than the shortest way there and back."""
    found = phase_times(make_requests(_on_another_host(answered, drift)), TTFT, True, ClientClock())
    assert found.clock_error_ns is None
    assert Phase.FRONT_END not in found.by_phase


def test_a_server_without_stamps_leaves_the_rest_unattributed(make_requests: MakeRequests, answered: Make) -> None:
    found = phase_times(make_requests([_timed(answered, 0, 0.0, _PARTS, stamped=False)]), TTFT, True, ClientClock(_START_NS))
    assert list(found.by_phase) == [
        Phase.SLIP,
        Phase.CEILING,
        Phase.CONNECT,
        Phase.SEND,
        Phase.ROUTER,
        Phase.QUEUE,
        Phase.PREFILL,
        Phase.UNATTRIBUTED,
    ]
    assert _found_ms(found)[Phase.UNATTRIBUTED] == pytest.approx(_PARTS[Phase.FRONT_END] + _PARTS[Phase.RETURN])


def test_the_client_alone_knows_slip_and_stream(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 10, 13, [(60, 1), (100, 1)])])
    e2e, ttft = (phase_times(requests, metric, True, ClientClock(_START_NS)) for metric in (E2E, TTFT))
    assert _found_ms(e2e) == {Phase.SLIP: 3.0, Phase.STREAM: 40.0, Phase.UNATTRIBUTED: 47.0}
    assert _found_ms(ttft) == {Phase.SLIP: 3.0, Phase.UNATTRIBUTED: 47.0}
    assert not ttft.timed.any()
    unstreamed = phase_times(make_requests([answered(0, 10, 13, [(100, 2)])]), E2E, False, ClientClock())
    assert _found_ms(unstreamed) == {Phase.SLIP: 3.0, Phase.UNATTRIBUTED: 87.0}


def _alone(make: Make, index: int = 0, **fields: object) -> Record:
    """A request of 100 ms to the first token, sent in 2 ms after 3 of slip, whose head came after 60 ms of waiting."""
    return make(index, 0, 3, [(100, 1), (140, 1)], **({"written_ns": _ns(5), "head_ns": _ns(65)} | fields))


def test_the_client_alone_knows_its_send_and_the_first_byte(make_requests: MakeRequests, answered: Make) -> None:
    found = phase_times(make_requests([_alone(answered)]), E2E, True, ClientClock(_START_NS))
    assert _found_ms(found) == {
        Phase.SLIP: 3.0, Phase.SEND: 2.0, Phase.FIRST_BYTE: 60.0, Phase.STREAM: 40.0, Phase.UNATTRIBUTED: 35.0,
    }  # fmt: skip
    with_token = with_fields(_alone(answered), head_ns=_ns(100), connect_ns=_ns(1))
    found = phase_times(make_requests([with_token]), TTFT, True, ClientClock(_START_NS))
    assert _found_ms(found) == {
        Phase.SLIP: 3.0, Phase.CONNECT: 1.0, Phase.SEND: 1.0, Phase.FIRST_BYTE: 95.0, Phase.UNATTRIBUTED: 0.0,
    }  # fmt: skip


def test_over_tls_the_wait_for_the_first_byte_has_the_send(make_requests: MakeRequests, answered: Make) -> None:
    found = phase_times(make_requests([_alone(answered, written_ns=None)]), TTFT, True, ClientClock(_START_NS))
    assert _found_ms(found) == {Phase.SLIP: 3.0, Phase.FIRST_BYTE: 62.0, Phase.UNATTRIBUTED: 35.0}


def test_a_router_s_time_is_no_part_of_the_wait_for_the_first_byte(make_requests: MakeRequests, answered: Make) -> None:
    for router_ms, left_ms in ((20.0, 40.0), (61.0, 0.0)):
        record = _alone(answered, router_ns=_ns(router_ms))
        found = phase_times(make_requests([record]), TTFT, True, ClientClock(_START_NS))
        assert (_found_ms(found)[Phase.ROUTER], _found_ms(found)[Phase.FIRST_BYTE]) == (60.0 - left_ms, left_ms)
        assert found.contradiction_ns.tolist() == [0.0]


@pytest.mark.parametrize(
    "of_server",
    [
        {"server_queue_ns": _ns(30), "server_prefill_ns": _ns(40)},
        {"server_prefill_ns": _ns(40)},
        {"server_decode_ns": _ns(39)},
    ],
)
def test_where_the_server_timed_a_request_the_head_s_place_in_that_time_is_unknown(
    make_requests: MakeRequests, answered: Make, of_server: dict[str, int]
) -> None:
    """vLLM's comes before the queue, and Triton's with the first token. A decode ends at the server before it ends here."""
    found = phase_times(make_requests([_alone(answered, **of_server)]), E2E, True, ClientClock(_START_NS))
    assert Phase.FIRST_BYTE not in found.by_phase
    assert sum(_found_ms(found).values()) == 140.0
    ttft = phase_times(make_requests([_alone(answered, **of_server)]), TTFT, True, ClientClock(_START_NS))
    assert (Phase.FIRST_BYTE in ttft.by_phase) is (list(of_server) == ["server_decode_ns"])


def test_a_stamp_of_the_send_that_came_late_takes_nothing_of_what_followed(make_requests: MakeRequests, answered: Make) -> None:
    """The client lost its core between the write and the stamp, and the server began meanwhile."""
    late = with_fields(_timed(answered, 0, 0.0, _PARTS), written_ns=_ns(400.0))
    found = phase_times(make_requests([late]), TTFT, True, ClientClock(_START_NS))
    assert found.contradiction_ns.tolist() == [0.0]
    assert _found_ms(found)[Phase.SEND] == _PARTS[Phase.SEND] + _PARTS[Phase.ROUTER] + _PARTS[Phase.FRONT_END]
    assert _found_ms(found)[Phase.QUEUE] == _PARTS[Phase.QUEUE]
    found = phase_times(make_requests([_alone(answered, written_ns=_ns(80))]), TTFT, True, ClientClock(_START_NS))
    assert (_found_ms(found)[Phase.SEND], _found_ms(found)[Phase.FIRST_BYTE]) == (62.0, 0.0)
    assert found.contradiction_ns.tolist() == [0.0]


def test_a_request_that_the_server_did_not_time_is_unattributed_among_others(
    make_requests: MakeRequests, answered: Make
) -> None:
    """None of the time of others is spread over it."""
    requests = make_requests([_timed(answered, 0, 100.0, _PARTS), answered(1, 10, 13, [(60, 1), (100, 1)])])
    found = phase_times(requests, E2E, True, ClientClock(_START_NS))
    assert found.timed.tolist() == [True, False]
    assert {phase: ms for phase, ms in _found_ms(found, 1).items() if ms} == {
        Phase.SLIP: 3.0, Phase.STREAM: 40.0, Phase.UNATTRIBUTED: 47.0,
    }  # fmt: skip
    assert _found_ms(found, 0)[Phase.STREAM] == 0.0
    of_client = (Phase.SLIP, Phase.UNATTRIBUTED)
    assert {phase: which.tolist() for phase, which in found.sourced.items()} == {
        phase: [phase is not Phase.STREAM, phase in (*of_client, Phase.STREAM)] for phase in found.by_phase
    }


def test_parts_that_are_longer_than_the_whole_contradict_it(make_requests: MakeRequests, answered: Make) -> None:
    """The server says 200 ms of a request that the client had after 100 ms."""
    requests = make_requests([answered(0, 0, 0, [(100, 1)], server_queue_ns=_ns(150), server_prefill_ns=_ns(50))])
    found = phase_times(requests, TTFT, True, ClientClock())
    assert _found_ms(found) == {Phase.SLIP: 0.0, Phase.QUEUE: 150.0, Phase.PREFILL: 50.0, Phase.UNATTRIBUTED: 0.0}
    assert found.contradiction_ns.tolist() == [-_ns(100)]


def test_a_router_has_no_more_than_the_way_to_the_engine(make_requests: MakeRequests, answered: Make) -> None:
    """What Envoy says has the way back to the client, too, and half a ms of rounding."""
    record = _timed(answered, 0, 0.0, _PARTS)
    way_ms = _PARTS[Phase.ROUTER] + _PARTS[Phase.FRONT_END]
    found = phase_times(make_requests([with_fields(record, router_ns=_ns(way_ms + 0.4))]), E2E, True, ClientClock(_START_NS))
    assert _found_ms(found) == pytest.approx(_PARTS | {Phase.ROUTER: way_ms, Phase.FRONT_END: 0.0, Phase.UNATTRIBUTED: 0.0})
    assert found.contradiction_ns.tolist() == [0.0]


def test_what_has_no_latency_has_no_phases(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    requests = make_requests([answered(0, 0, 0, [(5, 1)]), failed(1, 0, Outcome.REFUSED, 0, 5), failed(2, 9, Outcome.NOT_SENT)])
    found = phase_times(requests, E2E, True, ClientClock())
    for span in (found.latency_ns, found.contradiction_ns, *found.by_phase.values()):
        assert np.isnan(span).tolist() == [False, True, True]
    assert all(which.tolist() == [True, False, False] for which in found.sourced.values())


_SPAN = st.integers(0, 10**12)
_MAYBE = st.none() | _SPAN


@st.composite
def _any_request(draw: st.DrawFn) -> Record:
    """Any times that a client records in order, with anything that a server may say of them."""
    due = draw(st.integers(-(10**9), 10**13))
    released = due + draw(_SPAN)
    sent = released + draw(_SPAN)
    first = sent + draw(_SPAN)
    last = first + draw(_SPAN)
    return Record(
        index=draw(st.integers(0, 2**31)),
        outcome=Outcome.DONE,
        scheduled_ns=due,
        requested_output_tokens=2,
        released_ns=draw(st.sampled_from([released, None])),
        sent_ns=sent,
        done_ns=last,
        token_times_ns=draw(st.sampled_from([(first, last), (last,), ()])),
        output_tokens=2,
        server_arrival_ns=draw(st.none() | st.integers(0, 10**13)),
        server_queue_ns=draw(_MAYBE),
        server_prefill_ns=draw(_MAYBE),
        server_decode_ns=draw(_MAYBE),
        connect_ns=draw(_MAYBE),
        router_ns=draw(_MAYBE),
        written_ns=draw(_MAYBE),
        head_ns=draw(_MAYBE),
    )


@settings(max_examples=60, deadline=None)
@given(
    records=st.lists(_any_request(), min_size=1, max_size=5, unique_by=lambda record: record.index),
    start_ns=st.none() | st.integers(-(10**12), 10**12),
    streaming=st.booleans(),
    metric=st.sampled_from([TTFT, E2E]),
)
def test_phases_add_up_exactly_and_none_is_negative(
    make_requests: MakeRequests, records: list[Record], start_ns: int | None, streaming: bool, metric: Metric
) -> None:
    found = phase_times(make_requests(records), metric, streaming, ClientClock(start_ns))
    together = sum(found.by_phase.values()) + found.contradiction_ns
    np.testing.assert_array_equal(together, found.latency_ns)
    known = ~np.isnan(found.latency_ns)
    assert all((span[known] >= 0).all() for span in found.by_phase.values())
    assert (found.contradiction_ns[known] <= 0).all()


# ---- the start of the run on the monotonic clock


def test_the_start_follows_from_the_wall_clock_and_its_difference() -> None:
    offset_ns = clock_readings()["clock"]["before"]["realtime_minus_monotonic_ns"]
    started = {"started_at": "2026-11-22T01:23:51.000007+00:00"}
    found = monotonic_start_ns(manifest_of(run_manifest(**clock_readings(), **started)))
    assert found == 1_795_310_631_000_007_000 - offset_ns


@pytest.mark.parametrize(
    "facts", [{}, {"started_at": "2026-11-22T01:23:51+00:00"}, clock_readings(), clock_readings() | {"started_at": "soon"}]
)
def test_the_start_is_unknown_where_one_of_them_is(facts: dict[str, object]) -> None:
    assert monotonic_start_ns(manifest_of(run_manifest(**facts))) is None
