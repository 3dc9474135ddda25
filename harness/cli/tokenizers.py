"""Tokenizers as the verbs that measure, recover and generate use them: the deployment's own folder, and token counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


def local_tokenizer_dir(parameter_sets: Iterable[Mapping[str, str]]) -> Path | None:
    """The first ``tokenizer_dir`` of a deployment's model parameters that is a folder on this machine.

    Each set is one model's, in the order of preference; a lazy iterable inspects no more models than necessary.
    """
    for parameters in parameter_sets:
        path = parameters.get("tokenizer_dir")
        if path and Path(path).is_dir():
            return Path(path)
    return None


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """A function that counts the tokens of a generated text."""
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
