"""Reader of plain text: each paragraph is a row, in the file's order, which are cut or joined to exact lengths where needed."""

from __future__ import annotations

import re

from workloads.elements.errors import DatasetError
from workloads.readers.rejects import RejectCounter
from workloads.readers.source import Source
from workloads.readers.text_rows import TextRow, text_workload
from workloads.table.workload import Workload

NAME = "text"
SHAPE = "plain text, in a file named *.txt"
SUFFIXES = (".txt", ".text")
_BLANK_LINES = re.compile(r"\n[^\S\n]*\n\s*")


def read(source: Source, rejects: RejectCounter) -> Workload:
    """The workload of the paragraphs. Raises DatasetError."""
    content = source.read()
    if b"\x00" in content:
        raise DatasetError(source.path, "is not text: it holds bytes of zero", f"byte {content.index(0)}")
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DatasetError(source.path, f"is not UTF-8: {error.reason}", f"byte {error.start}") from error
    paragraphs = _BLANK_LINES.split(text.replace("\r\n", "\n").strip())
    return text_workload(NAME, [TextRow(paragraph) for paragraph in paragraphs if paragraph], rejects)
