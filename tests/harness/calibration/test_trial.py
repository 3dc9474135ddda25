"""Golden accuracy, in short: whole runs against a null server, compared with what it stamped. Robust on a busy machine.

`benchmarks/golden_accuracy.py` measures the same in full.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import numpy as np
import pytest

from harness.calibration.calibrate import reason_not_held, subjects_of
from harness.calibration.null_server.pacing import UNPACED
from harness.calibration.null_server.server import NullServerAddresses
from harness.calibration.trial import OverrunError, Subject, run_trial
from workloads.arrivals.processes import AllAtOnce, Constant
from workloads.elements.request import Request
from workloads.schedule.schedule import make_schedule

_REQUEST = Request(30, prompt="some words", input_ids=(1, 2, 3))
TRANSPORTS = ("grpc", "sse")


def _subject(addresses: NullServerAddresses, transport: str) -> Subject:
    return subjects_of(addresses)[transport]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_our_times_are_the_servers_within_what_the_way_adds(paced: NullServerAddresses, transport: str, workers: int) -> None:
    schedule = make_schedule([_REQUEST] * 40, Constant(40.0), seed=0)
    result = run_trial(_subject(paced, transport), schedule, workers)
    assert (result.requests, result.responses, result.failed, result.interrupted) == (40, 40 * 30, 0, False)
    errors = result.errors
    assert (errors.ttft_ms.size, errors.icl_ms.size, errors.e2e_ms.size) == (40, 40 * 29, 40)
    # We send before it receives, and read after it sends: no error can be negative, whatever the machine does.
    assert errors.ttft_ms.min() > 0
    assert errors.e2e_ms.min() > 0
    # What others do on the machine delays many, but not nine in ten; what the client itself adds is in every one.
    assert np.percentile(errors.ttft_ms, 10) < 5
    assert np.percentile(errors.e2e_ms, 10) < 5
    assert np.median(np.abs(errors.icl_ms)) < 5
    assert errors.icl_ms.sum() == pytest.approx((errors.e2e_ms - errors.ttft_ms).sum())  # what one gap gains, others lose
    assert result.server_late_ms.min() >= 0
    assert result.slip_ms.min() >= 0
    assert 0 < result.cpu_s < 60


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_streams_that_all_begin_at_once_are_read_as_they_were_sent(paced: NullServerAddresses, transport: str) -> None:
    result = run_trial(_subject(paced, transport), make_schedule([_REQUEST] * 60, AllAtOnce(), seed=0), 1)
    assert result.responses == 60 * 30
    assert np.median(np.abs(result.errors.icl_ms)) < 20
    assert result.errors.ttft_ms.min() > 0


@pytest.mark.slow
def test_a_run_that_falls_seconds_behind_is_broken_off(paced: NullServerAddresses) -> None:
    subject = replace(_subject(paced, "grpc"), pace=UNPACED)  # as if the server answered at once, which takes it 20 s
    schedule = make_schedule([Request(4_000, input_ids=(1,))] * 2, Constant(100.0), seed=0)
    with pytest.raises(OverrunError):
        run_trial(subject, schedule, 1)
    assert not multiprocessing.active_children()


def test_what_is_not_held_has_a_reason(paced: NullServerAddresses) -> None:
    result = run_trial(_subject(paced, "grpc"), make_schedule([_REQUEST] * 5, Constant(20.0), seed=0), 1)

    def changed(**arrays: list[float]) -> str | None:
        errors = replace(result.errors, ttft_ms=np.array([0.1]), icl_ms=np.array([0.1]))
        calm = replace(result, errors=errors, slip_ms=np.array([0.1]), server_late_ms=np.array([0.1]))
        of_errors = {name: np.array(values) for name, values in arrays.items() if name in ("ttft_ms", "icl_ms")}
        others = {name: np.array(values) for name, values in arrays.items() if name not in of_errors}
        return reason_not_held(replace(calm, errors=replace(errors, **of_errors), **others))

    assert changed() is None
    assert changed(slip_ms=[0.1, 1.0]) is None
    assert changed(slip_ms=[0.1, 1.01]) == "schedule slip p99 1.01 ms"
    assert changed(ttft_ms=[-2.5]) == "TTFT error p99 2.50 ms"
    assert changed(icl_ms=[2.5]) == "inter-chunk latency error p99 2.50 ms"
    assert changed(icl_ms=[2.5], server_late_ms=[7.0]) == (
        "inter-chunk latency error p99 2.50 ms (the null server itself was 7.00 ms late)"
    )
    assert changed(server_late_ms=[7.0]) is None
