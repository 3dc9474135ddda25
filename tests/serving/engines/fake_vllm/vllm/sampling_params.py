"""Sampling parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class StructuredOutputsParams:
    json: str | None = None
    regex: str | None = None
    grammar: str | None = None
    json_object: bool | None = None


@dataclass
class SamplingParams:
    max_tokens: int = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    detokenize: bool = True
    stop_token_ids: list[int] = field(default_factory=list)
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    logprobs: int | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    bad_words: list[str] = field(default_factory=list)
    _bad_words_token_ids: list[list[int]] | None = None

    def update_from_tokenizer(self, tokenizer: Any) -> None:
        """The ids of the words, at the beginning of a text and after a space where these differ."""
        if not self.bad_words:
            return
        self._bad_words_token_ids = []
        for word in self.bad_words:
            first, inside = (tokenizer.encode(text=space + word.lstrip(), add_special_tokens=False) for space in ("", " "))
            self._bad_words_token_ids += [first, inside] if len(inside) == len(first) and inside[0] != first[0] else [first]
        outside = [token for ids in self._bad_words_token_ids for token in ids if not 0 <= token <= tokenizer.max_token_id]
        if outside:
            raise ValueError(f"tokens {outside} were specified as bad")

    @property
    def bad_words_token_ids(self) -> list[list[int]] | None:
        return self._bad_words_token_ids
