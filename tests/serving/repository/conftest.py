"""Engine folders like those of ``trtllm-build``, with the content that a repository reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MakeEngine = Callable[..., Path]


@pytest.fixture
def make_engine(tmp_path: Path) -> MakeEngine:
    """Function that creates an engine folder; keyword arguments change ``build_config``, ``plugins`` its ``plugin_config``."""

    def make(name: str = "engine", *, world_size: int = 1, plugins: dict[str, Any] | None = None, **build_config: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for rank in range(world_size):
            (folder / f"rank{rank}.engine").touch()
        plugin_config = {
            "gpt_attention_plugin": "auto",
            "remove_input_padding": True,
            "use_paged_context_fmha": True,
            "lora_plugin": "float16",
        }
        content = {
            "version": "0.19.0",
            "pretrained_config": {"mapping": {"world_size": world_size, "tp_size": world_size, "pp_size": 1}},
            "build_config": {
                "max_batch_size": 64,
                "max_beam_width": 4,
                "kv_cache_type": "PAGED",
                "plugin_config": plugin_config | (plugins or {}),
                **build_config,
            },
        }
        (folder / "config.json").write_text(json.dumps(content))
        return folder

    return make
