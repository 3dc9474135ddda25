"""The real server, deployed once for each mode. A test that fails after its server has ended shows the end of the log."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from serving.repository.tensors import Release

_RELEASE_0_11 = {"upstream_release": Release.V0_11, "out_of_vocabulary_ids": "wrap"}


def _deploy(folder: Path, **settings: Any) -> Iterator[Server]:
    """``settings`` are fields of RepositorySpec."""
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, **settings)
    with deploy(spec, choose_addresses(), folder / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def decoupled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _deploy(tmp_path_factory.mktemp("decoupled"), decoupled_mode=True)


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The pipeline without decoupled models: one response per request."""
    yield from _deploy(tmp_path_factory.mktemp("plain"), decoupled_mode=False)


@pytest.fixture(scope="module")
def decoupled_server_0_11(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The tensors of release 0.11; ids beyond the vocabulary are wrapped."""
    yield from _deploy(tmp_path_factory.mktemp("decoupled_0_11"), decoupled_mode=True, **_RELEASE_0_11)


@pytest.fixture(scope="module")
def plain_server_0_11(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same without decoupled models."""
    yield from _deploy(tmp_path_factory.mktemp("plain_0_11"), decoupled_mode=False, **_RELEASE_0_11)


@pytest.fixture(scope="session")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The pipeline with room for one running and two waiting requests."""
    options = EngineOptions(max_queue_size=2, max_num_sequences=1)
    yield from _deploy(tmp_path_factory.mktemp("narrow"), decoupled_mode=True, engine_options=options)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A server that crashes fails each later test of its session: why is in its log alone."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, Server) and not value.is_running():
                report.sections.append((f"{name} ended, {value.exit_status}", value.log_tail()))
    return report
