"""The embedded pipeline that several runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_cli.measurement.pipeline import environment_of, open_pipeline, shared_pipeline
from serving.launch.addresses import ServerAddresses
from serving.repository.pipeline import RepositorySpec

_ADDRESSES = ServerAddresses("127.0.0.1", 1, 2, 3)
_WITH_FRONT_END = ServerAddresses("127.0.0.1", 1, 2, 3, openai_port=4)


@pytest.mark.parametrize("shared", [_ADDRESSES, _WITH_FRONT_END])
def test_a_pipeline_that_the_environment_names_is_used_and_none_is_deployed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shared: ServerAddresses
) -> None:
    assert shared_pipeline() is None
    for name, value in environment_of(shared).items():
        monkeypatch.setenv(name, value)
    nowhere = RepositorySpec(engine_dir=tmp_path, tokenizer_dir=tmp_path)  # it cannot be deployed
    with open_pipeline(nowhere, tmp_path / "server.log") as addresses:
        assert addresses == shared
    assert not (tmp_path / "server.log").exists()
