"""``bench serve fill`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus

_TEMPLATE = 'max_batch_size: ${triton_max_batch_size}\nparameters { key: "ids" value { string_value: "${gpu_device_ids}" } }\n'


@pytest.fixture
def template(tmp_path: Path) -> Path:
    file = tmp_path / "config.pbtxt"
    file.write_text(_TEMPLATE)
    return file


def test_result_goes_to_stdout_and_the_file_is_unchanged(template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "fill", str(template), r"triton_max_batch_size:4,gpu_device_ids:0\,1"]) == ExitStatus.VALID
    out = capsys.readouterr().out
    assert out == 'max_batch_size: 4\nparameters { key: "ids" value { string_value: "0,1" } }\n'
    assert template.read_text() == _TEMPLATE


@pytest.mark.parametrize("flag", ["-i", "--in_place", "--in-place"])
def test_in_place_writes_the_file_and_keeps_unfilled_names(
    template: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert run(["serve", "fill", flag, str(template), "triton_max_batch_size:4"]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "gpu_device_ids" in captured.err
    assert template.read_text() == _TEMPLATE.replace("${triton_max_batch_size}", "4")


@pytest.mark.parametrize(
    ("substitutions", "message"),
    [("engine_dir:a", "engine_dir is not in the template"), ("ids:a:b", "more than one colon"), ("ids", "no colon")],
)
def test_usage_error_is_one_sentence_and_the_file_is_unchanged(
    template: Path, capsys: pytest.CaptureFixture[str], substitutions: str, message: str
) -> None:
    assert run(["serve", "fill", "-i", str(template), substitutions]) == ExitStatus.USAGE
    err = capsys.readouterr().err
    assert message in err
    assert err.count("Error: ") == 1
    assert template.read_text() == _TEMPLATE


def test_binary_file_is_refused(template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template.write_bytes(b"\xff\xfe")
    assert run(["serve", "fill", str(template), "a:b"]) == ExitStatus.USAGE
    assert "is not UTF-8 text" in capsys.readouterr().err


def test_options_of_bare_serve_before_a_sub_command_are_refused(template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--http_port", "8000", "fill", str(template)]) == ExitStatus.USAGE
    assert "--http_port belongs to a bare 'bench serve'" in capsys.readouterr().err
