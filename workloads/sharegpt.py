"""Reader of the ShareGPT shape: a JSON array of conversations; the first human turn and the answer to it are used.

Known variants are accepted: ``conversation`` for ``conversations``, and turns as ``role``/``content`` for ``from``/``value``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from workloads.errors import DatasetError
from workloads.request import PromptRow, check_text

_CONVERSATION_KEYS = ("conversations", "conversation")
_HUMAN = {"human", "user"}
_ASSISTANT = {"gpt", "assistant", "chatgpt", "bard", "bing"}


def recognises(first_row: Mapping[str, Any]) -> bool:
    """Whether the first row of a dataset has ShareGPT's fields."""
    return any(key in first_row for key in _CONVERSATION_KEYS)


def read_rows(rows: Sequence[Any], path: Path) -> Iterator[PromptRow]:
    """The first human turn of each conversation with the answer to it; conversations that have no such pair are skipped.

    Raises DatasetError at the first row that is not a conversation.
    """
    for number, row in enumerate(rows, start=1):
        turns = [_turn(turn, path, f"row {number}, turn {k}") for k, turn in enumerate(_turns(row, path, number), start=1)]
        for (speaker, text), (next_speaker, next_text) in pairwise(turns):
            if speaker in _HUMAN and next_speaker in _ASSISTANT:
                if text and next_text:
                    yield PromptRow(text, next_text, number)
                break


def _turns(row: Any, path: Path, number: int) -> list[Any]:
    if not isinstance(row, dict):
        raise DatasetError(path, f"expected an object, found {type(row).__name__}", f"row {number}")
    for key in _CONVERSATION_KEYS:
        if key in row:
            if not isinstance(row[key], list):
                raise DatasetError(path, f'"{key}" must be a list of turns, found {type(row[key]).__name__}', f"row {number}")
            return list(row[key])
    raise DatasetError(path, 'the field "conversations" is missing', f"row {number}")


def _turn(turn: Any, path: Path, where: str) -> tuple[str, str]:
    if isinstance(turn, dict):
        for speaker_key, text_key in (("from", "value"), ("role", "content")):
            if isinstance(turn.get(speaker_key), str) and isinstance(turn.get(text_key), str):
                check_text(turn[text_key], path, where)
                return turn[speaker_key].lower(), turn[text_key]
    raise DatasetError(path, 'a turn must be an object with the strings "from" and "value" (or "role" and "content")', where)
