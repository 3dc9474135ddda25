"""MT-Bench's and Spec-Bench's turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads.elements.errors import DatasetError
from workloads.readers.detect import read_workload_file

Rows = Callable[..., list[dict[str, Any]]]


def test_each_row_is_a_session_of_its_turns(rows: Rows) -> None:
    assert rows({"question_id": 1, "turns": ["a", "b"]}, {"turns": ["c"]}, lines=True) == [
        {"session": "line 1", "prompt": "a"},
        {"session": "line 1", "parent": 0, "prompt": "b"},
        {"session": "line 2", "prompt": "c"},
    ]


@pytest.mark.parametrize(
    ("turns", "problem"),
    [([], "is empty"), ("a", "must be a list"), (["a", 2], '"turn 2" must be a string'), (["a", ""], "the prompt is empty")],
)
def test_turns_that_are_none_are_named(rows: Rows, turns: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"line 2: .*{problem}"):
        rows({"turns": ["a"]}, {"turns": turns}, lines=True)


def test_the_real_questions_are_80_sessions_of_two_turns(shared_data: Path) -> None:
    table = read_workload_file(shared_data / "mt_bench_question.jsonl", strict=True).workload.table
    assert table.num_rows == 160
    assert len(set(table["session"].to_pylist())) == table["parent"].null_count == 80
