"""``schedule.bin``: the input of recording beside the journals. Written before a run's first request, read to recover the run.

A line with the version, then one frame (``frames.py``) of MessagePack. A request takes about 25 bytes, whatever the length of
its prompt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from bench_records.regular_file import regular
from bench_records.whole_file import written_whole
from harness.errors import JournalError
from harness.journal.frames import framed, read_frame
from harness.journal.run_identity import RunId
from harness.protocols.known_client import KnownClient
from harness.recording.schedule_summary import ScheduleSummary

_MOST_WORKERS = 1 << 16
_MOST_TARGETS = 1 << 10
_MAGIC = b"inflight-bench schedule 3\n"


class RecordingBasis(msgspec.Struct, frozen=True):
    """The parameters of recording, and the run whose journals they are for. The tokenizer in ``tokenizer_dir`` counts the
    tokens of text where the server does not. ``client`` is that of the first target and decodes
    the answers of all; ``further`` are the ``expects_finish_reason`` of the clients of other targets.
    """

    run_id: RunId
    schedule: ScheduleSummary
    client: KnownClient
    workers: Annotated[int, Meta(ge=1, le=_MOST_WORKERS)]
    tokenizer_dir: str | None
    further: Annotated[tuple[bool | None, ...], Meta(max_length=_MOST_TARGETS)] = ()


def write_basis(basis: RecordingBasis, path: Path) -> None:
    """Write ``schedule.bin``, whole or not at all, the client without the fields that only sending needs. Raises OSError."""
    stored = msgspec.structs.replace(basis, client=basis.client.for_decoding())
    with written_whole(path) as temporary:
        temporary.write_bytes(_MAGIC + framed(msgspec.msgpack.encode(stored)))


def read_basis(path: Path) -> RecordingBasis:
    """Read ``schedule.bin``. Raises JournalError, which names the file, where it is missing, damaged or of another version."""
    try:
        file = regular(path).open("rb")
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror}); without it the journals cannot be decoded") from error
    with file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise JournalError(f"{path} was written by another version of bench: recover the run with that version")
        payload = read_frame(file)
        if payload is None or file.read(1):
            raise JournalError(f"{path} is damaged: its checksum does not match; without it the journals cannot be decoded")
    try:
        return msgspec.msgpack.decode(payload, type=RecordingBasis)
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(f"{path} cannot be read by this version of bench: {error}") from error
