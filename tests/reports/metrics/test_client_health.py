"""How the client fared, from its samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench_records.client_sample import ClientSample
from bench_records.client_table import read_client_table, write_client_table
from bench_records.record import Outcome, Record
from reports.metrics.client_health import ClientHealth, LoopLag, ThreadLoad, WakeUps, client_health, wake_ups
from reports.metrics.requests import Requests
from reports.run_report import RunReport
from tests.reports.watched import WorkerUsage, machine_samples, worker_samples

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _health(make_report: MakeReport, records: list[Record], samples: list[ClientSample]) -> ClientHealth:
    health = make_report(records, client=samples).client
    assert health is not None
    return health


def test_a_run_without_samples_knows_nothing_of_its_client(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert make_report(steady_run(5)).client is None


def test_lag_is_summed_up_over_all_workers(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = worker_samples([1.0] * 98 + [5.0, 9.0]) + worker_samples([2.0] * 100, worker=1)
    lag = _health(make_report, steady_run(300), samples).lag
    assert lag is not None
    assert (lag.samples, lag.p50_ms, lag.p99_ms, lag.max_ms) == (200, 2.0, 2.0, 9.0)
    assert lag.mean_ms == pytest.approx((98 + 14 + 200) / 200)


def test_what_an_idle_client_does_is_no_lag_of_the_run(make_report: MakeReport, answered: Callable[..., Record]) -> None:
    """Requests at 0–100 ms and 900–1000 ms: of wake-ups at 25, 50 … 1000 ms the loop's own weather between is left out."""
    records = [answered(0, 0, 0, [(100, 1)], done=100), answered(1, 900, 900, [(1000, 1)], done=1000)]
    lag = _health(make_report, records, worker_samples([30.0 if 5 <= k < 35 else 0.5 for k in range(40)])).lag
    assert lag is not None
    assert (lag.samples, lag.max_ms) == (4 + 5, 0.5)


def test_a_late_wake_up_counts_where_it_was_due_during_a_request(
    make_report: MakeReport, answered: Callable[..., Record]
) -> None:
    records = [answered(0, 0, 0, [(10, 1)], done=10)]
    samples = [ClientSample(time_ns=500_000_000, worker=0, lag_ns=495_000_000, cpu_ns=1)]
    samples.insert(0, ClientSample(time_ns=0, worker=0, cpu_ns=0))
    lag = _health(make_report, records, samples).lag
    assert lag is not None
    assert lag.max_ms == 495.0


def test_shares_are_of_the_time_watched(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = [
        *worker_samples([0.1] * 80, WorkerUsage(cpu_share=0.25, wait_share=0.05, switches=5)),
        *worker_samples([0.1] * 80, WorkerUsage(0.5, wait_share=0.02, switches=5, gc_longest_ms=3), worker=1),
        *machine_samples(2, busy_cores=1.5, steal_cores=0.25),
    ]
    health = _health(make_report, steady_run(200), samples)
    assert [(worker.worker, worker.cpu_share) for worker in health.workers] == [
        (0, pytest.approx(0.25)),
        (1, pytest.approx(0.5)),
    ]
    assert health.busiest is health.workers[1]
    assert health.run_queue_wait_share == pytest.approx(0.05)
    assert health.wait_ms == pytest.approx(0.05 * 25 / 5)
    assert (health.gc_longest_ms, health.workers[1].gc_count) == (3.0, 80)
    assert (health.busy_cores, health.steal_cores) == (pytest.approx(1.5), pytest.approx(0.25))
    assert health.cpu_cores == pytest.approx(0.25 + 0.5 + 0.1)


def test_what_a_worker_waits_for_the_start_is_no_part_of_its_shares(make_report: MakeReport, steady_run: SteadyRun) -> None:
    """A distributed run starts 2 s after its workers begin to sample: a busy worker of a short run looked half idle."""
    busy = worker_samples([0.1] * 80, WorkerUsage(cpu_share=0.9, wait_share=0.06, switches=5))
    waiting = [
        ClientSample(time_ns=at_ms * 1_000_000, worker=0, cpu_ns=1_000, run_queue_wait_ns=0, voluntary_switches=1,
                     involuntary_switches=0, gc_longest_ns=80_000_000, gc_count=1)
        for at_ms in range(-2_000, 0, 100)
    ]  # fmt: skip
    machine = [ClientSample(time_ns=-2_000_000_000, worker=None, cpu_ns=0, busy_ns=0), *machine_samples(2, busy_cores=1.5)]
    health = _health(make_report, steady_run(200), [*waiting, *busy, *machine])
    assert health.busiest is not None
    assert health.busiest.cpu_share == pytest.approx(0.9)
    assert health.run_queue_wait_share == pytest.approx(0.06)
    assert health.gc_longest_ms == 0.0
    assert health.busy_cores == pytest.approx(1.5)


def test_the_shares_of_a_short_run_are_parts_of_the_time_that_its_samples_cover(tmp_path: Path, one_request: Requests) -> None:
    """Two cores were busy for 0.35 s, summed, in the 0.24 s from the last sample before a run of 40 ms to its end: over 40 ms
    they would be nine.
    """
    samples = [
        ClientSample(time_ns=at_ms * 1_000_000, worker=worker, cpu_ns=cpu_ms * 1_000_000, busy_ns=busy_ns)
        for worker, at_ms, cpu_ms, busy_ns in (
            (None, -200, 70, 0), (None, 40, 24, 350_000_000), (0, -130, 50, None), (0, -20, 30, None), (0, 30, 5, None),
        )
    ]  # fmt: skip
    health = _summed(tmp_path, [*samples, _woke(10, 1)], one_request)
    assert health.busy_cores == pytest.approx(350 / 240)
    assert health.parent is not None
    assert health.parent.cpu_share == pytest.approx(24 / 240)
    assert [worker.cpu_share for worker in health.workers] == [pytest.approx(5 / 50)]


def test_what_the_system_does_not_report_is_unknown_and_not_0(make_report: MakeReport, steady_run: SteadyRun) -> None:
    health = _health(make_report, steady_run(50), worker_samples([0.1] * 20, WorkerUsage(wait_share=None)))
    assert (health.run_queue_wait_share, health.wait_ms, health.steal_cores, health.parent, health.cpu_cores) == (None,) * 5


def test_a_worker_of_one_sample_has_no_shares(make_report: MakeReport, steady_run: SteadyRun) -> None:
    health = _health(make_report, steady_run(5), [ClientSample(time_ns=5, worker=0, cpu_ns=3, lag_ns=7)])
    assert health.workers == ()
    assert health.busiest is None


# ---- by hand, from the samples alone


def _summed(tmp_path: Path, samples: list[ClientSample], requests: Requests) -> ClientHealth:
    write_client_table(samples, tmp_path / "client.parquet")
    health = client_health(read_client_table(tmp_path / "client.parquet"), requests)
    assert health is not None
    return health


@pytest.fixture
def one_request(make_requests: Callable[..., Requests], answered: Callable[..., Record]) -> Requests:
    """In flight from 1 to 2 s."""
    return make_requests([answered(0, 1_000, 1_000, [(1_500, 1)], done=2_000)])


def _woke(at_ms: float, lag_ms: float) -> ClientSample:
    return ClientSample(time_ns=round(at_ms * 1e6), worker=0, lag_ns=round(lag_ms * 1e6))


def test_no_samples_are_no_health(tmp_path: Path, one_request: Requests) -> None:
    write_client_table([], tmp_path / "client.parquet")
    assert client_health(read_client_table(tmp_path / "client.parquet"), one_request) is None
    assert client_health(None, one_request) is None


def test_a_worker_s_use_is_of_the_time_between_its_samples(tmp_path: Path, one_request: Requests) -> None:
    """Over 4 s: 1 s of CPU, 0.2 s of waits before 50 runs, two collections of which the longer takes 30 ms."""
    first = ClientSample(
        time_ns=1_000_000_000, worker=3, cpu_ns=400_000_000, run_queue_wait_ns=50_000_000, gc_pause_ns=10_000_000,
        gc_longest_ns=10_000_000, gc_count=1, voluntary_switches=20, involuntary_switches=5,
    )  # fmt: skip
    last = ClientSample(
        time_ns=5_000_000_000, worker=3, cpu_ns=600_000_000, run_queue_wait_ns=150_000_000, gc_pause_ns=30_000_000,
        gc_longest_ns=30_000_000, gc_count=1, voluntary_switches=18, involuntary_switches=7,
    )  # fmt: skip
    health = _summed(tmp_path, [first, _woke(2_000, 1), last], one_request)
    assert health.workers == (
        ThreadLoad(
            worker=3, cpu_share=0.25, run_queue_wait_share=0.05, wait_ms=4.0, involuntary_switches=12, gc_pause_share=0.01,
            gc_longest_ms=30.0, gc_count=2,
        ),
    )  # fmt: skip
    assert (health.parent, health.busy_cores, health.steal_cores, health.cpu_cores) == (None, None, None, None)
    assert (health.run_queue_wait_share, health.wait_ms, health.gc_longest_ms) == (0.05, 4.0, 30.0)


def test_a_count_of_collections_without_their_times_has_no_longest(tmp_path: Path, one_request: Requests) -> None:
    samples = [ClientSample(time_ns=k * 1_000_000_000, worker=0, cpu_ns=1, gc_count=2) for k in range(3)]
    assert _summed(tmp_path, samples, one_request).gc_longest_ms is None


def test_the_parent_s_samples_are_of_the_machine(tmp_path: Path, one_request: Requests) -> None:
    samples = [
        ClientSample(time_ns=at_ns, worker=None, cpu_ns=100, busy_ns=1_000, steal_ns=300, voluntary_switches=0)
        for at_ns in (1_000, 3_000)
    ]
    samples.append(_woke(1_500, 1))  # a worker's, much later
    health = _summed(tmp_path, samples, one_request)
    assert health.parent == ThreadLoad(None, 0.1, None, None, 0, None, None, None)
    assert (health.busy_cores, health.steal_cores) == (1.0, 0.3)
    assert (health.workers, health.busiest) == ((), None)


def test_a_client_s_use_is_that_of_its_workers_and_its_parent(tmp_path: Path, one_request: Requests) -> None:
    samples = [
        ClientSample(time_ns=at_ns, worker=worker, cpu_ns=cpu_ns)
        for worker, cpu_ns in ((10, 200), (2, 400), (None, 100))
        for at_ns in (1_000, 1_500 if worker is None else 3_000 if worker == 2 else 2_000)
    ]
    health = _summed(tmp_path, samples, one_request)
    assert [(load.worker, load.cpu_share) for load in health.workers] == [(2, 0.4), (10, 0.4)]
    assert [str(load.worker) for load in health.workers] == ["2", "10"]
    assert health.parent is not None
    assert health.parent.cpu_share == 0.4
    assert health.cpu_cores == pytest.approx(1.2)
    assert (health.run_queue_wait_share, health.wait_ms, health.gc_longest_ms) == (None, None, None)


def test_a_wake_up_counts_if_it_or_its_due_time_is_during_a_request(tmp_path: Path, one_request: Requests) -> None:
    """A request is in flight from the moment at which it was due until its end, both included."""
    counted = [_woke(1_000, 0.5), _woke(1_500, 2), _woke(2_000, 3), _woke(2_400, 400), _woke(1_100, 500)]
    others = [_woke(999, 70), _woke(2_001, 0.5), _woke(2_100, 99), _woke(900, 80)]
    lag = _summed(tmp_path, [*counted, *others], one_request).lag
    assert lag == LoopLag(mean_ms=905.5 / 5, p50_ms=3.0, p99_ms=500.0, max_ms=500.0, samples=5)
    assert _summed(tmp_path, others, one_request).lag is None


def test_a_request_that_never_ended_or_was_never_sent_keeps_no_loop_busy(
    tmp_path: Path, make_requests: Callable[..., Requests], answered: Callable[..., Record], failed: Callable[..., Record]
) -> None:
    lost = answered(0, 1_000, 1_200, [], outcome=Outcome.LOST, done_ns=None)
    requests = make_requests([lost, failed(1, 500, Outcome.NOT_SENT)])
    lag = _summed(tmp_path, [_woke(600, 1), _woke(1_100, 2), _woke(1_300, 3)], requests).lag
    assert lag is not None
    assert (lag.samples, lag.max_ms) == (1, 2.0)


def test_the_cores_of_another_machine_are_not_the_client_s(tmp_path: Path, one_request: Requests) -> None:
    write_client_table(machine_samples(2), tmp_path / "client.parquet")
    health = client_health(read_client_table(tmp_path / "client.parquet"), one_request, machine_is_its_own=False)
    assert health is not None
    assert health.parent is not None
    assert (health.busy_cores, health.steal_cores) == (None, None)


def test_wake_ups_are_all_that_are_known(tmp_path: Path) -> None:
    write_client_table([_woke(10, 2), *machine_samples(1), _woke(30, 0.5)], tmp_path / "client.parquet")
    found = wake_ups(read_client_table(tmp_path / "client.parquet"))
    assert found is not None
    assert sorted(zip(found.due_ns.tolist(), found.woke_ns.tolist(), strict=True)) == [(8e6, 10e6), (29.5e6, 30e6)]
    write_client_table(machine_samples(1), tmp_path / "client.parquet")
    assert wake_ups(read_client_table(tmp_path / "client.parquet")) is None
    assert wake_ups(None) is None


@pytest.mark.parametrize(
    ("begin_ms", "end_ms", "delay_ms"),
    [
        (0.0, 1_000.0, 70.0),  # all of the longest
        (150.0, 1_000.0, 20.0),  # the last part of it
        (0.0, 120.0, 20.0),
        (110.0, 140.0, 30.0),  # within it
        (20.0, 90.0, 5.0),  # before the longest, and all of another
        (12.0, 90.0, 5.0),
        (200.0, 300.0, 0.0),
        (40.0, 40.0, 0.0),
    ],
)
def test_the_longest_delay_within_a_time_is_the_part_of_a_late_wake_up(begin_ms: float, end_ms: float, delay_ms: float) -> None:
    """Loops were due at 10, 30 and 100 ms, and woke 3, 5 and 70 ms later."""
    loops = WakeUps(1e6 * np.array([10.0, 30.0, 100.0]), 1e6 * np.array([13.0, 35.0, 170.0]))
    assert loops.longest_delay_ms(1e6 * begin_ms, 1e6 * end_ms) == delay_ms
