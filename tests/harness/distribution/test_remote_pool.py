"""The master's side over a link without Locust: bad messages, and helpers that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import to_builtins

from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.distribution import remote_pool, remote_worker
from harness.distribution.clock_sync import ClockExchange
from harness.distribution.link import ClockExchanged, Delivered, Dropped, Left, Opened
from harness.distribution.messages import PROTOCOL, Dismissed, Finished, Hello, PlanConfirmed, Progress, WorkerReady, pack
from harness.distribution.remote_pool import Master, RemotePool
from harness.distribution.remote_worker import Peer, RemoteWorker
from harness.errors import RunError
from harness.run.shared_state import Command
from harness.run.worker import WorkerPlan
from tests.harness.distribution.fake_link import FakeLink
from workloads.elements.request import Request
from workloads.schedule.schedule import OpenPart

_CLIENT = TritonGrpcClient("h:1", TritonModel("m", True, frozenset({"input_ids"}), frozenset(), ()), True)
_RUN_ID = "ab" * 16
_MASTER = Master("127.0.0.1", 0, 1, wait_s=5.0)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    made = FakeLink([Opened(5557)])
    monkeypatch.setattr(remote_pool, "LinkProcess", made)
    return made


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def pool(link: FakeLink, notes: list[str]) -> Iterator[RemotePool]:
    made = RemotePool(_MASTER, notes.append)
    assert made.open() == 5557
    yield made
    made.close()


def _plan(folder: Path) -> WorkerPlan:
    part, paths = OpenPart((0,), (5,), None), (folder / "journal-0.bin", folder / "samples-0.bin")
    return WorkerPlan(0, _CLIENT, part, [Request(1, "a")], [], 5.0, *paths, "digest", _RUN_ID)


def _say(link: FakeLink, message: Any, peer: str = "w", run_id: str | None = None) -> None:
    """A message of the run, except a Hello, which belongs to no run."""
    own = None if isinstance(message, Hello) else (run_id or _RUN_ID)
    link.events.put(Delivered(peer, pack(own, message)))


def _hello(host: str = "host") -> Hello:
    return Hello(PROTOCOL, version("inflight-bench"), host, 2.0)


def _await(is_enough: Callable[[], object]) -> None:
    end_s = time.monotonic() + 120
    while not is_enough():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def _begin(pool: RemotePool, link: FakeLink, folder: Path) -> None:
    _say(link, _hello())
    pool.start([_plan(folder)])
    link.events.put(ClockExchanged("w", ClockExchange(0, 1, 1, 2)))
    _await(lambda: pool.workers[0].peer.exchanges)
    pool.start_clock(time.monotonic_ns())


def test_bad_messages_are_counted_with_their_sender_and_named_once(
    pool: RemotePool, link: FakeLink, notes: list[str], tmp_path: Path
) -> None:
    _begin(pool, link, tmp_path)
    for wrong in ({"type": "progress", "sent": "3"}, {"type": "progress", "sent": "4"}, Progress(2), _hello("another")):
        _say(link, wrong)
    _say(link, Progress(1), run_id="cd" * 16)
    link.events.put(Dropped("", "10.0.0.9", "not a message of Locust", 1_000))
    _say(link, Progress(1))
    _await(lambda: pool.sent)
    facts = to_builtins(pool.distribution())
    assert facts["dropped_messages"] == 1_005
    assert list(facts["dropped"]) == [
        {"from": "10.0.0.9", "reason": "not a message of Locust", "count": 1_000},
        {"from": "host", "reason": "Expected `int`, got `str` - at `$.sent`", "count": 2},
        {"from": "host", "reason": "progress: 2 requests sent, of 1", "count": 1},
        {"from": "host", "reason": "hello: a second one", "count": 1},
        {"from": "host", "reason": f"Progress: of another run ({'cd' * 16})", "count": 1},
    ]
    assert sum(note.startswith("Dropped a message from host") for note in notes) == 4
    assert pool.workers[0].is_alive


def test_notes_of_dropped_messages_and_workers_that_are_turned_away_are_bounded(
    pool: RemotePool, link: FakeLink, notes: list[str]
) -> None:
    _say(link, _hello())
    for number in range(300):
        _say(link, _hello(f"host-{number}"), f"stranger {number}")
        link.events.put(Dropped("", f"10.0.0.{number}", "garbage", 1))
    _await(lambda: to_builtins(pool.distribution())["dropped_messages"] == 300)
    facts = to_builtins(pool.distribution())
    assert (len(facts["turned_away"]), len(facts["dropped"])) == (100, 100)
    assert len(notes) == 1 + 100 + 10


@pytest.mark.parametrize("error", [ValueError("unforeseen"), OSError("disk"), RunError("Locust has ended")])
def test_whatever_the_thread_raises_ends_the_run_and_keeps_its_records(
    error: Exception, pool: RemotePool, link: FakeLink, notes: list[str], tmp_path: Path
) -> None:
    _begin(pool, link, tmp_path)
    link.events.put(error)
    _await(lambda: not pool.workers[0].is_alive)
    assert str(error) in str(pool.workers[0].lost_reason)
    _await(lambda: any("The run ends, with what is recorded" in note for note in notes))


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ("worker 0 cannot reach the server: refused", "refused. Its host must reach the target's address"),
        ("--work_dir w cannot be used: No space left on device", "No space left on device"),
    ],
)
def test_a_worker_that_cannot_begin_is_named_with_advice_that_fits(
    problem: str, advice: str, pool: RemotePool, link: FakeLink, tmp_path: Path
) -> None:
    _say(link, _hello())
    pool.start([_plan(tmp_path)])
    _say(link, WorkerReady(problem=problem))
    with pytest.raises(RunError, match=f"^worker 0 on host cannot begin: .*{advice}$"):
        pool.await_ready()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"bench_version": "0.0.1"}, "it has bench 0.0.1, and the master"),
        ({"protocol": 99}, "it speaks another version of the protocol"),
    ],
)
def test_a_worker_of_another_version_is_turned_away_with_what_differs(
    changed: dict[str, Any], reason: str, pool: RemotePool, link: FakeLink, notes: list[str]
) -> None:
    _say(link, msgspec.structs.replace(_hello(), **changed))
    _await(lambda: notes)
    assert notes[0].startswith(f"A worker on host takes no part: {reason}")


def test_what_the_thread_raises_before_the_start_ends_the_command(pool: RemotePool, link: FakeLink) -> None:
    link.events.put(ValueError("unforeseen"))
    with pytest.raises(RunError, match="unforeseen"):
        pool.start([_plan(Path())])


def test_a_note_that_nobody_can_read_does_not_end_the_run(link: FakeLink, tmp_path: Path) -> None:
    def tell(text: str) -> None:
        raise BrokenPipeError

    pool = RemotePool(_MASTER, tell)
    pool.open()
    _begin(pool, link, tmp_path)
    assert pool.workers[0].is_alive
    pool.close()


def test_a_second_abort_waits_for_no_worker(pool: RemotePool, link: FakeLink, tmp_path: Path) -> None:
    _begin(pool, link, tmp_path)
    pool.advance(Command.DRAIN)
    pool.advance(Command.ABORT)
    assert pool.workers[0].is_alive
    pool.advance(Command.ABORT)
    assert not pool.workers[0].is_alive
    _await(lambda: any(isinstance(message, Dismissed) for message in link.messages_to("w")))  # it does not send on


@pytest.mark.parametrize(
    ("status", "lost"), [(0, None), (-9, "its worker, on host, ended with status -9")], ids=["in order", "killed"]
)
def test_a_worker_whose_process_was_killed_did_not_come_to_the_end(
    pool: RemotePool, link: FakeLink, tmp_path: Path, status: int, lost: str | None
) -> None:
    _begin(pool, link, tmp_path)
    _say(link, Finished(1, status, None))
    _await(lambda: pool.workers[0].finished)
    assert pool.distribution().workers[0].lost == lost


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((), "it sent no message for 120 s"),
        ((Finished(0, 0, None),), "it passed on no more of its journal for 120 s"),
    ],
)
def test_a_worker_that_does_nothing_is_lost(
    messages: tuple[Any, ...], reason: str, link: FakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ns = [0]
    for module in (remote_pool, remote_worker):
        monkeypatch.setattr(module, "now_ns", lambda: clock_ns[0])
    pool = RemotePool(_MASTER, lambda text: None)
    pool.open()
    _begin(pool, link, tmp_path)
    for message in messages:
        _say(link, message)
        _await(lambda: pool.workers[0].finished)
    clock_ns[0] = 120_000_000_000
    _say(link, _hello("another"), "stranger")
    _await(lambda: link.messages_to("stranger"))
    assert pool.workers[0].is_alive
    clock_ns[0] += 1
    _await(lambda: not pool.workers[0].is_alive)
    assert reason in str(pool.workers[0].lost_reason)
    pool.close()


def test_a_worker_that_leaves_while_the_plans_are_made_is_lost(
    pool: RemotePool, link: FakeLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(peer: Peer, plan: WorkerPlan) -> RemoteWorker:
        link.events.put(Left("w"))
        _say(link, _hello("another"), "stranger")
        _await(lambda: "stranger" in pool._peers)
        return RemoteWorker(peer, plan)

    monkeypatch.setattr(remote_pool, "RemoteWorker", make)
    _say(link, _hello())
    pool.start([_plan(tmp_path)])
    with pytest.raises(RunError, match="cannot begin: its worker, on host, was lost"):
        pool.await_ready()


def test_a_plan_that_is_not_its_own_ends_the_run_before_it_begins(pool: RemotePool, link: FakeLink, tmp_path: Path) -> None:
    _say(link, _hello())
    pool.start([_plan(tmp_path)])
    _say(link, PlanConfirmed("00", "digest"))
    with pytest.raises(RunError, match=r"cannot begin: .*confirmed a plan that is not its own"):
        pool.await_ready()
