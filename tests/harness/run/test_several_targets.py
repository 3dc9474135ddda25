"""Runs of several targets, with real worker processes against scripted servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.run.coordinator import Run, RunPlan
from harness.run.live_statistics import Snapshot
from tests.free_port import free_port
from tests.harness.journal.following import quiet
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted, scripted_server
from workloads.elements.request import Balance
from workloads.schedule.balance import assigned_targets


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """The test may kill the second."""
    with (
        scripted_server(tmp_path / "received-0") as one,
        scripted_server(tmp_path / "received-1", port=free_port()) as other,
    ):
        yield one, other


def _client(server: ScriptedServer, model: str = "scripted") -> TritonGrpcClient:
    return TritonGrpcClient(server.address, inspect_model(server.address, model), streaming=True)


def _plan(
    servers: tuple[ScriptedServer, ScriptedServer], folder: Path, count: int, gap_ms: float, workers: int, **changes: object
) -> RunPlan:
    folder.mkdir(exist_ok=True)
    requests, offsets_ms = [scripted(Act.ANSWER)] * count, [k * gap_ms for k in range(count)]
    plan = make_plan(servers[0].address, folder, requests, offsets_ms, workers, [scripted(Act.ANSWER)] * 4)
    plan = replace(plan, further=(_client(servers[1]),), recorder=replace(plan.recorder, further=(None,)))
    return replace(plan, **changes)  # type: ignore[arg-type]


def test_each_request_goes_to_its_target_whatever_the_number_of_workers(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path
) -> None:
    by_workers = []
    for workers in (1, 2):
        before = [len(server.received()) for server in two]
        plan = _plan(two, tmp_path / str(workers), 40, 2.0, workers)
        result = Run(plan).execute(quiet)
        assert {record.outcome for record in result.records} == {Outcome.DONE}
        targets = tuple(record.target for record in result.records)
        assert targets == assigned_targets(plan.schedule, Balance.ROUND_ROBIN, 2)
        for number, server in enumerate(two):
            own = [str(record.index) for record in result.records if record.target == number]
            received = server.received()[before[number] :]
            assert Counter(own) <= Counter(received)
            assert len(received) == len(own) + 2  # each gets half of the warm-up
        assert result.connections[0] is not None
        assert result.connections[0].per_worker == 16  # eight to each
        by_workers.append((plan.schedule.digest, targets))
    assert by_workers[0] == by_workers[1]


def test_a_target_that_dies_fails_its_own_requests_alone(two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path) -> None:
    def kill_one(snapshot: Snapshot) -> None:
        if snapshot.sent > 10 and two[1].process.poll() is None:
            two[1].kill()

    result = Run(_plan(two, tmp_path / "run", 80, 15.0, 1)).execute(kill_one)
    by_target = {
        target: Counter(record.outcome for record in result.records if record.target == target) for target in (0, 1, None)
    }
    assert by_target[0] == {Outcome.DONE: 40}
    assert sum(by_target[1].values()) == 40
    assert by_target[1][Outcome.CONNECT] > 0
    assert not by_target[None]


def test_by_least_in_flight_a_slow_target_gets_few_requests(two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path) -> None:
    """Tokens of the first target come 1.5 s apart: each of its answers is in flight until the last request was sent."""
    slow = _client(two[0], "held")
    plan = _plan(two, tmp_path / "run", 60, 60.0, 2, client=slow, balance=Balance.LEAST_IN_FLIGHT, warm_up=())
    plan = replace(plan, recorder=replace(plan.recorder, client=slow))
    result = Run(plan).execute(quiet)
    assert {record.outcome for record in result.records} == {Outcome.DONE}
    counts = Counter(record.target for record in result.records)
    assert 1 <= counts[0] <= 15
    folder = RunFolder(tmp_path / "run")
    assert len(folder.journals()) == 2
