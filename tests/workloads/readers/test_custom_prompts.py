"""Rows with prompt and output_tokens, and rows with turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workloads.errors import DatasetError

Rows = Callable[..., list[dict[str, Any]]]


def test_prompts_may_have_a_length(rows: Rows) -> None:
    assert rows({"prompt": "a", "output_tokens": 5}, {"prompt": "b"}, {"prompt": "c", "max_tokens": 2}, lines=True) == [
        {"prompt": "a", "output_tokens": 5},
        {"prompt": "b"},
        {"prompt": "c", "output_tokens": 2},
    ]


@pytest.mark.parametrize("value", [-1, 10_000_001, 1.5, "5", True, float("nan"), float("inf"), [1], 10**400])
def test_a_length_that_is_none_is_named(rows: Rows, value: Any) -> None:
    with pytest.raises(DatasetError, match='line 2: "output_tokens" must be a whole number from 0 to 10,000,000, found'):
        rows({"prompt": "a"}, {"prompt": "a", "output_tokens": value}, lines=True)


@pytest.mark.parametrize(
    ("row", "problem"),
    [({"prompt": ""}, "the prompt is empty"), ({"prompt": None}, "must be a string"), ({"other": 1}, '"prompt" is missing')],
)
def test_a_row_without_a_prompt_is_named(rows: Rows, row: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"line 2: .*{problem}"):
        rows({"prompt": "a"}, row, lines=True)
