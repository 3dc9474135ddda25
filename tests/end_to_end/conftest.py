"""The real server, deployed once for each mode."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from serving.repository.tensors import Release


def _deploy(folder: Path, decoupled: bool, options: EngineOptions | None = None) -> Iterator[Server]:
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, decoupled_mode=decoupled, engine_options=options or EngineOptions())
    with deploy(spec, choose_addresses(), folder / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def decoupled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _deploy(tmp_path_factory.mktemp("decoupled"), decoupled=True)


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The pipeline without decoupled models: one response per request."""
    yield from _deploy(tmp_path_factory.mktemp("plain"), decoupled=False)


def _deploy_0_11(folder: Path, decoupled: bool) -> Iterator[Server]:
    spec = RepositorySpec(
        DEMO_ENGINE_DIR,
        DEMO_ENGINE_DIR,
        decoupled_mode=decoupled,
        upstream_release=Release.V0_11,
        out_of_vocabulary_ids="wrap",
    )
    with deploy(spec, choose_addresses(), folder / "server.log") as server:
        yield server


@pytest.fixture(scope="module")
def decoupled_server_0_11(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The tensors of release 0.11; ids beyond the vocabulary are wrapped."""
    yield from _deploy_0_11(tmp_path_factory.mktemp("decoupled_0_11"), decoupled=True)


@pytest.fixture(scope="module")
def plain_server_0_11(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same without decoupled models."""
    yield from _deploy_0_11(tmp_path_factory.mktemp("plain_0_11"), decoupled=False)


@pytest.fixture(scope="session")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The pipeline with room for one running and two waiting requests."""
    options = EngineOptions(max_queue_size=2, max_num_sequences=1)
    yield from _deploy(tmp_path_factory.mktemp("narrow"), decoupled=True, options=options)


@pytest.fixture
def shared_data() -> Path:
    """Real data that is not part of the repository."""
    folder = Path(os.environ.get("SHARED_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"the shared data folder is not here: {folder}")
    return folder
