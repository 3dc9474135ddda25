"""Export of a Hugging Face checkpoint to an engine folder. Needs the extra ``[export]``; running an engine does not."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

from serving.errors import EngineBuildError, EngineError

_LOG = logging.getLogger(__name__)

WEIGHT_FORMATS = ("fp32", "fp16", "int8")

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "chat_template.jinja",
)


def build_openvino_engine(model_dir: Path, output_dir: Path, weight_format: str) -> Path:
    """Export the causal language model in ``model_dir`` to OpenVINO IR, with its tokenizer.

    ``weight_format`` is the format of the stored weights (fp32, fp16, int8); the embedded engine always computes in float32.
    Returns ``output_dir``. Raises EngineBuildError when ``model_dir`` is not a checkpoint, ``output_dir`` is not empty, or the
    extra [export] is not installed.
    """
    _check(model_dir, output_dir, weight_format)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a build reads model_dir only
    try:
        import openvino as ov
        from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    except ImportError as error:
        raise EngineBuildError(
            f"building an engine needs the extra [export] ({error}); install it with: pip install 'inflight-bench[export]'"
        ) from error
    quantization = OVWeightQuantizationConfig(bits=8) if weight_format == "int8" else None
    output_dir.mkdir(parents=True, exist_ok=True)
    try:
        model = OVModelForCausalLM.from_pretrained(
            str(model_dir), export=True, compile=False, load_in_8bit=False, quantization_config=quantization
        )
        ov.save_model(model.model, output_dir / "openvino_model.xml", compress_to_fp16=weight_format != "fp32")
    except Exception as error:
        raise EngineBuildError(f"OpenVINO could not export {model_dir}: {error}") from error
    for name in ("config.json", "generation_config.json", *_TOKENIZER_FILES):
        if (model_dir / name).is_file():
            shutil.copyfile(model_dir / name, output_dir / name)
    _add_tokenizer_ir(output_dir)
    return output_dir


def _add_tokenizer_ir(output_dir: Path) -> None:
    """Add the tokenizer as IR, for guided decoding. An engine whose tokenizer cannot be converted serves the rest."""
    from serving.engines.openvino.guides import save_tokenizer_ir

    try:
        save_tokenizer_ir(output_dir, output_dir)
    except EngineError as error:
        _LOG.warning("%s", error)


def _check(model_dir: Path, output_dir: Path, weight_format: str) -> None:
    if weight_format not in WEIGHT_FORMATS:
        raise EngineBuildError(f"unknown weight format {weight_format!r}; known: {', '.join(WEIGHT_FORMATS)}")
    config = model_dir / "config.json"
    if not config.is_file():
        raise EngineBuildError(f"{model_dir} is not a Hugging Face checkpoint: {config} does not exist")
    try:
        json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EngineBuildError(f"{config} is not JSON: {error}") from error
    if output_dir.exists() and any(output_dir.iterdir()):
        raise EngineBuildError(f"{output_dir} is not empty; give an empty or new folder")
