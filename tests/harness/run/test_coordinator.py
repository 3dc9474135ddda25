"""Whole runs, with real worker processes against a real gRPC server that follows a script."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_records.record import Outcome, Record, TokenSource
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.errors import RunError
from harness.host.signals import signals_blocked
from harness.journal.worker_journal import JournalReader
from harness.observation.sample_file import read_samples
from harness.recording.run_result import RunResult
from harness.run import local_pool
from harness.run.coordinator import Phase, Run, RunPlan
from harness.run.live_statistics import Snapshot
from harness.run.local_pool import LocalPool
from harness.run.worker_pool import RunWorker
from harness.run.worker_process import WorkerProcess
from tests.free_port import free_port
from tests.harness.journal.following import once, quiet
from tests.harness.run import execute_script
from tests.harness.run.execute_script import SEND_TOKENS, make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted, scripted_server
from tests.processes import is_at_work, words_of

BOTH = pytest.mark.parametrize("workers", [1, 2])
SEVERAL = pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])


def _check_accounted_for(plan: RunPlan, result: RunResult) -> None:
    assert [record.index for record in result.records] == list(range(len(plan.schedule)))
    assert [record.scheduled_ns for record in result.records] == list(plan.schedule.offsets_ns)
    assert not _workers()


def _workers() -> list[BaseProcess]:
    """The workers of runs that are alive; a process of another kind may be left of an earlier test."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("bench-worker-")]


def _outcomes(result: RunResult) -> Counter[Outcome]:
    return Counter(record.outcome for record in result.records)


# ---- a run without faults


def test_a_repeated_run_has_no_record_of_the_first_and_its_journal_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The schedule is the same, and so are worker and place of the journal."""
    with scripted_server(tmp_path / "received") as server:
        first = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 6, [0.0] * 6, 1)
        Run(first).execute(quiet)
        journal = first.folder.journal(0)
        before = journal.read_bytes()
        again = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 6, [0.0] * 6, 1)
        result = Run(again).execute(quiet)
    assert first.schedule.digest == again.schedule.digest
    assert first.run_id != again.run_id
    assert _outcomes(result) == {Outcome.DONE: 6}
    assert (tmp_path / "journal-0.bin.aside-1").read_bytes() == before
    assert f"{journal} of an earlier run was in the way: it is kept as journal-0.bin.aside-1" in capfd.readouterr().err
    assert sorted(exchange.index for exchange in JournalReader(journal, again.run_id).read_rest()) == list(range(6))


@BOTH
def test_every_scheduled_request_is_sent_once_and_has_one_record(tmp_path: Path, workers: int) -> None:
    with scripted_server(tmp_path / "received") as server:
        offsets_ms = [k * 2.5 for k in range(120)]
        plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 5)] * 120, offsets_ms, workers)
        result = Run(plan).execute(quiet)
        assert sorted(server.received(), key=int) == [str(index) for index in range(120)]
    _check_accounted_for(plan, result)
    assert _outcomes(result) == {Outcome.DONE: 120}
    for record in result.records:
        assert (record.output_tokens, record.output_tokens_source, record.token_counts) == (3, TokenSource.IDS, (1, 1, 1))
        assert record.worker == record.index % workers
        assert record.sent_ns is not None
        assert record.done_ns is not None
        assert record.scheduled_ns <= record.sent_ns < record.token_times_ns[0]
        assert list(record.token_times_ns) == sorted(record.token_times_ns)
        assert record.token_times_ns[-1] <= record.done_ns
        assert record.token_times_ns[0] - record.sent_ns >= 4_000_000  # the server's own 5 ms, less its timer's grain
    assert (result.interrupted, result.warm_up_failures) == (False, ())
    assert result.duration_s >= 0.2975


def _environment(worker: RunWorker) -> bytes:
    assert isinstance(worker, WorkerProcess)
    return Path(f"/proc/{worker.process.pid}/environ").read_bytes()


def test_numpy_has_one_thread_in_a_worker_and_its_setting_ends_there(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is spawned, as a user's is: a fork has the environment of the server that it comes from."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_pool, "multiprocessing", multiprocessing)
    run = Run(make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [300], 1))
    seen: list[bytes] = []
    run.execute(lambda _: seen or seen.append(_environment(run.workers[0])))
    assert {f"{name}=1".encode() for name in names} <= set(seen[0].split(b"\0"))
    assert not any(name in os.environ for name in names)


@SEVERAL
def test_each_kind_of_ending_is_recorded_as_what_it_is(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    expected = {
        Act.ANSWER: (Outcome.DONE, 4),
        Act.ERROR: (Outcome.SERVER_ERROR, 2),
        Act.STATUS: (Outcome.SERVER_ERROR, 2),
        Act.HANG: (Outcome.TIMEOUT, 2),
        Act.FULL: (Outcome.REFUSED, 0),
        Act.SILENT: (Outcome.MALFORMED, 0),
        Act.GARBAGE: (Outcome.MALFORMED, 0),
    }
    acts = list(expected) * 3
    plan = make_plan(server.address, tmp_path, [scripted(act) for act in acts], range(len(acts)), workers)
    plan = replace(plan, timeout_s=4.0)
    result = Run(plan).execute(quiet)
    _check_accounted_for(plan, result)
    for act, record in zip(acts, result.records, strict=True):
        assert (act, record.outcome, record.output_tokens or 0) == (act, *expected[act])
        assert (record.error is None) == (record.outcome is Outcome.DONE)
        assert len(record.token_times_ns) == expected[act][1]


@pytest.mark.parametrize(("model", "streaming"), [("scripted", False), ("unary", False)])
def test_unstreamed_answers(tmp_path: Path, server: ScriptedServer, model: str, streaming: bool) -> None:
    requests = [scripted(Act.ANSWER, 5), scripted(Act.FULL)]
    plan = make_plan(server.address, tmp_path, requests, [0, 0], 1)
    client = TritonGrpcClient(server.address, inspect_model(server.address, model), streaming)
    plan = replace(plan, client=client, recorder=replace(plan.recorder, client=client))
    done, full = Run(plan).execute(quiet).records
    assert (done.outcome, done.token_counts, len(done.token_times_ns)) == (Outcome.DONE, (5,), 1)
    assert full.outcome is Outcome.REFUSED


def test_late_requests_go_at_once_and_keep_their_scheduled_time(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 50, [0] * 50, workers=1)
    result = Run(plan).execute(quiet)
    _check_accounted_for(plan, result)
    assert _outcomes(result) == {Outcome.DONE: 50}
    sent = [record.sent_ns or 0 for record in result.records]
    assert sent == sorted(sent)
    assert len(set(sent)) == 50


def test_more_workers_than_requests(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 2, [0, 1], workers=3)
    assert _outcomes(Run(plan).execute(quiet)) == {Outcome.DONE: 2}


@SEVERAL
def test_journals_alone_hold_every_exchange(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 9, range(9), workers)
    result = Run(plan).execute(quiet)
    again: list[Record] = []
    for worker in range(workers):
        exchanges = JournalReader(plan.folder.journal(worker)).read_new()
        again += [plan.recorder.record(exchange, worker) for exchange in exchanges]
    assert sorted(again, key=lambda record: record.index) == list(result.records)


def test_progress_ends_with_all_that_happened(tmp_path: Path, server: ScriptedServer) -> None:
    snapshots: list[Snapshot] = []
    requests = [scripted(Act.ANSWER, 3, 40)] * 8 + [scripted(Act.FULL)] * 2
    Run(make_plan(server.address, tmp_path, requests, [k * 200 for k in range(10)], 2)).execute(snapshots.append)
    assert (snapshots[-1].sent, snapshots[-1].done, snapshots[-1].failed, snapshots[-1].in_flight) == (10, 8, 2, 0)
    assert any(0 < snapshot.sent < 10 for snapshot in snapshots)
    assert [s.sent for s in snapshots] == sorted(s.sent for s in snapshots)


def test_the_state_of_a_run_can_be_read_while_it_goes_on(tmp_path: Path, server: ScriptedServer) -> None:
    phases: list[Phase] = []
    run = Run(make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 3, 40)] * 8, [k * 400 for k in range(8)], 2))
    assert (run.phase, run.start, run.snapshot, run.workers) == (Phase.PREPARING, None, None, ())

    def on_progress(snapshot: Snapshot) -> None:
        assert run.snapshot is snapshot
        assert [worker.number for worker in run.workers] == [0, 1]
        phases.append(run.phase)
        if snapshot.done >= 2 and run.phase is Phase.RUNNING:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    result = run.execute(on_progress)
    assert phases[0] is Phase.RUNNING
    assert phases[-1] is Phase.DRAINING
    assert run.phase is Phase.ENDED
    assert run.start is not None
    assert run.start.at == result.started_at
    assert all(worker.journal.ended is not None and not worker.is_alive for worker in run.workers)
    assert result.interrupted


# ---- warm-up


def test_warm_up_comes_before_the_clock_and_is_in_no_record(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received") as server:
        warm_up = [scripted(Act.ANSWER)] * 3
        plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 4, range(4), 2, warm_up)
        result = Run(plan).execute(quiet)
        assert len(server.received()) == 7
    assert _outcomes(result) == {Outcome.DONE: 4}
    assert result.warm_up_failures == ()


def test_warm_up_that_fails_in_part_is_reported(tmp_path: Path, server: ScriptedServer) -> None:
    warm_up = [scripted(act) for act in (Act.ANSWER, Act.ERROR, Act.FULL, Act.STATUS, Act.GARBAGE)]
    result = Run(make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1, warm_up)).execute(quiet)
    stream_error, full, status, garbage = result.warm_up_failures
    assert stream_error == "scripted error"
    assert "maximum queue size" in full
    assert status == "server_error: INTERNAL: scripted error"
    assert garbage.startswith("not a Triton response")
    assert _outcomes(result) == {Outcome.DONE: 1}


def test_warm_up_that_fails_altogether_ends_the_run_with_the_reason(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1, [scripted(Act.ERROR)] * 2)
    with pytest.raises(RunError, match="every warm-up request failed; the first error: scripted error"):
        Run(plan).execute(quiet)
    assert not _workers()


def test_warm_up_that_hangs_ends_with_the_requests_time_limit(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1, [scripted(Act.HANG)])
    plan = replace(plan, timeout_s=0.3)
    with pytest.raises(RunError, match="timeout: DEADLINE_EXCEEDED"):
        Run(plan).execute(quiet)


# ---- faults


def _kill_worker(number: int) -> None:
    (worker,) = [worker for worker in _workers() if worker.name == f"bench-worker-{number}"]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)


@BOTH
def test_killed_worker_loses_its_own_requests_and_no_others(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 4, 10)] * 400, [k * 12 for k in range(400)], workers)
    result = Run(plan).execute(once(lambda snapshot: snapshot.done >= 40, lambda: _kill_worker(workers - 1)))
    _check_accounted_for(plan, result)
    mine = [record for record in result.records if record.index % workers == workers - 1]
    others = [record for record in result.records if record.index % workers != workers - 1]
    assert {record.outcome for record in others} <= {Outcome.DONE}
    kinds = [record.outcome for record in mine]
    assert set(kinds) == {Outcome.DONE, Outcome.LOST}
    assert kinds[-1] is Outcome.LOST  # what it had recorded before is kept, though not always in the order of sending
    assert kinds.count(Outcome.DONE) >= 20 // workers
    for record in mine:
        if record.outcome is Outcome.LOST:
            assert record.error == "its worker ended with status -9"
            assert (record.sent_ns, record.done_ns, record.worker, record.output_tokens) == (None, None, None, None)
    assert result.interrupted is False
    assert [usage is None for usage in result.connections] == [worker == workers - 1 for worker in range(workers)]


@SEVERAL
def test_killed_server_gives_failures_by_their_kind(tmp_path: Path, workers: int) -> None:
    with scripted_server(tmp_path / "received", port=free_port()) as server:
        requests = [scripted(Act.ANSWER, 4, 50)] * 400  # 200 ms each, so about 20 are in flight at any time
        plan = make_plan(server.address, tmp_path, requests, [k * 10 for k in range(400)], workers)
        result = Run(plan).execute(once(lambda snapshot: snapshot.done >= 5, server.kill))
    _check_accounted_for(plan, result)
    counts = _outcomes(result)
    assert set(counts) == {Outcome.DONE, Outcome.STREAM_CUT, Outcome.CONNECT}
    assert counts[Outcome.DONE] >= 5
    cut = [record for record in result.records if record.outcome is Outcome.STREAM_CUT]
    assert any(0 < (record.output_tokens or 0) < 4 for record in cut)  # what had arrived is kept
    refused = [record for record in result.records if record.outcome is Outcome.CONNECT]
    assert all(record.error and record.sent_ns is not None and not record.output_tokens for record in refused)


def test_journal_that_cannot_be_written_stops_the_sending_and_what_was_recorded_stands(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with _executing(server, tmp_path, 2, _Load(count=400, gap_ms=5, act=Act.ANSWER), file_limit=16_384) as run:
        result = _result(run)
    records = result["records"]
    kinds = Counter(record["outcome"] for record in records)
    assert set(kinds) == {"done", "lost", "not_sent"}
    assert kinds["done"] >= 20
    assert kinds["not_sent"] > 200
    assert records[0]["outcome"] == "done"
    for record in records:
        if record["outcome"] == "lost":
            assert record["error"] == "it was sent, but its exchange could not be written to disk"
    assert "File too large" in result["problem"]
    assert result["interrupted"] is False
    assert "File too large" in records[-1]["error"] or "File too large" in records[-2]["error"]
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_worker_killed_before_the_start_ends_the_run(tmp_path: Path, server: ScriptedServer) -> None:
    with _executing(server, tmp_path, 2, _Load(count=5, gap_ms=5, act=Act.ANSWER)) as run:
        os.kill(_worker_processes(run)[0].pid, signal.SIGKILL)
        assert _result(run)["raised"] == "RunError: bench-worker-0 ended with status -9 before the run began"


@pytest.mark.slow
def test_a_target_that_does_not_listen_ends_the_run(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received", port=free_port()) as server:
        plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1)
    with pytest.raises(
        RunError, match="bench-worker-0 cannot reach the server: UNAVAILABLE: cannot connect: Connection refused"
    ):
        Run(plan).execute(quiet)


# ---- signals


@dataclass(frozen=True)
class _Load:
    """``count`` requests of one Act, ``gap_ms`` apart."""

    count: int
    gap_ms: int
    act: Act


@contextmanager
def _executing(
    server: ScriptedServer, folder: Path, workers: int, load: _Load, file_limit: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    numbers = [str(number) for number in (workers, load.count, load.gap_ms)]
    limit = [] if file_limit is None else [str(file_limit)]
    process = subprocess.Popen(
        [sys.executable, execute_script.__file__, server.address, str(folder), *numbers, load.act.name, *limit],
        stdout=subprocess.PIPE,
        stderr=(folder / "stderr").open("w"),
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        for left in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            left.kill()
        process.kill()
        process.wait()


def _wait_for_sent(run: subprocess.Popen[str], count: int) -> None:
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("sent ") and int(line.split()[1]) >= count:
            return
    raise AssertionError(f"the run ended before it had sent {count}")


def _wait_for(run: subprocess.Popen[str], awaited: str) -> None:
    assert run.stdout is not None
    assert any(line.strip() == awaited for line in run.stdout), f"the run ended before it printed {awaited!r}"


def _worker_processes(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """The run's workers, as soon as there is one, in the order of their start."""
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        children = psutil.Process(run.pid).children()
        found = [child for child in children if any("spawn_main" in word for word in words_of(child))]
        if found:
            return sorted(found, key=lambda child: child.pid)
        time.sleep(0.005)
    raise AssertionError("no worker was started")


def _result(run: subprocess.Popen[str]) -> Any:
    assert run.stdout is not None
    lines = run.stdout.read().splitlines()
    assert run.wait(120) == 0
    return json.loads(lines[-1])


@pytest.mark.parametrize(
    ("workers", "send", "number"),
    [
        pytest.param(1, os.kill, signal.SIGINT, id="sigint"),
        pytest.param(2, os.killpg, signal.SIGINT, id="ctrl_c_reaches_the_group"),
        pytest.param(2, os.kill, signal.SIGTERM, id="sigterm"),
        pytest.param(1, os.killpg, signal.SIGTERM, id="sigterm_to_the_group"),
    ],
)
def test_first_signal_stops_sending_drains_and_keeps(
    tmp_path: Path, server: ScriptedServer, workers: int, send: Callable[[int, int], None], number: signal.Signals
) -> None:
    with _executing(server, tmp_path, workers, _Load(count=2_000, gap_ms=5, act=Act.ANSWER)) as run:
        _wait_for_sent(run, 20)
        send(run.pid, number)
        result = _result(run)
    assert result["interrupted"] is True
    kinds = [record["outcome"] for record in result["records"]]
    assert len(kinds) == 2_000
    done = kinds.count("done")
    assert 20 <= done < 2_000
    assert kinds.count("not_sent") == 2_000 - done  # what was in flight came to its end
    assert {record["output_tokens"] for record in result["records"]} == {SEND_TOKENS, None}  # no answer is cut
    assert result["records"][-1]["error"] == "the run was stopped before its time"


@SEVERAL
def test_first_signal_ends_a_long_pause_between_arrivals(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    with _executing(server, tmp_path, workers, _Load(count=4, gap_ms=600_000, act=Act.ANSWER)) as run:
        _wait_for_sent(run, 1)
        os.kill(run.pid, signal.SIGINT)
        result = _result(run)
    assert [record["outcome"] for record in result["records"]] == ["done", "not_sent", "not_sent", "not_sent"]


@SEVERAL
def test_second_signal_breaks_off_what_is_in_flight_and_keeps_its_part(
    tmp_path: Path, server: ScriptedServer, workers: int
) -> None:
    with _executing(server, tmp_path, workers, _Load(count=2_000, gap_ms=5, act=Act.HANG)) as run:
        _wait_for_sent(run, 30)
        os.kill(run.pid, signal.SIGINT)
        _wait_for(run, "stopping")
        assert run.poll() is None  # it waits for answers that do not come
        os.kill(run.pid, signal.SIGINT)
        result = _result(run)
    assert result["interrupted"] is True
    kinds = Counter(record["outcome"] for record in result["records"])
    assert set(kinds) == {"cancelled", "not_sent"}
    assert kinds["cancelled"] >= 30
    first = result["records"][0]
    assert (first["output_tokens"], first["error"]) == (SEND_TOKENS // 2, "the run was stopped")


@SEVERAL
def test_signal_while_the_workers_start_ends_the_run(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    with _executing(server, tmp_path, workers, _Load(count=5, gap_ms=5, act=Act.ANSWER)) as run:
        _worker_processes(run)
        os.kill(run.pid, signal.SIGINT)
        assert _result(run) == {"raised": "KeyboardInterrupt"}


def _wait_until_it_imports(worker: psutil.Process) -> None:
    """Return while the worker loads its modules, some way before it comes to run_worker."""
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        if any("cygrpc" in mapped.path for mapped in worker.memory_maps()):
            return
        time.sleep(0.001)
    raise AssertionError("the worker never loaded gRPC")


@SEVERAL
def test_ctrl_c_while_the_workers_start_ends_the_run_without_a_traceback(
    tmp_path: Path, server: ScriptedServer, workers: int
) -> None:
    with _executing(server, tmp_path, workers, _Load(count=5, gap_ms=5, act=Act.ANSWER)) as run:
        _wait_until_it_imports(_worker_processes(run)[0])
        os.killpg(run.pid, signal.SIGINT)
        assert _result(run) == {"raised": "KeyboardInterrupt"}
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_signal_that_another_thread_takes_before_the_start_ends_the_run(tmp_path: Path, server: ScriptedServer) -> None:
    """A caller that blocks the signals blocks them in its own thread alone; the handler of the others' holds them."""
    released = threading.Event()
    thread = threading.Thread(target=released.wait, args=(30.0,))
    thread.start()
    assert thread.ident is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with signals_blocked():
            signal.pthread_kill(thread.ident, signal.SIGINT)
            time.sleep(0.05)
            with pytest.raises(KeyboardInterrupt):
                Run(make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1)).execute(quiet)
    finally:
        signal.signal(signal.SIGINT, before)
        released.set()
        thread.join()


def test_handlers_are_restored_after_the_run(tmp_path: Path, server: ScriptedServer) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    Run(make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1)).execute(quiet)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_parent_that_is_killed_leaves_no_worker_behind(tmp_path: Path, server: ScriptedServer) -> None:
    with _executing(server, tmp_path, 2, _Load(count=2_000, gap_ms=20, act=Act.ANSWER)) as run:
        _wait_for_sent(run, 3)
        workers = _worker_processes(run)
        run.kill()
        deadline = time.monotonic() + 120.0
        while alive := [worker for worker in workers if is_at_work(worker)]:
            if time.monotonic() > deadline:
                for worker in alive:
                    worker.kill()
            assert time.monotonic() < deadline
            time.sleep(0.02)


# ---- what is watched beside the exchanges


def test_watching_begins_after_the_warm_up_and_ends_when_every_worker_has(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    @contextmanager
    def watch(server: ScriptedServer) -> Iterator[Callable[[int], None]]:
        seen.append(("entered", len(server.received())))
        yield lambda start_ns: seen.append(("start", start_ns))
        seen.append(("left", len(server.received()) + len(set(_workers()) - others)))

    others = set(_workers())  # of an earlier test
    before_ns = time.monotonic_ns()
    with scripted_server(tmp_path / "received") as server:
        plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 5, range(5), 2, warm_up=[scripted(Act.ANSWER)] * 3)
        result = Run(replace(plan, watch=watch(server))).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 5}
    assert [name for name, _ in seen] == ["entered", "start", "left"]
    assert seen[0] == ("entered", 3)
    assert before_ns < seen[1][1] <= time.monotonic_ns()
    assert seen[2] == ("left", 8)


def test_without_a_warm_up_watching_begins_while_the_workers_start(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    await_ready = LocalPool.await_ready

    def seen_ready(pool: LocalPool) -> tuple[str, ...]:
        failures = await_ready(pool)
        seen.append("ready")
        return failures

    @contextmanager
    def watch() -> Iterator[Callable[[int], None]]:
        seen.append("entered")
        yield lambda start_ns: seen.append("start")

    monkeypatch.setattr(LocalPool, "await_ready", seen_ready)
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 5, range(5), 2)
    result = Run(replace(plan, watch=watch())).execute(quiet)
    assert _outcomes(result) == {Outcome.DONE: 5}
    assert seen == ["entered", "ready", "start"]


def test_time_spent_watching_is_not_the_runs(tmp_path: Path, server: ScriptedServer) -> None:
    began_and_ended: list[float] = []

    @contextmanager
    def slow() -> Iterator[Callable[[int], None]]:
        time.sleep(0.7)
        began_and_ended.append(time.monotonic())
        yield lambda start_ns: None
        began_and_ended.append(time.monotonic())
        time.sleep(0.7)

    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)], [0], 1)
    duration_s = Run(replace(plan, watch=slow())).execute(quiet).duration_s
    assert duration_s <= began_and_ended[1] - began_and_ended[0]


@SEVERAL
def test_every_worker_leaves_samples_of_itself_over_the_run(tmp_path: Path, server: ScriptedServer, workers: int) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER)] * 20, [25 * k for k in range(20)], workers)
    result = Run(plan).execute(quiet)
    end_ns = max(record.done_ns or 0 for record in result.records)
    assert len(plan.folder.client_samples()) == workers
    for worker in range(workers):
        samples = list(read_samples(plan.folder.worker_samples(worker)))
        assert {sample.worker for sample in samples} == {worker}
        first_sent_ns = min(record.sent_ns or 0 for record in result.records if record.worker == worker)
        assert samples[0].time_ns < first_sent_ns  # the baseline
        assert sum(sample.cpu_ns or 0 for sample in samples) > 0
        assert max(sample.time_ns for sample in samples) >= max(
            record.done_ns or 0 for record in result.records if record.worker == worker
        )
        assert samples[-1].time_ns < end_ns + 20e9


def test_a_killed_worker_leaves_its_samples(tmp_path: Path, server: ScriptedServer) -> None:
    plan = make_plan(server.address, tmp_path, [scripted(Act.ANSWER, 4, 50)] * 100, [20 * k for k in range(100)], workers=2)

    def kill(snapshot: Snapshot) -> None:
        if snapshot.done > 20:
            for process in multiprocessing.active_children():
                if process.name == "bench-worker-0" and process.pid is not None:
                    os.kill(process.pid, signal.SIGKILL)

    Run(plan).execute(kill)
    assert len(list(read_samples(plan.folder.worker_samples(0)))) >= 5
