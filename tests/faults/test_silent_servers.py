"""Servers that take requests and never answer, or answer only in part: runs end all the same, and soon."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from harness.clients.transport.http2_frames import ErrorCode, FrameType
from harness.clients.transport.http2_pool import ConnectionLimits
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.errors import RunError
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from harness.run.coordinator import Run, RunPlan
from tests.faults.bench_program import bench, check_whole, run_bench, token_norm_dist
from tests.faults.peer_server import peer_server
from tests.faults.unruly_proxy import Breakage, unruly_proxy
from tests.harness.clients.transport.http2_peer import Peer
from tests.harness.journal.following import quiet
from tests.harness.scripted_server import ScriptedServer, scripted_server
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule

pytestmark = pytest.mark.slow

_MODEL = TritonModel("m", True, frozenset({"input_ids", "request_output_len"}), frozenset({"output_ids"}), ())


def _records(address: str, folder: Path, due_ms: Sequence[int], timeout_s: float) -> tuple[Record, ...]:
    """What becomes of a run against a server that is asked nothing but its requests."""
    client = TritonGrpcClient(address, _MODEL, streaming=True, connections=ConnectionLimits(1, 1))
    schedule = Schedule((Request(4, input_ids=(1, 2)),) * len(due_ms), tuple(ms * 1_000_000 for ms in due_ms), 0)
    recorder = Recorder(summarise_schedule(schedule), client)
    records = Run(RunPlan(schedule, client, recorder, RunFolder(folder), 1, (), timeout_s)).execute(quiet).records
    assert [record.index for record in records] == list(range(len(due_ms)))
    return records


def test_server_that_never_answers_lets_every_request_time_out(tmp_path: Path) -> None:
    options = ["--request_rate", "100", "--request_timeout", "1", "--workers", "2"]
    with scripted_server(tmp_path / "received") as server:
        with bench(tmp_path / "run", *token_norm_dist(server, "mute", 100, *options)) as program:
            status, out, _ = program.end()
        assert check_whole(tmp_path / "run", 100, server) == {"timeout": 100}
    assert status == 1
    assert "THIS RUN IS NOT VALID" in out
    assert RunFolder(tmp_path / "run").read_document()[0]["duration_s"] < 30


def test_server_that_falls_silent_in_the_middle_fails_what_came_after(tmp_path: Path) -> None:
    options = ["--request_rate", "50", "--request_timeout", "2"]
    with scripted_server(tmp_path / "received") as server, unruly_proxy(server.port, Breakage.RESET, chance=0) as proxy:
        with bench(tmp_path / "run", *token_norm_dist(proxy.address, "paced", 200, *options)) as program:
            program.wait_for_exchanges(20)
            proxy.deaf = True
            status, _, _ = program.end()
        outcomes = check_whole(tmp_path / "run", 200, server)
    assert status == 1
    assert set(outcomes) <= {"done", "timeout", "connect"}
    assert outcomes["done"] >= 20
    assert outcomes["timeout"] > 20


def test_server_that_sends_headers_alone_lets_every_request_time_out(tmp_path: Path) -> None:
    async def headers_alone(peer: Peer) -> None:
        await peer.start()
        while True:
            peer.headers(await peer.read_request(), [(":status", "200"), ("content-type", "application/grpc")])

    with peer_server(headers_alone) as address:
        records = _records(address, tmp_path, range(0, 200, 10), timeout_s=1.0)
    assert {record.outcome for record in records} == {Outcome.TIMEOUT}
    assert all(record.token_times_ns == () for record in records)


def test_server_that_ends_answers_without_a_status_gave_malformed_ones(tmp_path: Path) -> None:
    async def no_status(peer: Peer) -> None:
        await peer.start()
        while True:
            peer.headers(await peer.read_request(), [(":status", "200")], flags=1)

    with peer_server(no_status) as address:
        records = _records(address, tmp_path, range(0, 50, 10), timeout_s=5.0)
    assert {record.outcome for record in records} == {Outcome.MALFORMED}


def test_requests_that_a_stopping_server_refused_are_reported_and_later_ones_go_to_its_successor(
    tmp_path: Path,
) -> None:
    connections = 0

    async def leaves_after_five(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        is_first = connections == 1
        await peer.start()
        streams = []
        while True:
            streams.append(await peer.read_request())
            if not is_first:
                peer.answer(streams[-1], b"")
            elif len(streams) == 10:
                peer.send(FrameType.GOAWAY, 0, 0, struct.pack(">II", streams[4], ErrorCode.NO_ERROR) + b"restarting")
                await asyncio.sleep(0.2)
                for stream in streams[:5]:
                    peer.answer(stream, b"")

    # The client has read what the server said before it sends the eleventh, on a slow machine too.
    due_ms = (*range(0, 100, 10), *range(2_000, 2_300, 10))
    with peer_server(leaves_after_five) as address:
        records = _records(address, tmp_path, due_ms, timeout_s=10.0)
    outcomes = Counter(record.outcome for record in records)
    refused = [record for record in records if record.outcome is Outcome.CONNECT]
    assert [record.index for record in refused] == [5, 6, 7, 8, 9]
    assert outcomes == {Outcome.DONE: 35, Outcome.CONNECT: 5}
    assert all("has not processed the request: restarting" in (record.error or "") for record in refused)
    assert connections == 2


def test_port_that_only_accepts_connections_ends_the_program_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        result = run_bench(*token_norm_dist(f"127.0.0.1:{listener.getsockname()[1]}", "scripted", 5))
    assert result.returncode == 1
    assert "is this its gRPC port?" in result.stderr
    assert time.monotonic() - began < 100


@pytest.mark.slow
def test_port_that_only_accepts_connections_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(RunError, match="cannot reach the server: UNAVAILABLE: no connection within 20 s"),
    ):
        _records(f"127.0.0.1:{listener.getsockname()[1]}", tmp_path, range(0, 50, 10), timeout_s=1.0)
    assert RunFolder(tmp_path).journals() == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_two_thousand_requests_in_flight_at_once(tmp_path: Path, server: ScriptedServer, workers: str) -> None:
    options = ["--request_rate", "-1", "--request_timeout", "100", "--workers", workers]
    with bench(tmp_path / "run", *token_norm_dist(server, "held", 2_000, "--no_streaming", *options)) as program:
        program.end()
    assert check_whole(tmp_path / "run", 2_000) == {"done": 2_000}
    rows = RunFolder(tmp_path / "run").read_requests().to_pylist()
    assert max(row["sent_ns"] for row in rows) < min(row["done_ns"] for row in rows)  # all were under way together
    assert {row["output_tokens"] for row in rows} == {5}
