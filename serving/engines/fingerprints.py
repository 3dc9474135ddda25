"""Fingerprints of the files of an engine, which show later whether it is still the same engine."""

from __future__ import annotations

from pathlib import Path

import xxhash

_MOST_FILES = 200
_ENDS = 1 << 20  # bytes that are read of each end of a file: weights take many gigabytes


def fingerprints(folder: Path) -> dict[str, str]:
    """Size and hash (XXH3, of the first and last MiB) of each file below ``folder``, by its path; those that cannot be read are
    left out, as are all after the first 200.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())[:_MOST_FILES]
    found = {path.relative_to(folder).as_posix(): _fingerprint(path) for path in files}
    return {name: text for name, text in found.items() if text is not None}


def _fingerprint(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            digest = xxhash.xxh3_64(file.read(_ENDS))
            file.seek(max(_ENDS, size - _ENDS))
            digest.update(file.read(_ENDS))
    except OSError:
        return None
    return f"{size} bytes, {digest.hexdigest()}"
