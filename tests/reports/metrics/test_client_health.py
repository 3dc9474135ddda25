"""How the client fared, from its samples."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.records.client_sample import ClientSample
from harness.records.record import Record
from reports.metrics.client_health import ClientHealth
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


def test_what_the_system_does_not_report_is_unknown_and_not_0(make_report: MakeReport, steady_run: SteadyRun) -> None:
    health = _health(make_report, steady_run(50), worker_samples([0.1] * 20, WorkerUsage(wait_share=None)))
    assert (health.run_queue_wait_share, health.wait_ms, health.steal_cores, health.parent, health.cpu_cores) == (None,) * 5


def test_a_worker_of_one_sample_has_no_shares(make_report: MakeReport, steady_run: SteadyRun) -> None:
    health = _health(make_report, steady_run(5), [ClientSample(time_ns=5, worker=0, cpu_ns=3, lag_ns=7)])
    assert health.workers == ()
    assert health.busiest is None
