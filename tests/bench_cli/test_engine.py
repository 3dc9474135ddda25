"""``bench engine build`` on the command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.engine import build
from bench_errors import ExitStatus
from serving.engines.tensorrt_llm.build import LORA_MODULES, TensorRtLlmBuild
from serving.engines.tensorrt_llm.models import FAMILIES, QUANTIZATIONS


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "llama", "num_attention_heads": 8}))
    return tmp_path / "model"


_BUILD = ["engine", "build", "--engine", "tensorrt_llm", "--model_dir", "model", "--output_dir", "engine"]


def test_dry_run_prints_both_commands_and_the_world_size(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--tp_size", "4", "--pp_size", "2", "--lora_target_modules", LORA_MODULES[1], "--max-draft-len", "5", "--dry_run"]
    assert run([*_BUILD, *more]) == ExitStatus.VALID
    captured = capsys.readouterr()
    convert, compile_ = map(shlex.split, captured.out.splitlines())
    assert convert[:2] == ["python3", "/app/tensorrt_llm/examples/models/core/llama/convert_checkpoint.py"]
    assert compile_[0] == "trtllm-build"
    assert compile_[compile_.index("--max_draft_len") + 1] == "5"
    assert "World size: 8 (4 x 2)" in captured.err
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("engine", "option", "owner"),
    [("tensorrt_llm", ["--weight_format", "fp16"], "openvino"), ("openvino", ["--tp_size", "1"], "tensorrt_llm")],
)
def test_option_of_the_other_engine_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str], engine: str, option: list[str], owner: str
) -> None:
    argv = ["engine", "build", "--engine", engine, "--model_dir", "model", "--output_dir", "engine", *option]
    assert run(argv) == ExitStatus.USAGE
    assert f"{option[0]}: not with --engine {engine}; only with --engine {owner}" in capsys.readouterr().err


def test_build_error_is_one_sentence(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*_BUILD, "--tp_size", "3", "--dry_run"]) == ExitStatus.FAILED
    assert capsys.readouterr().err.startswith("Error: --tp_size 3:")


def test_choices_are_those_of_the_builder() -> None:
    choices = {parameter.name: getattr(parameter.type, "choices", None) for parameter in build.params}
    assert list(choices["quantization"]) == list(QUANTIZATIONS)
    assert list(choices["model_family"]) == list(FAMILIES)
    fields = set(TensorRtLlmBuild.__dataclass_fields__)
    assert fields | {"engine", "weight_format", "dry_run"} == set(choices) - {"help"}
