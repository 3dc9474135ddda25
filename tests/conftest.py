"""What holds for every test."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.harness.forked_workers import forked_workers
from tests.harness.scripted_server import ScriptedServer, scripted_server

# Where a shell runs the tests in the background (`make test &`), SIGINT is ignored, and a program that a test starts and
# interrupts would inherit that. To set it between fork and exec (`preexec_fn`) kills some programs where gRPC has threads here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No example has to end in time: machines are shared, and 200 ms without a core are no fault of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# `make test` tries the same examples each time, so that no change fails by chance; `make test-all` tries new ones.
settings.register_profile("repeatable", derandomize=True, max_examples=50, deadline=None)
# `make test-numpy2` runs what `make test` has run, under another numpy: few examples show the difference.
settings.register_profile("few", derandomize=True, max_examples=10, deadline=None)


class _Shared(StrEnum):
    """What takes long to start, and is started once in each process: one process gets all tests that use it."""

    PLAIN_SERVER = "a plain and a decoupled server"
    NARROW_SERVER = "a decoupled and a narrow server"
    BROWSER = "a browser"


class _ByShared(LoadFileScheduling):
    """The tests of a file run in one process, and those of all files that share a browser or servers. These go first: they
    take longest, and no process is left with them at the end.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _shared(self.config.rootpath / file) or file

    def _assign_work_unit(self, node: WorkerController) -> None:
        for scope in _Shared:
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


@cache
def _shared(file: Path) -> _Shared | None:
    if file.parent.name == "browser":
        return _Shared.BROWSER
    text = file.read_text() if file.parent.name == "end_to_end" else ""
    if re.search(r"\bplain_server\b", text):
        return _Shared.PLAIN_SERVER
    return _Shared.NARROW_SERVER if re.search(r"\b(decoupled|narrow)_server\b", text) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByShared | None:
    return _ByShared(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: garbage is not looked for meanwhile, nor afterwards among it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _no_calibration_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs read the machine's calibration from the user's data folder; what they find must not depend on whose that is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    with forked_workers():
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data that is not part of the repository."""
    folder = Path(os.environ.get("INFLIGHT_BENCH_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the shared data folder is not here: {folder}")
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    """A scripted server for the session; a test that kills a server starts its own."""
    with scripted_server(tmp_path_factory.mktemp("scripted") / "received") as running:
        yield running
