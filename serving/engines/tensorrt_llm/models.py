"""Model families: the capabilities and flags of TensorRT-LLM's checkpoint converters.

Source: ``convert_checkpoint.py`` of each family under TensorRT-LLM's ``examples``, and ``examples/quantization/quantize.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from serving.errors import EngineBuildError


@dataclass(frozen=True, slots=True)
class Quantization:
    """Weight format: flags of the converter, or ``--qformat`` of quantize.py; neither for unquantized weights."""

    converter_flags: tuple[str, ...] = ()
    qformat: str | None = None
    calibrates: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One converter: the Hugging Face model types that it reads, and its capabilities."""

    name: str
    model_types: tuple[str, ...]
    quantizations: tuple[str, ...]
    kv_cache_dtypes: tuple[str, ...]
    pipeline: bool = True
    experts: bool = False

    def paths(self, model_dir: Path, checkpoint_dir: Path) -> tuple[str, ...]:
        """Input and output flags; Gemma's converter requires the kind of the checkpoint, too."""
        kind = ("--ckpt-type", "hf") if self.name == "gemma" else ()
        return (*kind, "--model_dir", str(model_dir), "--output_dir", str(checkpoint_dir))

    def parallelism(self, tp_size: int, pp_size: int) -> tuple[str, ...]:
        """Flags for the number of ranks; Gemma's converter supports tensor parallelism only, as ``--world-size``."""
        if self.name == "gemma":
            return ("--world-size", str(tp_size))
        return ("--tp_size", str(tp_size), "--pp_size", str(pp_size))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Properties of a Hugging Face checkpoint; None where its ``config.json`` has no value."""

    model_type: str | None
    family: str | None
    attention_heads: int | None
    layers: int | None


QUANTIZATIONS = MappingProxyType(
    {
        "none": Quantization(),
        "int8_weight_only": Quantization(("--use_weight_only", "--weight_only_precision", "int8")),
        "int4_weight_only": Quantization(("--use_weight_only", "--weight_only_precision", "int4")),
        "smoothquant": Quantization(("--smoothquant", "0.5", "--per_token", "--per_channel"), calibrates=True),
        "fp8": Quantization(qformat="fp8", calibrates=True),
        "nvfp4": Quantization(qformat="nvfp4", calibrates=True),
        "int4_awq": Quantization(qformat="int4_awq", calibrates=True),
        "w4a8_awq": Quantization(qformat="w4a8_awq", calibrates=True),
        "int8_sq": Quantization(qformat="int8_sq", calibrates=True),
    }
)

_WEIGHT_ONLY = ("int8_weight_only", "int4_weight_only")
_WITH_SMOOTHQUANT = (*_WEIGHT_ONLY, "smoothquant")

FAMILIES = MappingProxyType(
    {
        family.name: family
        for family in (
            Family("llama", ("llama", "mistral", "mixtral"), _WITH_SMOOTHQUANT, ("int8", "fp8"), experts=True),
            Family("qwen", ("qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), _WITH_SMOOTHQUANT, ("int8",), experts=True),
            Family("gpt", ("gpt2", "gpt_bigcode", "starcoder2"), _WITH_SMOOTHQUANT, ("int8",)),
            Family("phi", ("phi", "phi3", "phi3small", "phimoe"), _WEIGHT_ONLY, (), pipeline=False, experts=True),
            Family("gemma", ("gemma", "gemma2", "gemma3_text"), _WITH_SMOOTHQUANT, ("int8", "fp8"), pipeline=False),
        )
    }
)


def read_checkpoint(model_dir: Path) -> Checkpoint:
    """Properties from ``config.json``. Raises EngineBuildError when ``model_dir`` is not a checkpoint."""
    path = model_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineBuildError(f"{model_dir} is not a Hugging Face checkpoint: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise EngineBuildError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise EngineBuildError(f"{path} is not a JSON object")
    model_type = config.get("model_type")
    family = next((family.name for family in FAMILIES.values() if model_type in family.model_types), None)
    return Checkpoint(
        model_type=model_type if isinstance(model_type, str) else None,
        family=family,
        attention_heads=_whole(config.get("num_attention_heads", config.get("n_head"))),
        layers=_whole(config.get("num_hidden_layers", config.get("n_layer"))),
    )


def converter_path(examples_dir: Path, family: Family) -> Path:
    """Path of the family's converter, which moved to ``models/core`` after TensorRT-LLM 0.18."""
    older = examples_dir / family.name / "convert_checkpoint.py"
    return older if older.is_file() else examples_dir / "models" / "core" / family.name / "convert_checkpoint.py"


def quantizer_path(examples_dir: Path) -> Path:
    """Path of the calibration script."""
    return examples_dir / "quantization" / "quantize.py"


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
