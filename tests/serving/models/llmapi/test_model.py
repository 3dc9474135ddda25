"""Start of an llmapi model instance: GPUs, settings, and their errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from serving.errors import ServingError

Start = Callable[..., dict[str, Any]]


def _library(seen: dict[str, Any]) -> ModuleType:
    """A fake ``tensorrt_llm`` that records its arguments and environment in ``seen``."""

    class Llm:
        def __init__(self, **arguments: Any) -> None:
            gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
            seen.update(arguments=arguments, gpus=gpus, launcher=[name for name in os.environ if name.startswith("OMPI_")])

        def shutdown(self) -> None:
            seen["shut_down"] = True

    library: Any = ModuleType("tensorrt_llm")
    library.LLM = Llm
    return library  # type: ignore[no-any-return]


@pytest.fixture
def start(tmp_path: Path, backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Function that starts an instance with a fake library and returns the library's arguments."""
    seen: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "tensorrt_llm", _library(seen))
    monkeypatch.setattr(
        backend, "using_decoupled_model_transaction_policy", lambda config: bool(config["decoupled"]), raising=False
    )
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    from serving.models.llmapi.model import TritonPythonModel

    def run(yaml: str | None = "model: m\n", instance: str = "tensorrt_llm_0_0", **parameters: str) -> dict[str, Any]:
        (tmp_path / "1").mkdir(exist_ok=True)
        if yaml is not None:
            (tmp_path / "1" / "model.yaml").write_text(yaml)
        block = {key: {"string_value": value} for key, value in parameters.items()}
        config = {"max_batch_size": 0, "decoupled": True, "parameters": block}
        model = TritonPythonModel()
        model.initialize(
            {
                "model_config": json.dumps(config),
                "model_repository": str(tmp_path),
                "model_version": "1",
                "model_instance_name": instance,
            }
        )
        model.finalize()
        return seen

    environment = dict(os.environ)
    yield run
    os.environ.clear()
    os.environ.update(environment)


@pytest.mark.parametrize(("instance", "gpus"), [("tensorrt_llm_0_0", "0,1"), ("tensorrt_llm_0_1", "2,3")])
def test_instance_sees_its_own_gpus_and_no_launcher(start: Start, instance: str, gpus: str) -> None:
    seen = start(instance=instance, gpu_device_ids="0,1;2,3")
    assert (seen["gpus"], seen["launcher"], seen["shut_down"]) == (gpus, [], True)


def test_environment_is_unchanged_without_gpu_ids(start: Start) -> None:
    seen = start()
    assert (seen["gpus"], seen["launcher"]) == (None, ["OMPI_COMM_WORLD_SIZE"])


def test_more_instances_than_gpu_groups_are_rejected(start: Start) -> None:
    with pytest.raises(ServingError, match="no GPUs for instance 2"):
        start(instance="tensorrt_llm_0_2", gpu_device_ids="0;1")


def test_every_key_except_triton_config_is_passed_to_the_llm(start: Start) -> None:
    yaml = "model: m\nkv_cache_config: {dtype: fp8}\ntriton_config: {max_batch_size: 0, decoupled: true}\n"
    assert start(yaml)["arguments"] == {"model": "m", "kv_cache_config": {"dtype": "fp8"}}


def test_environment_variable_selects_another_file(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.yaml").write_text("model: other\n")
    monkeypatch.setenv("LLM_CONFIG_PATH", str(tmp_path / "other.yaml"))
    assert start(None)["arguments"] == {"model": "other"}


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        (None, "cannot be read"),
        ("model: [", "cannot be read"),
        ("- model", "must define the model"),
        ("tokenizer: t", "must define the model"),
        ("model: m\ntriton_config: {decoupled: false}", "decoupled is False in model.yaml but True in config.pbtxt"),
        ("model: m\ntriton_config: {max_batch_size: 8}", "max_batch_size is 8 in model.yaml but 0 in config.pbtxt"),
    ],
)
def test_invalid_settings_are_rejected(start: Start, yaml: str | None, message: str) -> None:
    with pytest.raises(ServingError, match=message):
        start(yaml)


def test_missing_library_error_has_installation_instructions(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    with pytest.raises(ServingError, match=r"pip install 'tensorrt-llm>=1\.0'"):
        start()
