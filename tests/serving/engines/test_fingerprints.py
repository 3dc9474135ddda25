"""Fingerprints of an engine's files: any change at either end of a file, or of its size, is another one."""

from __future__ import annotations

import os
from pathlib import Path

from serving.engines.fingerprints import fingerprints

_MIB = 1 << 20


def test_a_file_that_changes_has_another_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    large, small = tmp_path / "inner" / "weights.bin", tmp_path / "config.json"
    content = bytearray(os.urandom(3 * _MIB))
    seen = set()
    for change in (None, 0, _MIB - 1, 2 * _MIB, 3 * _MIB - 1):
        if change is not None:
            content[change] ^= 1
        large.write_bytes(content)
        small.write_text(f"{change}")
        found = fingerprints(tmp_path)
        assert list(found) == ["config.json", "inner/weights.bin"]
        assert found == fingerprints(tmp_path)
        seen |= set(found.values())
    assert len(seen) == 10
    large.write_bytes(content[: 2 * _MIB])
    assert fingerprints(tmp_path)["inner/weights.bin"].startswith(f"{2 * _MIB} bytes, ")


def test_what_cannot_be_read_is_left_out_and_a_folder_is_read_in_part(tmp_path: Path) -> None:
    assert fingerprints(tmp_path / "none") == {}
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "empty").touch()
    assert fingerprints(tmp_path).keys() == {"empty"}
    for number in range(300):
        (tmp_path / f"{number:03}").touch()
    assert len(fingerprints(tmp_path)) == 200
