"""Reading an OpenVINO engine folder without loading OpenVINO."""

from __future__ import annotations

import json
from pathlib import Path

from serving.engines.protocol import EngineLimits
from serving.errors import EngineError


def read_limits(engine_dir: Path) -> EngineLimits:
    """Vocabulary and context of an engine folder. Raises EngineError when it is no OpenVINO engine."""
    if not (engine_dir / "openvino_model.xml").is_file():
        raise EngineError(f"{engine_dir} holds no OpenVINO engine (openvino_model.xml); make one with 'bench engine build'")
    path = engine_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return EngineLimits(int(config["vocab_size"]), int(config["max_position_embeddings"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} does not give vocab_size and max_position_embeddings: {error}") from error
