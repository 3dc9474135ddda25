"""What every dataset reader yields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PromptRow:
    """A prompt, the answer that the dataset has for it (its length decides how many tokens are asked), and its row."""

    prompt: str
    answer: str
    row: int
