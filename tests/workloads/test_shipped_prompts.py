"""``datasets/prompts.json``, the prompts that the project ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from workloads.dataset import dataset_requests, read_dataset
from workloads.request import LengthLimits, PromptRow

_ROOT = Path(__file__).parents[2]
_PROMPTS = _ROOT / "datasets" / "prompts.json"
_TOKENIZER = _ROOT / "serving" / "demo_engine" / "tokenizer.json"


@pytest.fixture(scope="module")
def rows() -> list[PromptRow]:
    return read_dataset(_PROMPTS)


def test_it_has_upstream_s_shape_and_nothing_else() -> None:
    assert {frozenset(row) for row in json.loads(_PROMPTS.read_text(encoding="utf-8"))} == {
        frozenset({"input", "instruction", "output"})
    }


def test_it_holds_at_least_500_prompts(rows: list[PromptRow]) -> None:
    assert len(rows) >= 500


def test_no_prompt_occurs_twice(rows: list[PromptRow]) -> None:
    # compared without case and white space, so that no two differ in these alone: they would share a prefix cache
    assert len({" ".join(row.prompt.lower().split()) for row in rows}) == len(rows)


def test_prompts_have_10_to_1500_tokens_of_the_demo_engine(rows: list[PromptRow]) -> None:
    tokenizer = Tokenizer.from_file(str(_TOKENIZER))
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch([row.prompt for row in rows])]
    assert min(lengths) >= 10
    assert max(lengths) <= 1500
    assert len(set(lengths)) > 100  # short and long ones, not one size


def test_every_prompt_has_an_answer_that_decides_its_output_length(rows: list[PromptRow]) -> None:
    assert all(row.answer.strip() for row in rows)
    lengths = {request.output_tokens for request in dataset_requests(rows, None, None, 1.3).requests}
    assert len(lengths) > 20


def test_nothing_of_it_is_too_long_for_the_demo_engine(rows: list[PromptRow]) -> None:
    context_tokens = json.loads((_TOKENIZER.parent / "config.json").read_text())["max_position_embeddings"]
    tokenizer = Tokenizer.from_file(str(_TOKENIZER))
    made = dataset_requests(
        rows, lambda text: tokenizer.encode(text).ids, None, 1.3, LengthLimits(context_tokens=context_tokens)
    )
    assert made.dropped_too_long == 0
