"""Guided decoding in the OpenVINO engine: OpenVINO GenAI's xgrammar, which needs the engine's tokenizer as OpenVINO IR."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import openvino as ov
import openvino_genai as genai

from serving.engines.openvino.guide_trial import GuideTrial
from serving.engines.protocol import Guide
from serving.errors import EngineError

_TOKENIZER_IR = "openvino_tokenizer.xml"
_MOST_OUTCOMES = 1000


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
        raise EngineError(f"the tokenizer in {tokenizer_dir} cannot be converted for guided decoding: {reason}") from error


def load_tokenizer_ir(engine_dir: Path) -> Any:
    """The engine's ``openvino_genai.Tokenizer``, converted on the fly where the folder has none. Raises EngineError."""
    if (engine_dir / _TOKENIZER_IR).is_file():
        return _open_tokenizer(engine_dir)
    with tempfile.TemporaryDirectory(prefix="inflight-bench-tokenizer-") as folder:
        save_tokenizer_ir(engine_dir, Path(folder))
        return _open_tokenizer(Path(folder))


def _open_tokenizer(folder: Path) -> Any:
    try:
        return genai.Tokenizer(str(folder))
    except Exception as error:
        reason = str(error).strip().splitlines()[-1]
        raise EngineError(f"{folder / _TOKENIZER_IR} cannot be loaded: {reason}") from error


class Guides:
    """Registry of checked guides. An invalid guide in the shared pipeline would abort the step of all requests."""

    def __init__(self, tokenizer: Any, missing: str = "") -> None:
        """``tokenizer`` None rejects every guide, with the reason ``missing``."""
        self._missing = missing
        self.end_id = -1 if tokenizer is None else int(tokenizer.get_eos_token_id())
        self._trial = GuideTrial()
        self._outcomes: OrderedDict[Guide, str] = OrderedDict()

    def flaw(self, guide: Guide) -> str | None:
        """Error of a guide, empty when it is valid; None when it is unchecked, and then it is queued for checking."""
        if self._missing:
            return f"guided_decoding_guide: {self._missing}"
        if guide not in self._outcomes:
            self._trial.check(guide)
            return None
        reason = self._outcomes[guide]
        return f"guided_decoding_guide is not a usable {guide.type.value}: {reason}" if reason else ""

    def poll(self) -> bool:
        """Fetch the next result of the trial, if any; returns whether there was one. Never blocks."""
        result = self._trial.result()
        if result is None:
            return False
        self._outcomes[result[0]] = result[1]
        if len(self._outcomes) > _MOST_OUTCOMES:
            self._outcomes.popitem(last=False)
        return True
