"""``datasets/prompts.json``, the shipped prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from workloads.dataset import DatasetWorkload, read_dataset
from workloads.request import LengthLimits
from workloads.rows import PromptRow

_ROOT = Path(__file__).parents[2]
_PROMPTS = _ROOT / "datasets" / "prompts.json"
_TOKENIZER = _ROOT / "serving" / "demo_engine" / "tokenizer.json"


@pytest.fixture(scope="module")
def rows() -> list[PromptRow]:
    return read_dataset(_PROMPTS)


def test_format_is_upstreams() -> None:
    assert {frozenset(row) for row in json.loads(_PROMPTS.read_text(encoding="utf-8"))} == {
        frozenset({"input", "instruction", "output"})
    }


def test_there_are_at_least_500_prompts(rows: list[PromptRow]) -> None:
    assert len(rows) >= 500


def test_no_prompt_occurs_twice(rows: list[PromptRow]) -> None:
    # Compared without case and white space: prompts that differ only in these would share blocks of a prefix cache.
    assert len({" ".join(row.prompt.lower().split()) for row in rows}) == len(rows)


def test_prompts_have_10_to_1500_tokens_of_the_demo_engine(rows: list[PromptRow]) -> None:
    tokenizer = Tokenizer.from_file(str(_TOKENIZER))
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch([row.prompt for row in rows])]
    assert min(lengths) >= 10
    assert max(lengths) <= 1500
    assert len(set(lengths)) > 100  # short and long prompts


def test_answers_yield_different_output_lengths(rows: list[PromptRow]) -> None:
    assert all(row.answer.strip() for row in rows)
    lengths = {request.output_tokens for request in DatasetWorkload(1.3).requests(rows).requests}
    assert len(lengths) > 20


def test_no_prompt_is_too_long_for_the_demo_engine(rows: list[PromptRow]) -> None:
    context_tokens = json.loads((_TOKENIZER.parent / "config.json").read_text())["max_position_embeddings"]
    tokenizer = Tokenizer.from_file(str(_TOKENIZER))
    made = DatasetWorkload(
        1.3, lambda text: tokenizer.encode(text).ids, limits=LengthLimits(context_tokens=context_tokens)
    ).requests(rows)
    assert made.dropped_too_long == 0
