"""The commands that build a TensorRT-LLM engine, compared with the flags of its tools."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.tensorrt_llm.build import TensorRtLlmBuild, build_commands, run_build
from serving.engines.tensorrt_llm.models import FAMILIES, QUANTIZATIONS
from serving.errors import EngineBuildError

_LLAMA = {"model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16}


@pytest.fixture
def build(tmp_path: Path) -> TensorRtLlmBuild:
    return _build(tmp_path)


def _build(folder: Path, config: dict[str, Any] | None = None) -> TensorRtLlmBuild:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(config or _LLAMA))
    return TensorRtLlmBuild(model, folder / "engine", examples_dir=folder / "examples")


def _flags(command: tuple[str, ...]) -> dict[str, list[str]]:
    """Each flag with its values."""
    flags: dict[str, list[str]] = {}
    for word in command:
        if word.startswith("--"):
            flags[word] = []
        elif flags:
            flags[next(reversed(flags))].append(word)
    return flags


def test_plain_build_converts_and_compiles(build: TensorRtLlmBuild, tmp_path: Path) -> None:
    convert, compile_ = build_commands(build)
    assert convert == (
        *("python3", f"{tmp_path}/examples/models/core/llama/convert_checkpoint.py"),
        *(
            "--model_dir",
            f"{tmp_path}/model",
            "--output_dir",
            f"{tmp_path}/engine-checkpoint",
            "--tp_size",
            "1",
            "--pp_size",
            "1",
        ),
    )
    assert compile_ == (
        *("trtllm-build", "--checkpoint_dir", f"{tmp_path}/engine-checkpoint", "--output_dir", f"{tmp_path}/engine"),
        *("--gemm_plugin", "auto", "--remove_input_padding", "enable"),
        *("--kv_cache_type", "paged", "--use_paged_context_fmha", "enable", "--workers", "1"),
    )


def test_converter_of_an_older_release_is_found(build: TensorRtLlmBuild, tmp_path: Path) -> None:
    older = tmp_path / "examples" / "llama" / "convert_checkpoint.py"
    older.parent.mkdir(parents=True)
    older.touch()
    assert build_commands(build)[0][1] == str(older)


def test_world_size_is_the_product_and_is_passed_to_the_converter(build: TensorRtLlmBuild) -> None:
    wide = replace(build, tp_size=4, pp_size=2, moe_tp_size=2, moe_ep_size=2, dtype="bfloat16")
    assert wide.world_size == 8
    flags = _flags(build_commands(wide)[0])
    assert (flags["--tp_size"], flags["--pp_size"], flags["--dtype"]) == (["4"], ["2"], ["bfloat16"])
    assert (flags["--moe_tp_size"], flags["--moe_ep_size"]) == (["2"], ["2"])


@given(st.integers(1, 8), st.none() | st.integers(1, 8), st.none() | st.integers(1, 8))
def test_expert_sizes_must_multiply_to_the_tensor_size(tp: int, moe_tp: int | None, moe_ep: int | None) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        config = {**_LLAMA, "num_attention_heads": 840}  # divisible by every size tried
        build = replace(_build(Path(folder), config), tp_size=tp, moe_tp_size=moe_tp, moe_ep_size=moe_ep)
        full_tp = moe_tp or tp // (moe_ep or 1)
        full_ep = moe_ep or (tp // full_tp if full_tp else 0)
        possible = (moe_tp is None and moe_ep is None) or full_tp * full_ep == tp
        if possible:
            build_commands(build)
        else:
            with pytest.raises(EngineBuildError, match=f"it must be --tp_size {tp}"):
                build_commands(build)


@pytest.mark.parametrize(
    ("quantization", "flags"),
    [
        ("int8_weight_only", {"--use_weight_only": [], "--weight_only_precision": ["int8"]}),
        ("int4_weight_only", {"--use_weight_only": [], "--weight_only_precision": ["int4"]}),
        ("smoothquant", {"--smoothquant": ["0.5"], "--per_token": [], "--per_channel": []}),
    ],
)
def test_converter_quantises_weights(build: TensorRtLlmBuild, quantization: str, flags: dict[str, list[str]]) -> None:
    command = build_commands(replace(build, quantization=quantization, kv_cache_dtype="int8"))[0]
    assert command[1].endswith("convert_checkpoint.py")
    assert flags.items() <= _flags(command).items()
    assert "--int8_kv_cache" in command


@pytest.mark.parametrize("quantization", [name for name, value in QUANTIZATIONS.items() if value.qformat])
def test_calibrated_formats_use_quantize(build: TensorRtLlmBuild, tmp_path: Path, quantization: str) -> None:
    wanted = replace(build, quantization=quantization, tp_size=2, pp_size=2, kv_cache_dtype="fp8", calib_dataset="/texts")
    command = build_commands(wanted)[0]
    assert command[:2] == ("python3", f"{tmp_path}/examples/quantization/quantize.py")
    assert _flags(command) == {
        "--model_dir": [f"{tmp_path}/model"],
        "--output_dir": [f"{tmp_path}/engine-checkpoint"],
        "--dtype": ["auto"],
        "--qformat": [quantization],
        "--kv_cache_dtype": ["fp8"],
        "--tp_size": ["2"],
        "--pp_size": ["2"],
        "--calib_dataset": ["/texts"],
    }


def test_limits_and_logits_are_passed_to_trtllm_build(build: TensorRtLlmBuild) -> None:
    limits = {"max_batch_size": 1, "max_num_tokens": 2, "max_input_len": 3, "max_seq_len": 4, "max_beam_width": 5}
    logits = ["gather_context_logits", "gather_generation_logits", "gather_all_token_logits"]
    flags = _flags(build_commands(replace(build, **limits, **dict.fromkeys(logits, True)))[1])  # type: ignore[arg-type]
    assert {name: flags[f"--{name}"] for name in limits} == {name: [str(value)] for name, value in limits.items()}
    assert [flags[f"--{name}"] for name in logits] == [[], [], []]


def test_draft_length_selects_external_draft_tokens(build: TensorRtLlmBuild) -> None:
    flags = _flags(build_commands(replace(build, max_draft_len=10))[1])
    assert flags["--speculative_decoding_mode"] == ["draft_tokens_external"]
    assert flags["--max_draft_len"] == ["10"]
    assert flags["--use_paged_context_fmha"] == ["enable"]
    assert "--max_draft_len" not in _flags(build_commands(build)[1])


def test_lora_enables_its_plugin(build: TensorRtLlmBuild) -> None:
    wanted = replace(build, lora_dir=(Path("/a"), Path("/b")), lora_target_modules=("attn_q", "attn_v"), max_lora_rank=8)
    flags = _flags(build_commands(wanted)[1])
    assert flags["--lora_plugin"] == ["auto"]
    assert flags["--lora_dir"] == ["/a", "/b"]
    assert flags["--lora_target_modules"] == ["attn_q", "attn_v"]
    assert flags["--max_lora_rank"] == ["8"]


def test_gemma_converter_has_its_own_flags(tmp_path: Path) -> None:
    command = build_commands(replace(_build(tmp_path, {"model_type": "gemma2"}), tp_size=2))[0]
    assert command[1].endswith("models/core/gemma/convert_checkpoint.py")
    assert command[2:] == (
        *("--ckpt-type", "hf", "--model_dir", f"{tmp_path}/model", "--output_dir", f"{tmp_path}/engine-checkpoint"),
        *("--world-size", "2"),
    )


@pytest.mark.parametrize("model_type", [name for family in FAMILIES.values() for name in family.model_types])
def test_family_is_found_by_the_model_type(tmp_path: Path, model_type: str) -> None:
    build = _build(tmp_path, {"model_type": model_type})
    (name,) = [family.name for family in FAMILIES.values() if model_type in family.model_types]
    assert f"/{name}/" in build_commands(build)[0][1]
    assert "/gpt/" in build_commands(replace(build, model_family="gpt"))[0][1]


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        ({"model_type": "abacus"}, {}, "model type 'abacus' belongs to no known family"),
        ({"model_type": "phi3"}, {"pp_size": 2}, "--pp_size 2: .* phi does not support pipelines"),
        (_LLAMA, {"tp_size": 3}, "--tp_size 3: the model's 32 attention heads"),
        (_LLAMA, {"pp_size": 17}, "--pp_size 17: the model has 16 layers"),
        (
            {"model_type": "gpt2", "n_head": 12},
            {"moe_ep_size": 1},
            "--moe_tp_size, --moe_ep_size: .* gpt does not support experts",
        ),
        (_LLAMA, {"moe_ep_size": 1, "quantization": "fp8"}, "quantize.py, which produces fp8, cannot distribute experts"),
        (_LLAMA, {"tp_size": 4, "moe_tp_size": 4, "moe_ep_size": 2}, "--moe_tp_size 4 x --moe_ep_size 2 is 8; it must be"),
        ({"model_type": "phi"}, {"quantization": "smoothquant"}, "--quantization smoothquant: .* phi does not support it"),
        ({"model_type": "qwen2"}, {"kv_cache_dtype": "fp8"}, "--kv_cache_dtype fp8: .* qwen does not support it"),
        (_LLAMA, {"calib_dataset": "/texts"}, "--calib_dataset: --quantization none does not calibrate"),
        (_LLAMA, {"max_input_len": 5, "max_seq_len": 4}, "--max_input_len 5: longer than --max_seq_len 4"),
        (_LLAMA, {"max_draft_len": 5, "max_beam_width": 2}, "--max_draft_len 5: .*cannot be combined with --max_beam_width"),
        (_LLAMA, {"max_lora_rank": 5}, "--max_lora_rank: without --lora_dir"),
        (_LLAMA, {"lora_target_modules": ("head",)}, "--lora_target_modules head: known are attn_qkv"),
    ],
)
def test_impossible_build_names_the_option(
    tmp_path: Path, config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineBuildError, match=message):
        build_commands(replace(_build(tmp_path, config), **changes))


@pytest.mark.parametrize("content", [None, "{", "[]", "\x00"])
def test_folder_without_checkpoint_is_named_in_the_error(build: TensorRtLlmBuild, content: str | None) -> None:
    config = build.model_dir / "config.json"
    config.unlink() if content is None else config.write_text(content)
    with pytest.raises(EngineBuildError, match=str(build.model_dir)):
        build_commands(build)


# ---- execution, with a fake converter and trtllm-build that record their arguments


@pytest.fixture
def tools(build: TensorRtLlmBuild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "examples" / "models" / "core" / "llama" / "convert_checkpoint.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"import sys\nopen({str(tmp_path / 'calls')!r}, 'a').write('convert ' + ' '.join(sys.argv[1:]) + '\\n')\n"
    )
    tool = tmp_path / "trtllm-build"
    tool.write_text(f'#!/bin/sh\necho "build $*" >> {tmp_path}/calls\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "calls"


def test_both_steps_are_run_in_order(build: TensorRtLlmBuild, tools: Path) -> None:
    run_build(build)
    convert, compile_ = build_commands(build)
    assert tools.read_text().splitlines() == [f"convert {' '.join(convert[2:])}", f"build {' '.join(compile_[1:])}"]


def test_failed_conversion_is_reported_and_nothing_is_compiled(build: TensorRtLlmBuild, tools: Path) -> None:
    Path(build_commands(build)[0][1]).write_text("raise SystemExit(3)")
    with pytest.raises(EngineBuildError, match=r"convert_checkpoint\.py failed: .* exit status 3"):
        run_build(build)
    assert not tools.exists()


def test_missing_tools_are_reported_with_their_source(
    build: TensorRtLlmBuild, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trtllm-build").unlink()
    with pytest.raises(EngineBuildError, match=r"trtllm-build is not on PATH; .*inflight-bench\[tensorrt-llm\]"):
        run_build(build)
    Path(build_commands(build)[0][1]).unlink()
    with pytest.raises(EngineBuildError, match=r"convert_checkpoint\.py does not exist; .*--examples_dir"):
        run_build(build)


def test_non_empty_output_folder_is_rejected_and_unchanged(build: TensorRtLlmBuild, tools: Path) -> None:
    build.output_dir.mkdir()
    (build.output_dir / "mine").touch()
    with pytest.raises(EngineBuildError, match=f"{build.output_dir} is not empty"):
        run_build(build)
    assert not tools.exists()
