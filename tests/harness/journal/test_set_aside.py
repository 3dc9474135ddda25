from __future__ import annotations

from pathlib import Path

import pytest

from harness.journal.set_aside import set_aside


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_in_the_way_keeps_its_content_under_another_name(tmp_path: Path, kind: str) -> None:
    path, notes = tmp_path / "journal-0.bin", list[str]()
    for content in ("first", "second"):
        match kind:
            case "file":
                path.write_text(content)
            case "folder":
                path.mkdir()
                (path / "inside").write_text(content)
            case _:
                path.symlink_to(content)  # it leads nowhere
        set_aside(path, notes.append)
        assert not path.is_symlink()
        assert not path.exists()
    kept = [tmp_path / f"journal-0.bin.aside-{number}" for number in (1, 2)]
    match kind:
        case "file":
            assert [kept_path.read_text() for kept_path in kept] == ["first", "second"]
        case "folder":
            assert [(kept_path / "inside").read_text() for kept_path in kept] == ["first", "second"]
        case _:
            assert [str(kept_path.readlink()) for kept_path in kept] == ["first", "second"]
    assert notes == [
        f"{path} of an earlier run was in the way: it is kept as {kept_path.name} beside it." for kept_path in kept
    ]


def test_where_nothing_is_in_the_way_nothing_is_said(tmp_path: Path) -> None:
    set_aside(tmp_path / "journal-0.bin", pytest.fail)
