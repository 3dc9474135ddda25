"""Mutations of a run's folder, for ``hostile_folders``: what a bad disk, another program or an attacker may leave there."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.journal.frames import framed, read_frame

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**53 + 1, 2**63, 2**64 + 1, -(2**70), 10**400, 1e308, float("nan"), float("inf"), "", "x" * 5000,
    "\ud800", "\x1b[31m", "</script>", "../..", [], {}, [[]], [None], {"a": {"b": [1]}}, ["p99_ttft<=300ms"], b"\xff",
)  # fmt: skip
_NAMES = ("run.json", "requests.parquet", "client.parquet", "server.parquet", "schedule.bin", "journal-0.bin", "journal-1.bin")


def mutate(folder: Path, rng: random.Random) -> str:
    """Change one thing in ``folder``; returns what, in words."""
    return (bomb if rng.random() < _SHARE_OF_BOMBS else rng.choice(_MUTATIONS))(folder, rng)


def _manifest_value(folder: Path, rng: random.Random) -> str:
    """Another value, or none, in the place of one in run.json."""
    path = folder / "run.json"
    document = _json(path)
    places = list(_places(document)) if document is not None else []
    if not places:
        return "run.json was no JSON any more"
    parent, key = rng.choice(places)
    if rng.random() < 0.2:
        del parent[key]
        _write(path, json.dumps(document).encode())
        return f"run.json without {key!r}"
    value = rng.choice(_VALUES)
    parent[key] = value.decode("latin-1") if isinstance(value, bytes) else value
    _write(path, json.dumps(document).encode())
    return f"run.json with {key!r} = {str(value)[:40]!r}"


def _deep_manifest(folder: Path, rng: random.Random) -> str:
    path = folder / "run.json"
    depth = rng.choice((40, 500, 100_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    nested = opening * depth + b"1" + closing * depth
    _write(path, b'{"schema": 1, "state": "done", "workload": ' + nested + b"}")
    return f"run.json nested {depth} deep"


def _large_manifest(folder: Path, rng: random.Random) -> str:
    _write(folder / "run.json", b'{"schema": 1, "arrivals": "' + b"a" * (32 << 20) + b'"}')
    return "run.json of 32 MB"


def _not_a_file(folder: Path, rng: random.Random) -> str:
    """A FIFO, a folder, a link to a device, to itself or to nothing in the place of a file."""
    path = folder / rng.choice((*_NAMES, "summary.tmp", "report.html", "journal-7.bin", "samples-0.bin", "scrapes.bin"))
    _remove(path)
    kind = rng.choice(("fifo", "folder", "/dev/zero", "itself", "nothing"))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"itself": path.name, "nothing": "absent"}.get(kind, kind))
    return f"{path.name} is a {kind}"


def _bytes(folder: Path, rng: random.Random) -> str:
    """Bits turned, bytes cut off or put in, in a file of any kind."""
    path = _some_file(folder, rng)
    data = bytearray(path.read_bytes())
    kind = rng.choice(("bits", "cut", "insert", "zeros", "empty", "twice"))
    at = rng.randrange(len(data) + 1)
    if kind == "bits":
        for _ in range(rng.choice((1, 8, 200)) if data else 0):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "insert":
        data[at:at] = rng.randbytes(rng.choice((1, 12, 300)))
    elif kind == "zeros":
        data[at : at + 500] = bytes(len(data[at : at + 500]))
    else:
        data = bytearray() if kind == "empty" else data * 2
    _write(path, bytes(data))
    return f"{path.name}: {kind} at {at}"


def _table_value(folder: Path, rng: random.Random) -> str:
    """A column of a table with values that no run has."""
    path = folder / rng.choice(("requests.parquet", "requests.parquet", "client.parquet", "server.parquet"))
    table = _table(path)
    if table is None or not table.num_rows or not table.num_columns:
        return f"{path.name} was no table any more"
    name = rng.choice(table.column_names)
    rows = table[name].to_pylist()
    value = rng.choice((*_VALUES, 2**53, -(2**62), 2**62, [2**62], [-1, 0], [None], '{"a": 1}', "[" * 100_000, "done", "lost"))
    everywhere = rng.random() < 0.5
    rows = [value if everywhere or k == len(rows) // 2 else row for k, row in enumerate(rows)]
    try:
        column = pa.array(rows) if rng.random() < 0.5 else pa.array(rows, table.schema.field(name).type)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        return f"{path.name}: {name} cannot hold {str(value)[:40]!r}"
    _write_table(path, table.set_column(table.column_names.index(name), name, column))
    return f"{path.name}: {name} = {str(value)[:40]!r}{' everywhere' if everywhere else ''}"


def _table_shape(folder: Path, rng: random.Random) -> str:
    """Columns or rows gone, doubled or in another order."""
    path = folder / rng.choice(("requests.parquet", "client.parquet", "server.parquet"))
    table = _table(path)
    if table is None or not table.num_columns:
        return f"{path.name} was no table any more"
    name = rng.choice(table.column_names)
    kind = rng.choice(("column gone", "column twice", "no rows", "rows twice", "rows reversed", "one row"))
    if kind == "column gone":
        table = table.drop_columns([name])
    elif kind == "column twice":
        table = table.append_column(name, table[name])
    elif kind == "rows twice":
        table = pa.concat_tables([table, table])
    elif kind == "rows reversed":
        table = table.take(list(reversed(range(table.num_rows))))
    else:
        table = table.slice(0, 0 if kind == "no rows" else 1)
    _write_table(path, table)
    return f"{path.name}: {kind} ({name})"


def bomb(folder: Path, rng: random.Random) -> str:
    """Four million equal rows, tens of millions of tokens, or long texts in a small file: gigabytes in memory."""
    path = folder / "requests.parquet"
    table = _table(path)
    if table is None or table.num_rows == 0:
        return "requests.parquet was no table any more"
    kind = rng.choice(("rows", "tokens", "texts"))
    if kind == "rows":
        many = table.slice(0, 1).take(pa.array(np.zeros(1_000_000, dtype=np.int64)))
        with pq.ParquetWriter(path, many.schema, compression="zstd", write_statistics=False) as writer:
            for _ in range(4):
                writer.write_table(many)
    elif kind == "tokens":
        lists = pa.ListArray.from_arrays(
            np.linspace(0, 40_000_000, table.num_rows + 1).astype(np.int32), pa.array(np.zeros(40_000_000, dtype=np.int64))
        )
        _write_table(path, table.set_column(table.column_names.index("token_times_ns"), "token_times_ns", lists))
    else:
        many = pa.concat_tables([table] * 2000)
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(many.num_rows, dtype=np.int32)), ["x" * 1_000_000])
        _write_table(path, many.set_column(many.column_names.index("error"), "error", texts))
    return f"requests.parquet with very many {kind}, {path.stat().st_size:,} bytes"


def _frame(folder: Path, rng: random.Random) -> str:
    """A whole frame, with its checksum, whose content has other types or values."""
    path = folder / rng.choice(("journal-0.bin", "journal-1.bin", "schedule.bin"))
    if not path.is_file():
        return f"{path.name} is not there"
    data = path.read_bytes()
    magic = data[: data.find(b"\n") + 1]
    frames: list[bytes] = []
    with path.open("rb") as file:
        file.seek(len(magic))
        while (payload := read_frame(file)) is not None:
            frames.append(payload)
    if not frames:
        return f"{path.name} had no frames any more"
    number = rng.randrange(len(frames))
    frames[number] = _other_payload(frames[number], rng)
    if rng.random() < 0.2:
        frames.insert(number, frames[number])
    _write(path, magic + b"".join(map(framed, frames)))
    return f"{path.name}: frame {number} of other content"


def _other_payload(payload: bytes, rng: random.Random) -> bytes:
    content = msgspec.msgpack.decode(payload)
    places = list(_places(content))
    if not places or rng.random() < 0.1:
        return rng.choice((b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc0", rng.randbytes(50)))
    parent, key = rng.choice(places)
    values = [v for v in _VALUES if not (isinstance(v, int) and abs(v) >= 2**64) and v != "\ud800"]
    parent[key] = rng.choice((*values, 2**64 - 1, 7, -(2**63), [1, 2, 3], 2**31))
    return msgspec.msgpack.encode(content)


_MUTATIONS: tuple[Callable[[Path, random.Random], str], ...] = (
    *[_manifest_value] * 6, _deep_manifest, _large_manifest, *[_not_a_file] * 2, *[_bytes] * 4, *[_table_value] * 5,
    *[_table_shape] * 2, *[_frame] * 5,
)  # fmt: skip
_SHARE_OF_BOMBS = 0.01


def _places(value: Any) -> Any:
    """Every (container, key) within ``value``."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield value, key
        yield from _places(child)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (ValueError, RecursionError):
        return None


def _table(path: Path) -> pa.Table | None:
    try:
        return pq.ParquetFile(path).read() if path.is_file() else None
    except (pa.ArrowException, OSError, UnicodeError):
        return None


def _some_file(folder: Path, rng: random.Random) -> Path:
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    return rng.choice([path for path in files if path.name in _NAMES] or files)


def _write_table(path: Path, table: pa.Table) -> None:
    _remove(path)
    pq.write_table(table, path, compression="zstd")


def _write(path: Path, data: bytes) -> None:
    _remove(path)
    path.write_bytes(data)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.exists():
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
