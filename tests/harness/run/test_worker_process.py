import multiprocessing
import os
from pathlib import Path

import pytest

from harness.calibration.null_server.server import null_server
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.clients.triton.model import TritonModel
from harness.errors import RunError
from harness.journal.worker_journal import JournalReader
from harness.run.shared_state import Control
from harness.run.worker import WorkerPlan
from harness.run.worker_process import WorkerProcess, start_worker
from workloads.elements.request import Request
from workloads.schedule.schedule import OpenPart

_CLIENT = TritonGrpcClient("h:1", TritonModel("m", True, frozenset({"input_ids"}), frozenset(), ()), True)


def test_a_worker_that_ends_before_it_reads_its_plan_is_an_error(tmp_path: Path) -> None:
    """A plan is longer than what the kernel buffers, so a write to a process that is gone could wait for ever."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=os._exit, args=(2,), name="bench-worker-0")
    process.start()
    theirs.close()
    journal = tmp_path / "journal-0.bin"
    requests = [Request(1, "a" * 100)] * 10_000
    part = OpenPart((0,) * 10_000, (5,) * 10_000, None)
    plan = WorkerPlan(0, _CLIENT, part, requests, [], 5.0, journal, tmp_path / "samples-0.bin", "digest", "ab" * 16)
    worker = WorkerProcess(0, process, ours, JournalReader(journal, "ab" * 16))
    with pytest.raises(RunError, match="bench-worker-0 ended with status 2 before the run began"):
        worker.send_plan(plan)


def test_a_worker_whose_parent_ends_before_it_reads_that_it_is_ready_ends_in_order(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with null_server() as server:
        client = TritonGrpcClient(server.grpc, inspect_model(server.grpc, "tensorrt_llm"), streaming=True)
        paths = tmp_path / "journal-0.bin", tmp_path / "samples-0.bin"
        plan = WorkerPlan(
            0, client, OpenPart((0,), (5,), None), [Request(1, input_ids=(1,))], [], 5.0, *paths, "digest", "ab" * 16
        )
        worker = start_worker(plan, context, Control(context, 1))
        worker.send_plan(plan)
        assert worker.pipe.poll(100.0)
        worker.pipe.close()
        worker.process.join(100.0)
    assert worker.process.exitcode == 0
