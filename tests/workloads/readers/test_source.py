"""The bytes of a file: compression, limits and standard input."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import DatasetError
from workloads.readers import source
from workloads.readers.detect import read_workload_file

Read = Callable[..., Any]
_LINES = b'{"prompt": "a"}\n{"prompt": "b"}\n'


def _zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


@pytest.mark.parametrize(("compress", "suffix"), [(gzip.compress, "gz"), (_zstd, "zst")])
def test_compressed_files_are_read_whatever_their_name(read: Read, compress: Callable[[bytes], bytes], suffix: str) -> None:
    plain = read(_LINES).workload
    assert read(compress(_LINES)).workload == plain
    assert read(compress(_LINES), f"data.jsonl.{suffix}").workload.table == plain.table
    assert len(read(compress(b"a\n\nb"), f"corpus.txt.{suffix}").workload) == 2


def test_several_gzip_members_are_one_file(read: Read) -> None:
    assert len(read(gzip.compress(_LINES) + gzip.compress(_LINES)).workload) == 4


@pytest.mark.parametrize("compress", [gzip.compress, _zstd])
@given(cut=st.integers(1, 200), flipped=st.none() | st.integers(4, 200))
def test_a_compressed_file_that_is_cut_or_damaged_is_an_error_or_read(
    read: Read, compress: Callable[[bytes], bytes], cut: int, flipped: int | None
) -> None:
    content = bytearray(compress(b"".join(b'{"prompt": "%d"}\n' % number for number in range(100))))
    if flipped is not None:
        content[flipped % len(content)] ^= 0x55
    try:
        assert len(read(bytes(content[: -(cut % len(content)) or None])).workload) <= 100
    except DatasetError:
        return


def test_a_cut_gzip_file_is_named(read: Read) -> None:
    with pytest.raises(DatasetError, match=r"data\.json: cannot be decompressed"):
        read(gzip.compress(_LINES)[:-6])


@pytest.mark.parametrize("start", [b"[", b'{"prompt": "a"}\n', b"TIMESTAMP,ContextTokens,GeneratedTokens\n"])
def test_a_bomb_is_an_error_before_it_fills_the_memory(read: Read, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    with pytest.raises(DatasetError, match="decompresses to more than 100 times its size"):
        read(gzip.compress(start + b"\n" * (8 << 20)))


def test_content_beyond_the_limit_is_refused(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 100_000)
    with pytest.raises(DatasetError, match="is larger than"):
        read(_LINES * 10_000)


@pytest.mark.parametrize("content", [_LINES, gzip.compress(_LINES, mtime=0)])
def test_standard_input_is_read_where_the_path_is_a_dash(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    reading = read_workload_file(Path("-"))
    assert len(reading.workload) == 2
    assert reading.workload.facts.source == "standard input"


def test_a_pipe_that_delivers_byte_by_byte_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(io.RawIOBase):
        rest = gzip.compress(_LINES)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            part, self.rest = self.rest[:1], self.rest[1:]
            buffer[: len(part)] = part
            return len(part)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Slow())))
    assert len(read_workload_file(Path("-")).workload) == 2


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere\.json: No such file"):
        read_workload_file(tmp_path / "nowhere.json")
