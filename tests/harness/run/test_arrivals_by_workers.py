"""However many workers share a schedule, the target sees the process that was requested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench_records.run_folder import RunFolder
from bench_records.table import write_table
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from reports.metrics.arrival_law import check_arrivals, index_of_dispersion
from reports.metrics.configuration import Law
from reports.metrics.requests import Requests, from_columns
from workloads.arrivals.processes import Exponential
from workloads.elements.request import Request
from workloads.schedule.load import OpenLoop
from workloads.schedule.schedule import Schedule

_RATE = 40.0
_COUNT = 240
_REQUESTS = [Request(output_tokens=1, input_ids=(k,), input_tokens=1, ignore_eos=True) for k in range(_COUNT)]
_DIGEST = "d5f5ed1e76411744bb9375c96294094d02fe31c854fa1297d9766e3624994753"
_TRIES = 3
_LATE_NS = 5_000_000  # a fifth of a mean gap: beyond, it is the machine that made the process


def _send(schedule: Schedule, folder: RunFolder, workers: int) -> Requests:
    def quiet(snapshot: Snapshot) -> None:
        pass

    folder.path.mkdir()
    with null_server(NullServerOptions()) as server:
        client = TritonGrpcClient(server.grpc, inspect_model(server.grpc, "tensorrt_llm"), streaming=True)
        plan = RunPlan(schedule, client, Recorder(summarise_schedule(schedule), client), folder, workers, (), 20.0)
        result = Run(plan).execute(quiet)
    assert [record.worker for record in result.records] == [k % workers for k in range(_COUNT)]
    write_table(result.records, folder.requests)
    return from_columns(folder.read_requests)


@pytest.mark.parametrize("workers", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4)), 8])
def test_sends_of_many_workers_are_one_poisson_process(tmp_path: Path, workers: int) -> None:
    for number in range(_TRIES):
        schedule = OpenLoop(Exponential(_RATE)).schedule(_REQUESTS, seed=1)
        assert schedule.digest == _DIGEST
        sent = _send(schedule, RunFolder(tmp_path / str(number)), workers)
        assert sent.scheduled_ns.tolist() == list(schedule.offsets_ns)
        assert (sent.sent_ns >= sent.scheduled_ns).all()
        if np.quantile(sent.sent_ns - sent.scheduled_ns, 0.95) < _LATE_NS:
            break
    else:
        pytest.skip("the machine is too busy to send on time")
    test, index = check_arrivals(sent, Law("exponential", _RATE)), index_of_dispersion(sent.sent_ns)
    assert test is not None
    assert not test.rejected
    assert index is not None
    assert 0.45 < index < 2.0  # of even gaps it would be 0
