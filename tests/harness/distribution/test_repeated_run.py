"""A distributed command whose master was killed, repeated with the same --work_dir: nothing of the first run is in the second.

Real processes. In the first run one worker's host is suspended, and goes on in the second one, against another server. That one
paces its tokens, so its answers are known by their times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.worker import worker_command
from bench_errors import ExitStatus
from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.journal.worker_journal import JournalReader
from tests.free_port import free_port
from tests.harness.scripted_server import scripted_server
from tests.processes import kill_tree, resume, suspend, tree_of

# Not imported: it would replace the sockets and threads of this process.
pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")

_VERB = ["token_norm_dist", "--isl", "4", "--osl", "5", "--vocab_size", "100", "--warmup_requests", "1", "--seed", "1"]
_QUICK, _PACED = "scripted", "paced"  # models: all tokens at once, or 20 ms before each
_PACED_NS = 5 * 19_000_000  # less the grain of its timer
_REQUESTS = 60
_ENOUGH_BYTES = 3_000
_LIMIT_S = 150.0


@dataclass(frozen=True)
class _Place:
    """The addresses of the two servers, the master's port, and the folder of all files."""

    first: str
    second: str
    port: int
    folder: Path

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.folder / name)

    def kept(self, host: str) -> Path:
        return self.folder / "work" / host

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    @contextmanager
    def process(self, name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
        """A process whose standard error is ``text(name)``; it and what it started are killed when the block is left."""
        with (self.folder / f"{name}.txt").open("wb") as errors:
            started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            yield started
        finally:
            if started.poll() is None:
                kill_tree(started)
            started.wait()

    def master(self, name: str, url: str, model: str, requests: int) -> list[str]:
        load = ["--url", url, "--model", model, "--num_requests", str(requests), "--request_rate", "20"]
        distributed = ["--distributed", "--expect_workers", "2", "--master_bind_port", str(self.port)]
        return [sys.executable, "-m", "bench_cli", *_VERB, *load, *distributed, "--run_dir", str(self.run(name).path)]

    def worker(self, host: str) -> list[str]:
        return worker_command("127.0.0.1", self.port, self.kept(host))

    def repeat(self, name: str, requests: int, meanwhile: Callable[[], None] = lambda: None) -> int:
        """The command against the second server, with workers in the same folders; returns its exit status."""
        command = self.master(name, self.second, _PACED, requests)
        with (
            self.process(name, command) as master,
            self.process(f"{name}-a", self.worker("a")) as a,
            self.process(f"{name}-b", self.worker("b")) as b,
        ):
            _await(lambda: self._journaled(name) >= _ENOUGH_BYTES or master.poll() is not None)
            meanwhile()
            assert [a.wait(_LIMIT_S), b.wait(_LIMIT_S)] == [0, 0]
            return master.wait(_LIMIT_S)

    def _journaled(self, name: str) -> int:
        with suppress(FileNotFoundError):  # the run has ended meanwhile, and deleted them
            return sum(path.stat().st_size for path in self.run(name).journals())
        return 0

    def check_of_second_server_alone(self, name: str, requests: int) -> None:
        rows = self.run(name).read_requests().to_pylist()
        assert [row["index"] for row in rows] == list(range(requests))
        assert {row["outcome"] for row in rows} == {Outcome.DONE}
        assert min(row["done_ns"] - row["sent_ns"] for row in rows) >= _PACED_NS
        assert "IndexError" not in self.text(name)
        assert "Traceback" not in self.text(name)


@dataclass(frozen=True)
class _Repeated:
    """What a killed run and its repetition left. ``journals`` are those of the first run's workers, ``seen`` their content when
    the second run began, and ``ends`` the exit statuses of these workers.
    """

    place: _Place
    status: int
    journals: list[Path]
    seen: list[bytes]
    ends: list[int]


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Repeated]:
    folder = tmp_path_factory.mktemp("repeated")
    with ExitStack() as cleaning:
        servers = [cleaning.enter_context(scripted_server(folder / f"received-{number}")) for number in range(2)]
        place = _Place(servers[0].address, servers[1].address, free_port(), folder)
        awake = cleaning.enter_context(place.process("first-a", place.worker("a")))
        suspended = cleaning.enter_context(place.process("first-b", place.worker("b")))
        command = place.master("first", place.first, _QUICK, _REQUESTS)
        master = cleaning.enter_context(place.process("first", command))
        _await(lambda: len(_journals(place)) == 2 and all(path.stat().st_size > _ENOUGH_BYTES for path in _journals(place)))
        everything = tree_of(suspended)
        suspend(everything)
        kill_tree(master)
        journals = _journals(place)
        seen = [path.read_bytes() for path in journals]

        status = place.repeat("second", _REQUESTS, lambda: resume(everything))
        yield _Repeated(place, status, journals, seen, [awake.wait(_LIMIT_S), suspended.wait(_LIMIT_S)])


def _journals(place: _Place) -> list[Path]:
    """The journals of workers, by host."""
    return sorted((place.folder / "work").glob("*/*/journal-*.bin"))


def test_a_repeated_command_has_the_records_of_its_own_server_alone(repeated: _Repeated) -> None:
    place = repeated.place
    place.check_of_second_server_alone("second", _REQUESTS)
    first, second = (place.run(name).read_document()[0] for name in ("first", "second"))
    assert first["schedule"] == second["schedule"]  # so that only the identity of the runs distinguishes them
    assert first["run_id"] != second["run_id"]
    assert [worker["lost"] for worker in second["distribution"]["workers"]] == [None, None]
    assert repeated.status in (ExitStatus.VALID, ExitStatus.INVALID)


def test_what_workers_of_the_first_run_still_send_is_dropped_and_named(repeated: _Repeated) -> None:
    assert repeated.place.run("second").read_document()[0]["distribution"]["dropped_messages"] > 0
    assert "Dropped a message from" in repeated.place.text("second")


def test_journals_of_the_first_run_are_kept_and_grow_no_more_than_by_their_own_workers(repeated: _Repeated) -> None:
    assert repeated.ends == [ExitStatus.FAILED] * 2
    run_id = repeated.place.run("first").read_document()[0]["run_id"]
    for host, path, seen in zip("ab", repeated.journals, repeated.seen, strict=True):
        assert path.parent.parent == repeated.place.kept(host)
        assert f"journal is kept in {path.parent}" in repeated.place.text(f"first-{host}")
        assert path.read_bytes().startswith(seen)
        assert list(JournalReader(path, run_id).read_rest())
        assert [entry.name for entry in path.parent.parent.iterdir()] == [path.parent.name]  # the second run's is on the master


def test_a_repetition_with_another_number_of_requests_has_its_own_records_alone(repeated: _Repeated) -> None:
    """Also where the first run's journals are at the top of --work_dir, as earlier releases left them."""
    place = repeated.place
    left = [place.kept(host) / f"journal-{number}.bin" for host in "ab" for number in range(2)]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(repeated.seen[0])
    assert place.repeat("third", 30) in (ExitStatus.VALID, ExitStatus.INVALID)
    place.check_of_second_server_alone("third", 30)
    for path in left:
        assert path.read_bytes() == repeated.seen[0]
        path.unlink()


def test_the_journals_of_workers_make_a_run_whole_whose_master_was_killed(
    repeated: _Repeated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = repeated.place
    work = shutil.copytree(place.folder / "work", tmp_path / "work")
    other = shutil.copytree(repeated.journals[0].parent, work / "other") / repeated.journals[0].name
    other.write_bytes(other.read_bytes().replace(_run_id_of(place), b"f" * 32))
    assert run(["recover", str(place.run("first").path), "--worker_journals", str(work)]) in set(ExitStatus)
    assert f"{other} belongs to another run, and was left out" in capsys.readouterr().err
    rows: list[dict[str, Any]] = place.run("first").read_requests().to_pylist()
    assert len(rows) == _REQUESTS
    assert {row["outcome"] for row in rows} <= {Outcome.DONE, Outcome.NOT_SENT}  # they stopped in order: nothing is unknown


def _run_id_of(place: _Place) -> bytes:
    run_id: str = place.run("first").read_document()[0]["run_id"]
    return run_id.encode()


def _await(is_so_far: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not is_so_far():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
