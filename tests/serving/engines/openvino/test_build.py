from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from serving.engines import open_engine
from serving.engines.openvino.build import WEIGHT_FORMATS, build_openvino_engine
from serving.engines.openvino.folder import DEMO_ENGINE_DIR, read_limits
from serving.engines.protocol import EngineLimits, EngineOptions, Increment, Sampling
from serving.errors import EngineBuildError

_CAN_EXPORT = all(importlib.util.find_spec(name) for name in ("torch", "optimum"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


def test_folder_without_checkpoint_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(EngineBuildError, match=rf"{tmp_path} is not a Hugging Face checkpoint: .*config\.json does not exist"):
        build_openvino_engine(tmp_path, tmp_path / "engine", "fp16")
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe"])
def test_config_that_is_not_json_is_named_in_the_error(checkpoint: Path, tmp_path: Path, content: bytes) -> None:
    (checkpoint / "config.json").write_bytes(content)
    with pytest.raises(EngineBuildError, match=r"config\.json is not JSON"):
        build_openvino_engine(checkpoint, tmp_path / "engine", "fp16")


def test_unknown_weight_format_error_lists_the_known_ones(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineBuildError, match=f"unknown weight format 'fp8'; known: {', '.join(WEIGHT_FORMATS)}"):
        build_openvino_engine(checkpoint, tmp_path / "engine", "fp8")


def test_non_empty_output_folder_is_rejected_and_unchanged(checkpoint: Path, tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.mkdir()
    (engine / "mine").write_text("precious")
    with pytest.raises(EngineBuildError, match=f"{engine} is not empty"):
        build_openvino_engine(checkpoint, engine, "fp16")
    assert [path.name for path in engine.iterdir()] == ["mine"]


@pytest.mark.skipif(_CAN_EXPORT, reason="the extra [export] is installed")
def test_missing_extra_is_named_and_nothing_is_written(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineBuildError, match=r"pip install 'inflight-bench\[export\]'"):
        build_openvino_engine(checkpoint, tmp_path / "engine", "fp16")
    assert not (tmp_path / "engine").exists()


@pytest.mark.skipif(not _CAN_EXPORT, reason="needs the extra [export]")
def test_failed_export_names_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineBuildError, match=f"OpenVINO could not export {checkpoint}"):
        build_openvino_engine(checkpoint, tmp_path / "engine", "fp16")


@pytest.mark.skipif(not _CAN_EXPORT, reason="needs the extra [export]")
@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
def test_built_engine_runs(tmp_path: Path, weight_format: str) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = LlamaConfig(
        vocab_size=3072, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(sizes).save_pretrained(tmp_path / "checkpoint")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEMO_ENGINE_DIR / name, tmp_path / "checkpoint" / name)
    engine_dir = build_openvino_engine(tmp_path / "checkpoint", tmp_path / "engine", weight_format)
    assert read_limits(engine_dir) == EngineLimits(3072, 256)
    assert (engine_dir / "tokenizer.json").read_bytes() == (DEMO_ENGINE_DIR / "tokenizer.json").read_bytes()
    engine = open_engine("openvino", engine_dir, EngineOptions())
    answers: list[Increment] = []
    engine.submit(1, [5, 6, 7], Sampling(4), answers.append, streaming=False)
    while not answers:
        pass
    engine.close()
    assert len(answers[0].token_ids) == 4
