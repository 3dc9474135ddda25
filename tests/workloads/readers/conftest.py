"""Reading of files that a test writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from workloads.readers.detect import Reading, read_workload_file

Read = Callable[..., Reading]
Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Reads a file of the given bytes."""
    folder = tmp_path_factory.mktemp("readers")

    def read_bytes(content: bytes, name: str = "data.json", format_name: str | None = None, strict: bool = False) -> Reading:
        path = folder / name
        path.write_bytes(content)
        return read_workload_file(path, format_name, strict)

    return read_bytes


@pytest.fixture(scope="session")
def rows(read: Read) -> Rows:
    """The rows of a file of JSON, strictly read, each with the columns that it has; ``lines`` makes JSON lines of them."""

    def rows_of(*documents: Any, lines: bool = False, name: str = "data.json") -> list[dict[str, Any]]:
        text = "\n".join(map(json.dumps, documents)) if lines else json.dumps(documents)
        return present(read(text.encode(), name, strict=True))

    return rows_of


def present(reading: Reading) -> list[dict[str, Any]]:
    """The rows of a reading without the columns that are null."""
    return [{name: value for name, value in row.items() if value is not None} for row in reading.workload.table.to_pylist()]


@pytest.fixture(scope="session")
def csv_rows(read: Read) -> Rows:
    """The rows of a CSV file, strictly read, each with the columns that it has."""

    def rows_of(*lines: str) -> list[dict[str, Any]]:
        return present(read("\n".join(lines).encode(), "trace.csv", strict=True))

    return rows_of
