"""What several tests of faults use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.scripted_server import ScriptedServer, scripted_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    """A scripted server for the session; a test that kills a server, or reads its log, starts its own."""
    with scripted_server(tmp_path_factory.mktemp("scripted") / "received") as running:
        yield running
