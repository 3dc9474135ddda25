from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_records.whole_file import write_json, written_whole


def test_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with written_whole(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_that_breaks_off_leaves_the_old_file_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def write_half() -> None:
        with written_whole(path) as temporary:
            temporary.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_that_made_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "run.json"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_json_holds_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    document = {"argument": b"caf\xe9".decode("utf-8", "surrogateescape"), "text": "naïve \U0001f600 \x00"}
    write_json(document, path)
    assert json.loads(path.read_text(encoding="utf-8")) == document
    assert "naïve" in path.read_text(encoding="utf-8")
