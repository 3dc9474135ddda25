"""Build configuration of a TensorRT-LLM engine, from the ``config.json`` written by ``trtllm-build``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.errors import RepositoryError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits and features of an engine; None where its ``config.json`` has no value."""

    world_size: int | None
    max_batch_size: int | None
    max_beam_width: int | None
    kv_cache_is_paged: bool | None
    removes_input_padding: bool | None
    has_attention_plugin: bool | None
    has_paged_context_fmha: bool | None
    has_lora_plugin: bool | None


def read_engine_config(engine_dir: Path, option: str = "engine_dir") -> EngineConfig:
    """Read ``config.json`` and check that the engine file of every rank exists.

    Raises RepositoryError, naming ``option``, when a file is missing or ``config.json`` is not that of an engine.
    """
    path = engine_dir / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RepositoryError(f"--{option}: {path} does not exist; give an engine folder written by trtllm-build") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RepositoryError(f"--{option}: {path} cannot be read: {error}") from None
    build = _object(content, "build_config")
    if not build:
        raise RepositoryError(f"--{option}: {path} has no build_config; it may belong to a checkpoint instead of an engine")
    plugins = _object(build, "plugin_config")
    config = EngineConfig(
        world_size=_world_size(_object(_object(content, "pretrained_config"), "mapping")),
        max_batch_size=_count(build, "max_batch_size"),
        max_beam_width=_count(build, "max_beam_width"),
        kv_cache_is_paged=_is_paged(build, plugins),
        removes_input_padding=_flag(plugins, "remove_input_padding"),
        has_attention_plugin=_flag(plugins, "gpt_attention_plugin"),
        has_paged_context_fmha=_flag(plugins, "use_paged_context_fmha"),
        has_lora_plugin=_flag(plugins, "lora_plugin"),
    )
    for rank in range(config.world_size or 1):
        if not (engine_dir / f"rank{rank}.engine").is_file():
            raise RepositoryError(f"--{option}: {engine_dir} has no rank{rank}.engine")
    return config


def _object(content: object, key: str) -> Mapping[str, object]:
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, dict) else {}


def _count(content: Mapping[str, object], key: str) -> int | None:
    value = content.get(key)
    return value if isinstance(value, int) and value > 0 else None


def _flag(content: Mapping[str, object], key: str) -> bool | None:
    """State of a plugin: on for ``true`` or a data type, off for ``false``, ``null`` or "disable", absent in older files."""
    if key not in content:
        return None
    value = content[key]
    return bool(value) and value not in ("disable", "false", "False")


def _is_paged(build: Mapping[str, object], plugins: Mapping[str, object]) -> bool | None:
    if isinstance(build.get("kv_cache_type"), str):
        return str(build["kv_cache_type"]).rpartition(".")[2].lower() == "paged"
    return _flag(plugins, "paged_kv_cache")


def _world_size(mapping: Mapping[str, object]) -> int | None:
    named = _count(mapping, "world_size")
    sizes = [_count(mapping, name) for name in ("tp_size", "pp_size", "cp_size")]
    if named is not None or sizes[0] is None:
        return named
    return sizes[0] * (sizes[1] or 1) * (sizes[2] or 1)
