"""Joining the journals that workers on other hosts kept, when the master of a run ended before it had copied all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import JournalError
from harness.records.run_folder import RunFolder
from harness.records.whole_file import written_whole

_NAME = re.compile(r"(journal|probe)-\d+\.bin")
_CHUNK_BYTES = 1 << 20


def join_worker_copies(folder: RunFolder, sources: Sequence[Path]) -> tuple[str, ...]:
    """Replace each journal and probe of ``folder`` by the copy below ``sources`` that continues it; returns their names.

    Raises JournalError for a source without journals, and for a journal that does not begin as the folder's own; OSError.
    """
    joined: list[str] = []
    for source in sources:
        copies = sorted(path for path in source.rglob("*.bin") if _NAME.fullmatch(path.name))
        if not copies:
            raise JournalError(f"{source} holds no journal of a worker (journal-*.bin)")
        joined += [copy.name for copy in copies if _join(copy, folder.path / copy.name)]
    return tuple(joined)


def _join(copy: Path, own: Path) -> bool:
    """Whether ``copy`` holds more than ``own``, which it then replaces."""
    own_bytes = own.stat().st_size if own.exists() else 0
    if own_bytes > copy.stat().st_size:
        own, copy, own_bytes, is_newer = copy, own, copy.stat().st_size, False
    else:
        is_newer = own_bytes < copy.stat().st_size
    for ours, theirs in zip(_chunks(own, own_bytes), _chunks(copy, own_bytes), strict=True):
        if ours != theirs:
            raise JournalError(f"{copy} does not continue {own}: they are of different runs")
    if is_newer:
        with written_whole(own) as temporary, temporary.open("wb") as file:
            file.writelines(_chunks(copy, copy.stat().st_size))
    return is_newer


def _chunks(path: Path, length: int) -> Iterator[bytes]:
    """The first ``length`` bytes of a file that may be absent."""
    if not length:
        return
    with path.open("rb") as file:
        while length and (chunk := file.read(min(_CHUNK_BYTES, length))):
            length -= len(chunk)
            yield chunk
