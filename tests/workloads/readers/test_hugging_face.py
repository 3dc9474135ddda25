"""Datasets of Hugging Face, read through a stand-in for their library, which is not installed here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workloads.elements.errors import DatasetError, WorkloadError
from workloads.readers.detect import Reading, read_workload_file

_TURNS = [{"turns": ["a", "b"], "id": None}, {"turns": ["c"], "id": None}, {"turns": None, "id": None}]


def _failing() -> Iterator[Any]:
    yield _TURNS[0]
    raise TimeoutError("no answer\nand more")


def _splits(name: str) -> Any:
    if name == "org/failing":
        return {"train": _failing()}
    if name == "org/absent":
        raise FileNotFoundError("Couldn't reach org/absent")
    known = {"test": [{"prompt": "q"}], "train": _TURNS, "empty": [], "odd": [{"image": 1}]}
    return known if name.startswith("org/") or Path(name).is_dir() else _TURNS


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(__version__="4.1.0", load_dataset=_splits, load_from_disk=lambda name: _TURNS[:1])
    monkeypatch.setitem(sys.modules, "datasets", made)  # type: ignore[arg-type]
    return made


def _read(name: str, **options: Any) -> Reading:
    return read_workload_file(Path(name), **options)


def test_rows_are_read_by_their_shape_and_malformed_ones_counted(library: SimpleNamespace) -> None:
    reading = _read("hf:org/name")
    assert reading.workload.table["prompt"].to_pylist() == ["a", "b", "c"]
    assert reading.workload.facts.rejected_rows == reading.rejects.count == 1
    assert reading.rejects.first[0].where == "row 3"


def test_a_split_can_be_named(library: SimpleNamespace) -> None:
    assert _read("hf:org/name@test").workload.facts.format == "custom"
    with pytest.raises(DatasetError, match="has no split 'dev'; it has test, train"):
        _read("hf:org/name@dev")


def test_a_folder_is_loaded_as_it_was_saved(library: SimpleNamespace, tmp_path: Path) -> None:
    assert len(_read(str(tmp_path)).workload) == 3
    (tmp_path / "state.json").touch()
    assert len(_read(str(tmp_path)).workload) == 2
    with pytest.raises(DatasetError, match="has no splits, so no 'test'"):
        _read(f"hf:{tmp_path}@test")


def test_the_name_of_a_folder_may_have_what_names_a_split_elsewhere(library: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "a@b").mkdir()
    (tmp_path / "a@b" / "state.json").touch()
    assert len(_read(str(tmp_path / "a@b")).workload) == 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("hf:org/absent", "cannot be loaded: FileNotFoundError: Couldn't reach"),
        ("hf:org/failing", "cannot be loaded: TimeoutError: no answer$"),
        ("hf:org/name@empty", "holds no rows"),
        ("hf:org/name@odd", "unknown shape with the columns 'image'; known are"),
    ],
)
def test_what_cannot_be_loaded_is_a_dataset_error(library: SimpleNamespace, name: str, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        _read(name)


def test_a_release_that_may_run_code_is_refused(library: SimpleNamespace) -> None:
    library.__version__ = "3.6.0"
    with pytest.raises(WorkloadError, match=r"datasets 3\.6\.0 may run code"):
        _read("hf:org/name")


def test_without_the_library_its_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="pip install 'datasets>=4'"):
        _read("hf:org/name")
