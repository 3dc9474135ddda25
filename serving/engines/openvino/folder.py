"""Content of an OpenVINO engine folder, read without loading OpenVINO."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from serving.engines.protocol import EngineLimits
from serving.errors import EngineError

DEMO_ENGINE_DIR = Path(__file__).parents[2] / "demo_engine"
TOKENS_PER_BLOCK = 32  # of the paged KV cache; fixed by OpenVINO's CPU plugin


@dataclass(frozen=True, slots=True)
class CacheGeometry:
    """Dimensions of one token in the KV cache."""

    layers: int
    kv_heads: int
    head_size: int
    element_bytes: int = 4  # float32

    @property
    def block_bytes(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head_size * self.element_bytes * TOKENS_PER_BLOCK


def read_limits(engine_dir: Path) -> EngineLimits:
    """Vocabulary size and context length of an engine folder. Raises EngineError when it is not an OpenVINO engine."""
    if not (engine_dir / "openvino_model.xml").is_file():
        raise EngineError(f"{engine_dir} holds no OpenVINO engine (openvino_model.xml); make one with 'bench engine build'")
    path = engine_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return EngineLimits(int(config["vocab_size"]), int(config["max_position_embeddings"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} does not give vocab_size and max_position_embeddings: {error}") from error


def read_geometry(engine_dir: Path) -> CacheGeometry | None:
    """Geometry of the KV cache; None where ``config.json`` lacks the fields of Hugging Face's decoder models."""
    try:
        config = json.loads((engine_dir / "config.json").read_text(encoding="utf-8"))
        heads = int(config["num_attention_heads"])
        head_size = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
        return CacheGeometry(int(config["num_hidden_layers"]), int(config.get("num_key_value_heads") or heads), head_size)
    except (OSError, ValueError, KeyError, TypeError):
        return None
