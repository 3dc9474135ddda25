"""What is written is read back by the reader of the same format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import WorkloadError
from workloads.readers.detect import read_workload_file
from workloads.table.workload import Workload, WorkloadFacts
from workloads.table.writers import WRITTEN_FORMATS, write_workload

_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Z"]), min_size=1, max_size=10)
_SPACED = st.lists(_TEXT, min_size=2, max_size=3).map(" ".join)


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("written") / "workload.txt"


def _read_back(workload: Workload, name: str, path: Path, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    assert write_workload(workload, name, path) == 0
    rows: list[dict[str, Any]] = read_workload_file(path, name, strict=True).workload.table.select(columns).to_pylist()
    return rows


@given(rows=st.lists(st.tuples(_SPACED, _TEXT), min_size=1, max_size=5))
def test_upstream_s_rows_are_read_back_equal(rows: list[tuple[str, str]], path: Path) -> None:
    columns = {"prompt": [prompt for prompt, _ in rows], "answer": [answer for _, answer in rows]}
    workload = Workload.of_columns(WorkloadFacts("x", "y"), len(rows), columns)
    assert _read_back(workload, "upstream", path, ("prompt", "answer")) == workload.table.select(list(columns)).to_pylist()


@given(rows=st.lists(st.tuples(_TEXT, st.none() | st.integers(1, 10**6)), min_size=1, max_size=5))
@pytest.mark.parametrize("name", ["custom", "openai"])
def test_prompts_with_lengths_are_read_back_equal(name: str, rows: list[tuple[str, int | None]], path: Path) -> None:
    columns = {"prompt": [prompt for prompt, _ in rows], "output_tokens": [length for _, length in rows]}
    workload = Workload.of_columns(WorkloadFacts("x", "y"), len(rows), columns)
    assert _read_back(workload, name, path, ("prompt", "output_tokens")) == workload.table.select(list(columns)).to_pylist()


@given(arrivals=st.lists(st.integers(0, 10**15), min_size=1, max_size=5))
@pytest.mark.parametrize("name", ["custom", "openai"])
def test_arrivals_of_prompts_are_read_back_to_a_ns(name: str, arrivals: list[int], path: Path) -> None:
    times = [arrival - min(arrivals) for arrival in sorted(arrivals)]
    columns = {"prompt": [f"p{number}" for number in range(len(times))], "arrival_ns": times}
    workload = Workload.of_columns(WorkloadFacts("x", "y"), len(times), columns)
    assert _read_back(workload, name, path, ("prompt", "arrival_ns")) == workload.table.select(list(columns)).to_pylist()


@pytest.mark.parametrize("name", ["custom", "openai"])
@pytest.mark.parametrize(("arrivals", "untimed"), [([0, None], 0), ([0, 5], 1)])
def test_arrivals_that_some_rows_lack_are_not_written(name: str, arrivals: list[int | None], untimed: int, path: Path) -> None:
    facts = WorkloadFacts("x", "y", untimed_rows=untimed)
    workload = Workload.of_columns(facts, 2, {"prompt": ["a", "b"], "arrival_ns": arrivals})
    assert _read_back(workload, name, path, ("prompt", "arrival_ns")) == [
        {"prompt": "a", "arrival_ns": None},
        {"prompt": "b", "arrival_ns": None},
    ]


_TRACE = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 2_000), st.integers(1, 10**6)), min_size=1, max_size=6)


@given(rows=_TRACE)
@pytest.mark.parametrize(("name", "unit_ns"), [("azure", 1), ("mooncake", 10**6)])
def test_traces_are_read_back_to_the_resolution_of_the_format(
    name: str, unit_ns: int, rows: list[tuple[int, int, int]], path: Path
) -> None:
    rows = sorted((arrival // unit_ns * unit_ns, inputs, outputs) for arrival, inputs, outputs in rows)
    columns: dict[str, Any] = {
        "arrival_ns": [arrival - rows[0][0] for arrival, _, _ in rows],
        "input_tokens": [inputs for _, inputs, _ in rows],
        "output_tokens": [outputs for _, _, outputs in rows],
        "block_hashes": [list(range(-(-inputs // 512))) for _, inputs, _ in rows],
    }
    workload = Workload.of_columns(WorkloadFacts("x", "y", block_tokens=512), len(rows), columns)
    names = tuple(column for column in columns if name == "mooncake" or column != "block_hashes")
    assert _read_back(workload, name, path, names) == workload.table.select(names).to_pylist()


def _conversation() -> Workload:
    columns = {
        "session": ["a", "a", "b", "b", "c"],
        "parent": [None, 0, None, 2, None],
        "history": [[{"role": "system", "content": "s"}], None, None, None, None],
        "prompt": ["p1", "p2", "p3", "p4", "p5"],
        "answer": ["a1", "a2", None, None, None],
    }
    return Workload.of_columns(WorkloadFacts("sharegpt", "x"), 5, columns)


def test_a_later_turn_is_written_with_the_conversation_before_it(path: Path) -> None:
    assert write_workload(_conversation(), "openai", path) == 1  # p4: the answer before it is not recorded
    table = read_workload_file(path, "openai", strict=True).workload.table
    history = [[(m["role"], m["content"]) for m in messages or ()] for messages in table["history"].to_pylist()]
    assert table["prompt"].to_pylist() == ["p1", "p2", "p3", "p5"]
    assert table["answer"].to_pylist() == ["a1", "a2", None, None]
    assert history == [[("system", "s")], [("system", "s"), ("user", "p1"), ("assistant", "a1")], [], []]


def test_turns_are_left_out_where_a_format_has_single_prompts(path: Path) -> None:
    assert write_workload(_conversation(), "custom", path) == 3
    assert read_workload_file(path, "custom").workload.table["prompt"].to_pylist() == ["p3", "p5"]


@pytest.mark.parametrize("name", WRITTEN_FORMATS)
def test_a_workload_that_a_format_cannot_express_is_refused(name: str, path: Path) -> None:
    with pytest.raises(WorkloadError, match=f"x: has no row that the format {name} can express: it needs"):
        write_workload(Workload.of_columns(WorkloadFacts("t", "x"), 2, {"answer": ["a", "b"]}), name, path)
