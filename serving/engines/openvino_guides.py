"""Guided decoding in the OpenVINO engine: xgrammar inside OpenVINO GenAI, which needs the engine's tokenizer as OpenVINO IR."""

from __future__ import annotations

import json
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from serving.engines.protocol import Guide, GuideType
from serving.errors import EngineError, RequestError

_TOKENIZER_IR = "openvino_tokenizer.xml"
_PROBE_ENGINE_DIR = Path(__file__).parent.parent / "demo_engine"  # small, and its tokenizer covers every byte
_ANY_JSON = json.dumps({"anyOf": [{"type": "object"}, {"type": "array"}]})
_FIELDS = {
    GuideType.JSON: "json_schema",
    GuideType.JSON_SCHEMA: "json_schema",
    GuideType.REGEX: "regex",
    GuideType.EBNF_GRAMMAR: "grammar",
}


def save_tokenizer_ir(tokenizer_dir: Path, output_dir: Path) -> None:
    """Write a Hugging Face tokenizer as OpenVINO IR. Raises EngineError when it cannot be converted."""
    try:
        from openvino_tokenizers import convert_tokenizer
        from transformers import AutoTokenizer

        tokenizer, detokenizer = convert_tokenizer(AutoTokenizer.from_pretrained(str(tokenizer_dir)), with_detokenizer=True)
        ov.save_model(tokenizer, output_dir / _TOKENIZER_IR)
        ov.save_model(detokenizer, output_dir / "openvino_detokenizer.xml")
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise EngineError(f"the tokenizer in {tokenizer_dir} has no form that guided decoding can use: {reason}") from error


def load_tokenizer_ir(engine_dir: Path) -> Any:
    """The engine's ``openvino_genai.Tokenizer``, converted now where the folder holds none. Raises EngineError."""
    if (engine_dir / _TOKENIZER_IR).is_file():
        return genai.Tokenizer(str(engine_dir))
    with tempfile.TemporaryDirectory(prefix="inflight-bench-tokenizer-") as folder:
        save_tokenizer_ir(engine_dir, Path(folder))
        return genai.Tokenizer(folder)


class Guides:
    """Turns a guide into OpenVINO's configuration, once it is known to be sound."""

    def __init__(self, tokenizer: Any, missing: str = "") -> None:
        """``tokenizer`` None refuses every guide; ``missing`` says why."""
        self._missing = missing
        self.end_id = -1 if tokenizer is None else int(tokenizer.get_eos_token_id())
        self._sound: set[Guide] = set()

    def configuration(self, guide: Guide) -> Any:
        """``openvino_genai.StructuredOutputConfig``. Raises RequestError for a guide that cannot be followed."""
        if self._missing:
            raise RequestError(f"guided_decoding_guide: {self._missing}")
        if guide not in self._sound:
            self._probe(guide)
            self._sound.add(guide)
        return _configuration(guide)

    def _probe(self, guide: Guide) -> None:
        """Compile the guide in a pipeline of its own: in the shared one an error would break off everyone's step."""
        config = genai.GenerationConfig()
        config.max_new_tokens = 1
        config.structured_output_config = _configuration(guide)
        handle = self._probe_pipeline.add_request(0, ov.Tensor(np.ones((1, 1), dtype=np.int64)), config)
        try:
            self._probe_pipeline.step()
        except Exception as error:
            reason = str(error).strip().splitlines()[-1].split(": ", 1)[-1]
            raise RequestError(f"guided_decoding_guide is no {guide.type.value} that can be followed: {reason}") from error
        finally:
            handle.cancel()
            self._probe_pipeline.step()

    @cached_property
    def _probe_pipeline(self) -> Any:
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = 2
        tokenizer = genai.Tokenizer(str(_PROBE_ENGINE_DIR))
        return genai.ContinuousBatchingPipeline(str(_PROBE_ENGINE_DIR), tokenizer, scheduler, "CPU")


def _configuration(guide: Guide) -> Any:
    config = genai.StructuredOutputConfig()
    setattr(config, _FIELDS[guide.type], _ANY_JSON if guide.type is GuideType.JSON else guide.text)
    return config
