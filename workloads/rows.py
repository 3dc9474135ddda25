"""Rows of a dataset: the common result of the readers, one module per format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.errors import DatasetError


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt, the dataset's answer to it (its length determines the requested output length), and the row number."""

    prompt: str
    answer: str
    row: int


def check_text(text: str, path: Path, where: str) -> None:
    """Raise DatasetError for half a surrogate pair, which JSON can express but UTF-8 cannot encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatasetError(path, f"character {error.start} is half a surrogate pair", where) from error
