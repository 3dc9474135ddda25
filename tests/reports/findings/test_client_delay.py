"""What kept a client from sending: the first cause whose evidence is at hand."""

from __future__ import annotations

from typing import Any

import pytest

from reports.findings.client_delay import REMEDIES, DelayCause, cause_of, likely_cause
from reports.metrics.client_health import ClientHealth, LoopLag, ThreadLoad

_QUIET: dict[str, Any] = {
    "steal_cores": 0.0,
    "gc_longest_ms": 0.0,
    "cpu_share": 0.1,
    "run_queue_wait_share": 0.0,
    "lag_max_ms": 0.0,
}


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        ({}, DelayCause.NOT_CPU),
        ({"steal_cores": 0.05}, DelayCause.NOT_CPU),
        ({"steal_cores": 0.051}, DelayCause.STEAL),
        ({"gc_longest_ms": 5.0}, DelayCause.NOT_CPU),  # half of the delay
        ({"gc_longest_ms": 5.1}, DelayCause.COLLECTIONS),
        ({"cpu_share": 0.80}, DelayCause.NOT_CPU),
        ({"cpu_share": 0.81}, DelayCause.BUSY),
        ({"run_queue_wait_share": 0.05}, DelayCause.NOT_CPU),
        ({"run_queue_wait_share": 0.051}, DelayCause.DISPLACED),
        ({"lag_max_ms": 5.0}, DelayCause.NOT_CPU),
        ({"lag_max_ms": 5.1}, DelayCause.LATE_LOOP),
        ({"cpu_share": None}, DelayCause.UNKNOWN),
        ({"run_queue_wait_share": None}, DelayCause.UNKNOWN),
        ({"run_queue_wait_share": None, "lag_max_ms": 9.0}, DelayCause.UNKNOWN),
        ({"steal_cores": None, "gc_longest_ms": None, "lag_max_ms": None}, DelayCause.NOT_CPU),
        ({"cpu_share": None, "run_queue_wait_share": 0.5}, DelayCause.DISPLACED),
        ({"lag_max_ms": 9.0, "run_queue_wait_share": 0.5}, DelayCause.DISPLACED),
        ({"run_queue_wait_share": 0.5, "cpu_share": 0.9}, DelayCause.BUSY),
        ({"cpu_share": 0.9, "gc_longest_ms": 9.0}, DelayCause.COLLECTIONS),
        ({"gc_longest_ms": 9.0, "steal_cores": 1.0}, DelayCause.STEAL),
    ],
)
def test_the_first_cause_of_a_delay_of_10_ms_that_its_evidence_explains(found: dict[str, Any], cause: DelayCause) -> None:
    assert likely_cause(10.0, **_QUIET | found) is cause


def test_pauses_of_unknown_length_do_not_explain_the_shortest_delay() -> None:
    assert likely_cause(0.1, **_QUIET | {"gc_longest_ms": None, "lag_max_ms": None}) is DelayCause.NOT_CPU


def _worker(cpu: float, waited: float | None, gc_ms: float | None = None) -> ThreadLoad:
    return ThreadLoad(0, cpu, waited, None, 0, None, gc_ms, None)


def _client(*workers: ThreadLoad, lag_ms: float | None = None, steal_cores: float | None = None) -> ClientHealth:
    lag = None if lag_ms is None else LoopLag(0.0, 0.0, 0.0, lag_ms, 100)
    return ClientHealth(lag, workers, None, None, steal_cores)


@pytest.mark.parametrize(
    ("client", "cause"),
    [
        (None, DelayCause.UNKNOWN),
        (_client(), DelayCause.UNKNOWN),
        (_client(_worker(0.1, 0.0)), DelayCause.NOT_CPU),
        (_client(_worker(0.1, 0.0), _worker(0.9, 0.0)), DelayCause.BUSY),
        (_client(_worker(0.1, 0.2), _worker(0.2, 0.0)), DelayCause.DISPLACED),
        (_client(_worker(0.1, 0.0, 9.0)), DelayCause.COLLECTIONS),
        (_client(_worker(0.1, 0.0), lag_ms=9.0), DelayCause.LATE_LOOP),
        (_client(_worker(0.1, 0.0), steal_cores=0.5), DelayCause.STEAL),
    ],
)
def test_the_evidence_is_of_the_client_s_probes(client: ClientHealth | None, cause: DelayCause) -> None:
    assert cause_of(client, 10.0) is cause
    assert cause in REMEDIES
