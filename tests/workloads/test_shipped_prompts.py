"""``datasets/prompts.json``, the prompts that the project ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from workloads.elements.request import LengthLimits
from workloads.prompts.dataset import DatasetPrompts, OutputLengths
from workloads.readers.detect import read_workload_file
from workloads.table.workload import Workload

_ROOT = Path(__file__).parents[2]
_PROMPTS = _ROOT / "datasets" / "prompts.json"
_TOKENIZER = _ROOT / "serving" / "demo_engine" / "tokenizer.json"


@pytest.fixture(scope="module")
def workload() -> Workload:
    return read_workload_file(_PROMPTS, strict=True).workload


@pytest.fixture(scope="module")
def prompts(workload: Workload) -> list[str]:
    texts: list[str] = workload.table["prompt"].to_pylist()
    return texts


def test_it_has_upstream_s_shape_and_nothing_else() -> None:
    assert {frozenset(row) for row in json.loads(_PROMPTS.read_text(encoding="utf-8"))} == {
        frozenset({"input", "instruction", "output"})
    }


def test_it_holds_at_least_500_prompts(prompts: list[str]) -> None:
    assert len(prompts) >= 500


def test_no_prompt_occurs_twice(prompts: list[str]) -> None:
    # compared without case and white space, so that no two differ in these alone: they would share a prefix cache
    assert len({" ".join(prompt.lower().split()) for prompt in prompts}) == len(prompts)


def test_prompts_have_10_to_1500_tokens_of_the_demo_engine(prompts: list[str]) -> None:
    tokenizer = Tokenizer.from_file(str(_TOKENIZER))
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(prompts)]
    assert min(lengths) >= 10
    assert max(lengths) <= 1500
    assert len(set(lengths)) > 100  # short and long ones, not one size


def test_every_prompt_has_an_answer_that_decides_its_output_length(workload: Workload) -> None:
    assert all(answer.strip() for answer in workload.table["answer"].to_pylist())
    lengths = {request.output_tokens for request in DatasetPrompts(workload, None, OutputLengths()).draw(None).requests}
    assert len(lengths) > 20


def test_nothing_of_it_is_too_long_for_the_demo_engine(workload: Workload) -> None:
    context_tokens = json.loads((_TOKENIZER.parent / "config.json").read_text())["max_position_embeddings"]
    tokenizer = Tokenizer.from_file(str(_TOKENIZER))
    made = DatasetPrompts(
        workload, lambda text: tokenizer.encode(text).ids, OutputLengths(), LengthLimits(context_tokens=context_tokens)
    ).draw(None)
    assert made.dropped_too_long == 0
