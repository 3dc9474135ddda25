"""What needs the extra [embedded] and lacks it names the command that installs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.machinery import ModuleSpec

import pytest

from bench_cli import run
from bench_errors import ExitStatus

_INSTALL = "pip install 'inflight-bench[embedded]'"


@pytest.fixture(params=[("openvino_genai", "pytriton"), ("openvino_genai",), ("pytriton",)], ids="+".join)
def _base_install(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., ModuleSpec | None] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in request.param else find(name, *more))


@pytest.mark.usefixtures("_base_install")
@pytest.mark.parametrize(
    "command",
    [
        ["dataset", "--request_rate", "5", "--num_requests", "1"],
        ["token_norm_dist", *("--input_mean", "4", "--input_stdev", "0", "--output_mean", "4", "--output_stdev", "0")],
        ["serve"],
        ["generate", "-p", "hello"],
    ],
    ids=lambda command: command[0],
)
def test_error_names_the_extra(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert run(command) == ExitStatus.FAILED
    error = capsys.readouterr().err
    assert _INSTALL in error
    assert "Traceback" not in error
