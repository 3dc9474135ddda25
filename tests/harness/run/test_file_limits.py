"""The limit of open files: what a run needs by arithmetic, and raising real limits in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.clients.transport.http2_pool import ConnectionLimits
from harness.clients.triton.grpc import TritonGrpcClient, TritonModel
from harness.run.file_limits import InFlight, files_needed, in_flight, most_due_within
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from tests.harness.scripted_server import scripted_server
from workloads.elements.request import Request
from workloads.schedule.schedule import AnyPart, AnySchedule, ClosedPart, ClosedSchedule, OpenPart, Schedule

_S = 1_000_000_000
_MODEL = TritonModel("m", True, frozenset(), frozenset(), ())


class _OneSocketARequest(TritonGrpcClient):
    """As a client of HTTP/1.1 does it."""

    def sockets(self, in_flight: int) -> int:
        return in_flight


def _open_part(*offsets_s: float, ceiling: int | None = None) -> OpenPart:
    return OpenPart(tuple(range(len(offsets_s))), tuple(round(s * _S) for s in offsets_s), ceiling)


def _parts(schedule: AnySchedule, workers: int) -> list[AnyPart]:
    return [schedule.part(number, workers) for number in range(workers)]


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(0, 60))
def test_most_due_within_a_span_is_what_trying_every_span_finds(offsets: list[int], span: int) -> None:
    found = max((sum(start <= offset <= start + span for offset in offsets) for start in offsets), default=0)
    assert most_due_within(sorted(offsets), span) == found


def test_requests_are_in_flight_together_surely_if_due_at_once_and_at_most_while_none_can_have_ended() -> None:
    assert in_flight(_open_part(0, 0, 0, 1, 2, 30), timeout_s=10.0) == InFlight(3, 5)
    assert in_flight(_open_part(0, 0, 0, 1, 2, 30, ceiling=2), timeout_s=10.0) == InFlight(2, 2)
    assert in_flight(_open_part(0, 1, 2, ceiling=50), timeout_s=10.0) == InFlight(1, 3)
    assert in_flight(_open_part(), timeout_s=10.0) == InFlight(0, 0)


def test_users_of_a_closed_loop_are_all_in_flight() -> None:
    assert in_flight(ClosedPart(tuple(range(9)), (0, 0, 5 * _S), None), timeout_s=1.0) == InFlight(3, 3)
    assert in_flight(ClosedPart((7,), (0, 0), None), timeout_s=1.0) == InFlight(1, 1)


def test_need_is_that_of_one_process() -> None:
    requests = tuple(Request(output_tokens=1) for _ in range(3_000))
    http = _OneSocketARequest("x:1", _MODEL, True)
    grpc = TritonGrpcClient("x:1", _MODEL, True, connections=ConnectionLimits(2, 50))
    at_once = Schedule(requests, (0,) * 3_000, seed=0)
    spread = Schedule(requests, tuple(k * _S // 100 for k in range(3_000)), seed=0)
    users = ClosedSchedule(requests, (0,) * 2_000, seed=0)
    own = files_needed(_parts(at_once, 1), (http,), 60.0).at_least - 3_000
    assert 20 < own < 200
    assert files_needed(_parts(at_once, 1), (grpc,), 60.0).at_least == own + 50
    assert files_needed(_parts(at_once, 4), (http,), 60.0).at_least == own + 750  # the limit is each process's own
    assert files_needed(_parts(users, 2), (http,), 60.0).at_least == own + 1_000
    need = files_needed(_parts(spread, 1), (http,), 10.0)
    assert (need.at_least, need.at_most) == (own + 1, own + 1_001)
    assert "--workers" in files_needed(_parts(users, 1_000), (grpc,), 10.0).alternative  # there the parent needs the most
    assert files_needed(_parts(users, 1_000), (grpc,), 10.0).at_least > 1_000


# ---- real limits

_CHILD = """
import json, resource, socket, sys
from harness.errors import RunError
from harness.run.file_limits import FileNeed, allow_files
at_least, at_most, soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    allow_files(FileNeed(at_least, at_most, "for this many requests", "use more --workers"))
    problem = None
except RunError as error:
    problem = str(error)
opened = []
try:
    while len(opened) < at_most - 10:
        opened.append(socket.socket())
except OSError:
    pass
print(json.dumps({"problem": problem, "limit": resource.getrlimit(resource.RLIMIT_NOFILE), "opened": len(opened)}))
"""


def _limited(at_least: int, at_most: int, soft: int, hard: int) -> Any:
    arguments = [sys.executable, "-c", _CHILD, *map(str, (at_least, at_most, soft, hard))]
    return json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)


def test_soft_limit_is_raised_to_what_could_be_needed() -> None:
    found = _limited(300, 900, soft=128, hard=2_048)
    assert found == {"problem": None, "limit": [900, 2_048], "opened": 890}


def test_limit_that_suffices_is_left_alone() -> None:
    assert _limited(100, 200, soft=500, hard=600)["limit"] == [500, 600]


def test_need_that_is_not_certain_is_met_as_far_as_the_hard_limit_goes() -> None:
    found = _limited(300, 5_000, soft=128, hard=512)
    assert (found["problem"], found["limit"]) == (None, [512, 512])
    assert 400 < found["opened"] < 512


def test_hard_limit_below_the_certain_need_is_an_error_with_the_remedy() -> None:
    problem = _limited(3_064, 3_064, soft=128, hard=512)["problem"]
    for words in ("3,064 files", "its limit is 512", "ulimit -n 3064", "LimitNOFILE=3064", "use more --workers"):
        assert words in problem


def _bench(folder: Path, soft: int, hard: int, *options: str) -> subprocess.CompletedProcess[str]:
    """A run from a shell with these limits."""
    lengths = ("--input_mean", "4", "--input_stdev", "0", "--output_mean", "2", "--output_stdev", "0", "--vocab_size", "100")
    limited = ["sh", "-c", f'ulimit -S -n {soft} && ulimit -H -n {hard} && exec "$@"', "sh"]
    bench = [str(Path(sys.executable).with_name("bench")), "token_norm_dist", *lengths, "--run_dir", str(folder), *options]
    return subprocess.run([*limited, *bench], capture_output=True, text=True, check=False)


def test_run_that_cannot_have_its_files_ends_before_it_begins(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "log") as server:
        done = _bench(tmp_path / "run", 64, 80, "--url", server.address, "--model", "scripted", "--num_requests", "5")
        received = server.received()
    assert done.returncode == ExitStatus.FAILED, done.stderr
    assert "files at once for" in done.stderr
    assert "Traceback" not in done.stderr
    assert received == []


@pytest.mark.slow
def test_more_requests_in_flight_over_http_than_the_shell_allows_files(tmp_path: Path) -> None:
    with null_server(NullServerOptions(Pace(first_token_ns=2_000_000_000))) as server:
        target = ("-i", "http", "--url", f"http://{server.http}", "--model", "ensemble", "--workers", "1")
        tokenizer = ("--tokenizer_dir", str(DEMO_ENGINE_DIR))
        done = _bench(tmp_path / "run", 256, 4_096, *target, *tokenizer, "--num_requests", "600", "--warmup_requests", "1")
    assert done.returncode in (ExitStatus.VALID, ExitStatus.INVALID), done.stderr
    assert RunFolder(tmp_path / "run").read_requests().column("outcome").to_pylist() == ["done"] * 600
    connections = RunFolder(tmp_path / "run").read_document()[0]["connections"]
    assert connections["opened"] > 256
