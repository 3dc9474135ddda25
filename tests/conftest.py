"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.harness.scripted_server import ScriptedServer, scripted_server

# No example has to end in time: machines are shared, and 200 ms without a core are no fault of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# `make test` tries the same examples each time, so that no change fails by chance; `make test-all` tries new ones.
settings.register_profile("repeatable", derandomize=True, max_examples=50, deadline=None)
# `make test-numpy2` runs what `make test` has run, under another numpy: few examples show the difference.
settings.register_profile("few", derandomize=True, max_examples=10, deadline=None)


@pytest.fixture(scope="session", autouse=True)
def _no_calibration_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs read the machine's calibration from the user's data folder; what they find must not depend on whose that is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
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
