import multiprocessing
import os
from pathlib import Path

import pytest

from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.errors import RunError
from harness.journal.worker_journal import JournalReader
from harness.run.worker import WorkerPlan
from harness.run.worker_process import WorkerProcess
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
