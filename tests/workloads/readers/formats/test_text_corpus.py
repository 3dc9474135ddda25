"""Plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workloads.elements.errors import DatasetError

Read = Callable[..., Any]


def test_each_paragraph_is_a_row(read: Read) -> None:
    text = "\ufeffOne\nline.\r\n\r\n\n  \nTwo,\nthree.\n\n"
    assert read(text.encode(), "corpus.txt").workload.table["prompt"].to_pylist() == ["One\nline.", "Two,\nthree."]


def test_a_file_of_another_name_is_read_as_text_where_this_is_asked_for(read: Read) -> None:
    assert len(read(b"a\n\nb", "corpus", format_name="text").workload) == 2
    with pytest.raises(DatasetError, match="unknown shape"):
        read(b"a\n\nb", "corpus")


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"a\x00b", "byte 1: is not text"), (b"a\xff", "byte 1: is not UTF-8"), (b"\n \n", "is empty|holds no")],
)
def test_what_is_not_text_is_named(read: Read, content: bytes, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        read(content, "corpus.txt", format_name="text")
