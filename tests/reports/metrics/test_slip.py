"""How late the client sent, by worker and over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bench_records.record import Outcome, Record
from reports.metrics.requests import Requests
from reports.metrics.slip import PARTS, Slip, slip_by_worker, slip_over_time

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def test_each_worker_has_its_own_slip(make_requests: MakeRequests, answered: Make) -> None:
    late_ms = {0: 1.0, 3: 50.0}
    records = [
        answered(k, 10 * k, 10 * k + late_ms[worker] + k, [(10 * k + 100, 1)], worker=worker)
        for k in range(10)
        for worker in [(0, 3)[k % 2]]
    ]
    found = slip_by_worker(make_requests(records))
    assert found == {0: Slip(5, 5.0, 9.0, 9.0), 3: Slip(5, 55.0, 59.0, 59.0)}


def test_a_worker_without_sends_or_unknown_has_no_slip(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [answered(0, 0, 1, [(5, 1)]), failed(1, 10, Outcome.NOT_SENT, worker=1)]
    assert slip_by_worker(make_requests(records)) == {}


def test_a_late_spell_stands_in_its_tenth_of_the_run(make_requests: MakeRequests, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + (30 if 300 <= k < 310 else 1), [(10 * k + 100, 1)]) for k in range(1_001)]
    parts = slip_over_time(make_requests(records))
    assert [part.slip.sends for part in parts] == [100] * 9 + [101]
    assert [part.slip.p99_ms for part in parts] == [1.0] * 3 + [30.0] + [1.0] * 6
    assert (parts[0].start_s, parts[3].start_s, parts[-1].end_s) == (0.0, 3.0, 10.0)


def test_a_part_without_sends_has_no_slip(make_requests: MakeRequests, answered: Make) -> None:
    parts = slip_over_time(make_requests([answered(0, 0, 1, [(5, 1)]), answered(1, 1_000, 1_002, [(1_005, 1)])]))
    assert len(parts) == PARTS
    assert [part.slip for part in parts] == [Slip(1, 1.0, 1.0, 1.0), *[Slip(0, None, None, None)] * 8, Slip(1, 2.0, 2.0, 2.0)]


def test_a_burst_is_one_part_and_no_sends_are_none(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    burst = slip_over_time(make_requests([answered(k, 0, k, [(100, 1)]) for k in range(5)]))
    assert [part.slip for part in burst] == [Slip(5, 2.0, 4.0, 4.0)]
    assert slip_over_time(make_requests([failed(0, 0, Outcome.NOT_SENT)])) == ()


def test_the_wait_at_a_ceiling_is_not_the_client_s(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 501, [(600, 1)], released_ns=500_000_000, worker=0)])
    assert slip_by_worker(requests)[0].max_ms == pytest.approx(1.0)
    assert slip_over_time(requests)[0].slip.max_ms == pytest.approx(1.0)
