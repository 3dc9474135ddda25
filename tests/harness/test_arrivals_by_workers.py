"""However many workers share a schedule, the target sees the process that was asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.calibration.null_server import NullServerOptions, null_server
from harness.clients.triton_grpc import TritonGrpcClient, inspect_model
from harness.live import Snapshot
from harness.recording import Recorder
from harness.records.run_folder import RunFolder
from harness.records.table import write_table
from harness.run import RunPlan, execute
from reports.arrival_law import Law, check_arrivals, index_of_dispersion
from reports.requests import from_columns
from workloads.arrivals import Exponential
from workloads.load import OpenLoop
from workloads.request import Request

_RATE = 40.0
_COUNT = 240


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_sends_of_many_workers_are_one_poisson_process(tmp_path: Path, workers: int) -> None:
    requests = [Request(output_tokens=1, input_ids=(k,), input_tokens=1, ignore_eos=True) for k in range(_COUNT)]
    schedule = OpenLoop(Exponential(_RATE)).schedule(requests, seed=1)
    folder = RunFolder(tmp_path)

    def quiet(snapshot: Snapshot) -> None:
        pass

    with null_server(NullServerOptions()) as server:
        client = TritonGrpcClient(server.grpc, inspect_model(server.grpc, "tensorrt_llm"), streaming=True)
        result = execute(RunPlan(schedule, client, Recorder(schedule, client), folder, workers, (), 20.0), quiet)
    write_table(result.records, folder.requests)
    sent = from_columns(folder.read_requests)
    test = check_arrivals(sent, Law("exponential", _RATE))
    assert test is not None
    assert not test.rejected
    assert sorted(record.worker for record in result.records if record.worker is not None) == sorted(
        k % workers for k in range(_COUNT)
    )
    planned = index_of_dispersion(np.array(schedule.offsets_ns, dtype=np.float64))
    seen = index_of_dispersion(sent.sent_ns)
    assert planned is not None
    assert seen is not None
    assert 0.7 < planned < 1.4
    assert 0.45 < seen < 2.0  # a busy machine moves some of them; of even gaps it would be 0, of one burst 239
    assert schedule.digest == OpenLoop(Exponential(_RATE)).schedule(requests, seed=1).digest
