"""``kill -9`` of a worker, of the parent, of all: what was written down is kept, and every request has its record."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from bench_records.run_folder import RunFolder
from tests.faults.bench_program import Program, bench, check_whole, processes_with, run_bench, token_norm_dist, wait_until
from tests.harness.scripted_server import scripted_server

pytestmark = pytest.mark.slow

_OPTIONS = ["--request_rate", "50", "--workers", "2", "--request_timeout", "20"]


def test_killed_worker_loses_its_requests_and_no_others(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received") as server:
        with bench(tmp_path / "run", *token_norm_dist(server, "paced", 150, *_OPTIONS)) as program:
            program.wait_for_exchanges(30)
            program.workers()[0].kill()
            status = program.end()[0]
        outcomes = check_whole(tmp_path / "run", 150, server)
    assert status == 1
    assert set(outcomes) == {"done", "lost"}
    rows = RunFolder(tmp_path / "run").read_requests().to_pylist()
    lost = {row["index"] % 2 for row in rows if row["outcome"] == "lost"}
    assert len(lost) == 1  # of one worker alone
    assert {row["error"] for row in rows if row["outcome"] == "lost"} == {"its worker ended with status -9"}
    assert "its worker ended with status -9" in run_bench("report", "--full", str(tmp_path / "run")).stdout


def _sent(program: Program) -> int:
    """The requests that the workers report as sent at their end; each is in a journal, and once."""
    sent = 0
    for journal in program.journals():
        indices = [exchange.index for exchange in journal.read_new()]
        assert journal.ended is not None
        assert len(set(indices)) == len(indices) == journal.ended.sent
        sent += len(indices)
    return sent


@pytest.mark.parametrize("closed_loop", [False, True], ids=["open", "closed"])
def test_killed_parent_takes_its_workers_along_and_its_run_can_be_recovered(tmp_path: Path, closed_loop: bool) -> None:
    folder = tmp_path / "run"
    load = ["--concurrency", "6", "--workers", "2"] if closed_loop else _OPTIONS
    with scripted_server(tmp_path / "received") as server:
        with bench(folder, *token_norm_dist(server, "paced", 2_000, *load)) as program:
            program.wait_for_exchanges(30)
            program.process.kill()
            wait_until(lambda: not processes_with(program.mark))
            sent = _sent(program)
        assert "'bench recover" in run_bench("report", str(folder)).stderr
        result = run_bench("recover", str(folder))
        assert result.returncode in (0, 3), result.stderr
        if closed_loop:
            rows = RunFolder(folder).read_requests().to_pylist()
            assert len({row["index"] for row in rows}) == len(rows) == sent  # a request that no user took was never due
            assert set(map(int, server.received())) <= {row["index"] for row in rows}
            outcomes = {row["outcome"] for row in rows}
            assert outcomes == {"done", "cancelled"}
        else:
            counts = check_whole(folder, 2_000, server)
            assert set(counts) == {"done", "cancelled", "not_sent"}  # the workers ended in order: nothing is lost
            rows = RunFolder(folder).read_requests().to_pylist()
            reached = set(map(int, server.received()))
            # One was sent just before its worker cancelled it: a server that reads both at once need not report it.
            assert reached <= {row["index"] for row in rows if row["outcome"] in ("done", "cancelled")}
            assert counts["done"] + counts["cancelled"] == sent
            assert counts["done"] >= 30
    manifest = RunFolder(folder).read_document()[0]
    assert manifest["recovered"]["lost"] == 0
    assert run_bench("report", str(folder)).returncode == result.returncode
    assert "is whole already" in run_bench("recover", str(folder)).stderr


def test_parent_and_workers_killed_at_once_leave_what_was_written_down(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with scripted_server(tmp_path / "received") as server:
        with bench(folder, *token_norm_dist(server, "paced", 500, *_OPTIONS)) as program:
            program.wait_for_exchanges(30)
            everything = [psutil.Process(program.process.pid), *program.workers()]
            for process in everything:
                process.send_signal(signal.SIGSTOP)  # else the workers have the time to see that the parent is gone
            for process in everything:
                process.kill()
            wait_until(lambda: not processes_with(program.mark))
        result = run_bench("recover", str(folder))
        assert result.returncode == 3, result.stderr
        counts = check_whole(folder, 500, server)
    assert set(counts) == {"done", "lost"}
    assert counts["done"] >= 30
    assert f"Written down in 2 journals: {counts['done']} of 500 requests" in result.stderr
    assert f"{counts['lost']:,} are lost" in run_bench("report", "--full", str(folder)).stdout


def test_killed_before_its_first_request_there_is_nothing_to_recover(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with (
        scripted_server(tmp_path / "received") as server,
        bench(folder, *token_norm_dist(server, "mute", 5, "--warmup_requests", "2")) as program,
    ):
        wait_until(lambda: bool(server.received()))  # a warm-up request, which is never answered
        program.process.kill()
        wait_until(lambda: not processes_with(program.mark))  # the workers, too, though they wait for an answer
    for verb in ("report", "recover"):
        result = run_bench(verb, str(folder))
        assert result.returncode == 2
        assert "before its first request" in result.stderr
