"""What every dataset reader yields."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.errors import DatasetError


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt, the answer that the dataset has for it (its length decides how many tokens are asked), and its row."""

    prompt: str
    answer: str
    row: int


def check_text(text: str, path: Path, where: str) -> None:
    """Raise DatasetError for half a surrogate pair, which JSON can express and no text can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DatasetError(path, f"character {error.start} is half a surrogate pair", where) from error
