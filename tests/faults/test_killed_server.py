"""The server dies, comes back, or takes its leave while requests are in flight."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench_records.run_folder import RunFolder
from tests.faults.bench_program import bench, check_whole, token_norm_dist, wait_until
from tests.free_port import free_port
from tests.harness.scripted_server import scripted_server


def test_server_killed_and_started_again_fails_only_what_fell_between(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(scripted_server(tmp_path / "received", port=free_port()))
        options = ["--request_rate", "50", "--time_delay_dist", "constant", "--request_timeout", "10", "--workers", "2"]
        program = stack.enter_context(bench(tmp_path / "run", *token_norm_dist(first, "paced", 550, *options)))
        program.wait_for_exchanges(30)
        first.kill()
        program.wait_for_exchanges(60)  # these have no server, which takes seconds to start on a busy machine
        again = stack.enter_context(scripted_server(tmp_path / "received", port=first.port))
        status, _, _ = program.end()
        assert status == 1
        outcomes = check_whole(tmp_path / "run", 550, again)
    assert set(outcomes) == {"done", "stream_cut", "connect"}
    kinds = [row["outcome"] for row in RunFolder(tmp_path / "run").read_requests().to_pylist()]
    assert kinds[0] == kinds[-1] == "done"  # it was connected again
    assert outcomes["done"] > 60
    assert kinds.index("stream_cut") < kinds.index("connect")
    last_failure = max(index for index, kind in enumerate(kinds) if kind != "done")
    assert kinds[last_failure + 1 :].count("done") > 20


@pytest.mark.slow
def test_server_that_takes_its_leave_finishes_what_it_has_and_its_successor_gets_the_rest(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(scripted_server(tmp_path / "received", port=free_port()))
        options = ["--request_rate", "40", "--time_delay_dist", "constant", "--request_timeout", "10"]
        program = stack.enter_context(bench(tmp_path / "run", *token_norm_dist(first, "paced", 200, *options)))
        program.wait_for_exchanges(20)
        first.process.send_signal(signal.SIGTERM)  # GOAWAY, in HTTP/2
        wait_until(lambda: first.process.poll() is not None)
        again = stack.enter_context(scripted_server(tmp_path / "received", port=first.port))
        status, _, _ = program.end()
        outcomes = check_whole(tmp_path / "run", 200, again)
        received = set(again.received())
    assert status == 1
    assert outcomes["connect"]
    rows = RunFolder(tmp_path / "run").read_requests().to_pylist()
    # A stream that the connection took after the server had stopped has a status of failure, and no call of its model.
    cut = [row["error"] for row in rows if row["outcome"] != "done" and str(row["index"]) in received]
    assert not cut
    assert rows[0]["outcome"] == rows[-1]["outcome"] == "done"
