"""``schedule.bin``: what recording works from besides the journals. Written before a run's first request, read to recover it.

A line that names the version, then one frame (``frames.py``) of MessagePack. A request takes about 25 bytes, however long its
prompt is.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.clients.registry import KnownClient, for_decoding
from harness.errors import JournalError
from harness.journal.frames import framed, read_frame
from harness.recording.schedule_summary import AskedSchedule
from harness.records.whole_file import written_whole

_MAGIC = b"inflight-bench schedule 1\n"


class RecordingBasis(msgspec.Struct, frozen=True):
    """All that turns journals into records. ``tokenizer_dir`` counts the tokens of text where the server does not."""

    schedule: AskedSchedule
    client: KnownClient
    workers: int
    tokenizer_dir: str | None


def write_basis(basis: RecordingBasis, path: Path) -> None:
    """Write ``schedule.bin``, whole or not at all, its client without what only sending needs. Raises OSError."""
    kept = msgspec.structs.replace(basis, client=for_decoding(basis.client))
    with written_whole(path) as temporary:
        temporary.write_bytes(_MAGIC + framed(msgspec.msgpack.encode(kept)))


def read_basis(path: Path) -> RecordingBasis:
    """Read what ``write_basis`` wrote. Raises JournalError, naming the file, where it is not there, damaged or foreign."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror}); without it the journals cannot be understood") from error
    with file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise JournalError(f"{path} is of another version of bench: recover the run with the version that made it")
        payload = read_frame(file)
        if payload is None or file.read(1):
            raise JournalError(f"{path} is damaged: its checksum does not fit; the journals cannot be understood without it")
    try:
        return msgspec.msgpack.decode(payload, type=RecordingBasis)
    except msgspec.DecodeError as error:
        raise JournalError(f"{path} cannot be read by this version of bench: {error}") from error
