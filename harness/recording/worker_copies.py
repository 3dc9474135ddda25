"""Joining the journals that workers on other hosts kept, when the master of a run ended before it had copied all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_records.run_folder import RunFolder
from bench_records.whole_file import written_whole
from harness.errors import JournalError
from harness.journal.frames import whole_until
from harness.journal.worker_journal import MAGIC, read_began

_NAME = re.compile(r"journal-(\d+)\.bin")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Joined:
    """The names of the files that were joined, and the journals of other runs, which were left out."""

    names: tuple[str, ...]
    left_out: tuple[Path, ...]


def join_worker_copies(folder: RunFolder, run_id: str, sources: Sequence[Path]) -> Joined:
    """Replace each journal of the run in ``folder``, and the samples beside it, by the longer copy below ``sources``.

    Raises JournalError for a source without a journal of this run, and for one that does not begin as the folder's own;
    OSError.
    """
    names: list[str] = []
    left_out: list[Path] = []
    for source in sources:
        journals = sorted(path for path in source.rglob("*.bin") if _NAME.fullmatch(path.name))
        own = [path for path in journals if _run_of(path) == run_id]
        if not own:
            others = f", but {len(journals)} of other runs" if journals else ""
            raise JournalError(f"{source} holds no journal (journal-*.bin) of a worker of this run, {run_id}{others}")
        # An older worker called its samples probe-*.bin.
        samples = [path.with_name(path.name.replace("journal", name)) for path in own for name in ("samples", "probe")]
        copies = [*own, *(path for path in samples if path.is_file())]
        names += [copy.name for copy in copies if _join(copy, folder.path / copy.name)]
        left_out += [path for path in journals if path not in own]
    return Joined(tuple(names), tuple(left_out))


def _run_of(journal: Path) -> str | None:
    """None where it cannot be read, or the worker had not started."""
    try:
        began = read_began(journal)
    except JournalError:
        return None
    return None if began is None else began.run_id


def _join(copy: Path, own: Path) -> bool:
    """Whether ``copy`` holds more than ``own``, which it then replaces."""
    own_bytes = own.stat().st_size if own.exists() else 0
    if own_bytes > copy.stat().st_size:
        own, copy, own_bytes, is_newer = copy, own, copy.stat().st_size, False
    else:
        is_newer = own_bytes < copy.stat().st_size
    position = 0
    for ours, theirs in zip(_chunks(own, own_bytes), _chunks(copy, own_bytes), strict=True):
        if ours != theirs:
            position += next(at for at, (our, their) in enumerate(zip(ours, theirs, strict=True)) if our != their)
            raise JournalError(f"{copy} does not continue {own}: {_fault((own, copy), position)}")
        position += len(ours)
    if is_newer:
        with written_whole(own) as temporary, temporary.open("wb") as file:
            file.writelines(_chunks(copy, copy.stat().st_size))
    return is_newer


def _fault(paths: Sequence[Path], position: int) -> str:
    """Why two files of one run differ at ``position``, by the checksums of their frames, and what to do."""
    damaged = [path for path in paths if _whole_bytes(path) <= position]
    match damaged:
        case [path]:
            return f"{path} is damaged at byte {_whole_bytes(path)}; move it away, and recover again"
        case []:
            return "both name the same run, and neither is damaged; move the wrong one away, and recover again"
    return f"both are damaged before byte {position + 1}; move one of them away, and recover again"


def _whole_bytes(path: Path) -> int:
    """Where the first frame of a journal, or of samples, begins that is torn or damaged."""
    with path.open("rb") as file:
        if _NAME.fullmatch(path.name) and file.read(len(MAGIC)) != MAGIC:
            return 0
        return whole_until(file)


def _chunks(path: Path, length: int) -> Iterator[bytes]:
    """The first ``length`` bytes of a file that may be absent."""
    if not length:
        return
    with path.open("rb") as file:
        while length and (chunk := file.read(min(_CHUNK_BYTES, length))):
            length -= len(chunk)
            yield chunk
