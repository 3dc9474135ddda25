"""Guided decoding in the OpenVINO engine: xgrammar inside OpenVINO GenAI, which needs the engine's tokenizer as OpenVINO IR."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import openvino as ov
import openvino_genai as genai

from serving.engines.openvino.guide_probe import GuideProbe
from serving.engines.protocol import Guide
from serving.errors import EngineError

_TOKENIZER_IR = "openvino_tokenizer.xml"
_REMEMBERED = 1000


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
    """Knows which guides are sound. A broken one in the shared pipeline would break off everyone's step."""

    def __init__(self, tokenizer: Any, missing: str = "") -> None:
        """``tokenizer`` None refuses every guide; ``missing`` says why."""
        self._missing = missing
        self.end_id = -1 if tokenizer is None else int(tokenizer.get_eos_token_id())
        self._probe = GuideProbe()
        self._outcomes: OrderedDict[Guide, str] = OrderedDict()

    @property
    def busy(self) -> bool:
        return self._probe.busy

    def flaw(self, guide: Guide) -> str | None:
        """What is wrong with a guide, empty when nothing is; None when that is not known yet, and will be asked."""
        if self._missing:
            return f"guided_decoding_guide: {self._missing}"
        if guide not in self._outcomes:
            self._probe.ask(guide)
            return None
        reason = self._outcomes[guide]
        return f"guided_decoding_guide is no {guide.type.value} that can be followed: {reason}" if reason else ""

    def listen(self) -> bool:
        """Whether something new is known; never waits."""
        settled = self._probe.settled()
        if settled is None:
            return False
        self._outcomes[settled[0]] = settled[1]
        if len(self._outcomes) > _REMEMBERED:
            self._outcomes.popitem(last=False)
        return True
