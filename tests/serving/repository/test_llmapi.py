"""The repository for the LLM API: one model, its configuration and its ``model.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from serving.errors import RepositoryError
from serving.repository.llmapi import LlmApiSpec, llmapi_model_config, nested, parse_llm_argument, write_llmapi_repository

_LORA = {"lora_id", "lora_name", "lora_path", "lora_ckpt_source"}  # added upstream after the table was made


def _write(tmp_path: Path, **changes: Any) -> tuple[Any, Any]:
    folder = write_llmapi_repository(LlmApiSpec(**{"model": "org/model", **changes}), tmp_path / "repository")
    assert [path.name for path in folder.iterdir()] == ["tensorrt_llm"]
    text = (folder / "tensorrt_llm" / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return config, yaml.safe_load((folder / "tensorrt_llm" / "1" / "model.yaml").read_text())


def test_tensors_are_upstreams() -> None:
    config = llmapi_model_config(LlmApiSpec("org/model"))
    rows = [line.split() for line in (Path(__file__).parent / "upstream_tensors.txt").read_text().splitlines()]
    for direction, declared in (("in", config.input), ("out", config.output)):
        upstream = {
            (name, dtype, dims, "optional" in flags)
            for model, where, name, dtype, dims, flags, _ in (row for row in rows if len(row) == 7)
            if (model, where) == ("llmapi", direction)
        }
        assert len(upstream) > 10
        ours = {
            (tensor.name, model_config_pb2.DataType.Name(tensor.data_type)[5:], ",".join(map(str, tensor.dims)), optional)
            for tensor in declared
            for optional in [getattr(tensor, "optional", False)]
            if tensor.name not in _LORA
        }
        assert ours == upstream
    assert {tensor.name for tensor in config.input if tensor.optional} >= _LORA


def test_model_yaml_holds_the_llm_arguments_and_the_triton_configuration(tmp_path: Path) -> None:
    arguments = nested([parse_llm_argument(text) for text in ("tensor_parallel_size=2", "kv_cache_config.dtype=fp8")])
    config, settings = _write(
        tmp_path, llm=arguments, decoupled_mode=False, cancellation_check_period_ms=50, gpu_device_ids="0,1;2,3"
    )
    assert settings.pop("triton_config") == {
        "max_batch_size": 0, "decoupled": False, "cancellation_check_period_ms": 50, "accumulate_tokens": False
    }  # fmt: skip
    assert settings == {"model": "org/model", "tensor_parallel_size": 2, "kv_cache_config": {"dtype": "fp8"}}
    assert (config.backend, config.max_batch_size, config.model_transaction_policy.decoupled) == ("python", 0, False)
    assert config.instance_group[0].count == 2
    assert config.parameters["gpu_device_ids"].string_value == "0,1;2,3"


def test_unset_values_are_not_written(tmp_path: Path) -> None:
    config, settings = _write(tmp_path)
    assert not config.parameters
    assert set(settings) == {"model", "triton_config"}


@pytest.mark.parametrize("value", ["x", "a: b", '"quoted"', "ünï", "#", "- 1", "null", "1e3", "{a}"])
def test_values_survive_the_yaml(tmp_path: Path, value: str) -> None:
    _, settings = _write(tmp_path, llm={"tokenizer": value})
    assert settings["tokenizer"] == value


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("max_num_tokens=8", ("max_num_tokens", 8)),
        ("enable_lora=true", ("enable_lora", True)),
        ("dtype=float16", ("dtype", "float16")),
        ("revision=a=b", ("revision", "a=b")),
        ("kv_cache_config.free_gpu_memory_fraction=0.5", ("kv_cache_config.free_gpu_memory_fraction", 0.5)),
    ],
)
def test_values_are_json_or_text(text: str, pair: tuple[str, Any]) -> None:
    assert parse_llm_argument(text) == pair


@pytest.mark.parametrize("text", ["dtype", "=1", "nosuch=1", "nosuch.a=1"])
def test_malformed_and_unknown_arguments_are_rejected(text: str) -> None:
    with pytest.raises(RepositoryError, match="--set"):
        parse_llm_argument(text)


@pytest.mark.parametrize("keys", [["a", "a"], ["a", "a.b"], ["a.b", "a.b"], ["a.b", "a"]])
def test_conflicting_arguments_are_rejected(keys: list[str]) -> None:
    with pytest.raises(RepositoryError, match="--set"):
        nested([(key, 1) for key in keys])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ""}, "--model"),
        ({"model": "/nosuch"}, "--model: /nosuch is not a folder"),
        ({"cancellation_check_period_ms": 0}, "--cancellation_check_period_ms"),
        ({"accumulate_tokens": True, "decoupled_mode": False}, "--accumulate_tokens"),
        ({"llm": {"nosuch": 1}}, "--set nosuch"),
        ({"llm": {"model": "x"}}, "--set model: use --model instead"),
        ({"llm": {"tensor_parallel_size": 0}}, "--set tensor_parallel_size"),
        ({"llm": {"tensor_parallel_size": 2}, "gpu_device_ids": "0"}, "--gpu_device_ids .* runs on 2"),
    ],
)
def test_invalid_spec_is_rejected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RepositoryError, match=message):
        write_llmapi_repository(LlmApiSpec(**{"model": "org/model", **changes}), tmp_path / "repository")
    assert not (tmp_path / "repository").exists()
