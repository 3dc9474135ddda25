"""Inputs of ``bench generate``: prompts and token ids from arguments and files."""

from __future__ import annotations

import json
from pathlib import Path

import click


def prompts_of(text: str) -> tuple[str, ...]:
    """A JSON list of texts, else the text itself. Raises click.UsageError for an empty list, or one with anything else."""
    if not text.lstrip().startswith("["):
        return (text,)
    try:
        listed = json.loads(text)
    except ValueError:
        return (text,)  # a text that starts with a bracket
    if not listed or not all(isinstance(prompt, str) for prompt in listed):
        raise click.UsageError("--prompt: a JSON list must hold texts, and at least one")
    return tuple(listed)


def ids_of_csv(option: str, path: Path) -> tuple[int, ...]:
    """The token ids of a CSV file's first line. Raises click.UsageError."""
    try:
        line = path.read_text(encoding="utf-8").partition("\n")[0]
        ids = tuple(int(cell) for cell in line.split(",") if cell.strip())
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option}: {path}: {error}") from error
    if not ids or not all(-(2**31) <= token < 2**31 for token in ids):
        raise click.UsageError(f"{option}: the first line of {path} must hold token ids, parted by commas")
    return ids


def _lookahead(text: str) -> tuple[int, ...]:
    try:
        sizes = json.loads(text)
    except ValueError:
        sizes = None
    if not isinstance(sizes, list) or len(sizes) != 3 or not all(type(size) is int and 0 <= size < 2**31 for size in sizes):
        raise click.UsageError(f"--lookahead_config {text}: give three numbers, [window, ngram, verification set]")
    return tuple(sizes)
