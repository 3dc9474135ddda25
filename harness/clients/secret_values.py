"""Secrets by their value: replaced wherever a server repeats one, before anything is written or shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote

HIDDEN = "(not written down)"
SHORTEST = 8  # characters: a shorter value, such as a port or a word, occurs in answers by chance

Spellings = tuple[str, ...]
"""The texts to replace, the longest first, as ``spellings`` makes them."""


def spellings(secrets: Iterable[str]) -> Spellings:
    """What a server may repeat of ``secrets``: each one, and its words (a key without its scheme), also within a URL, within
    JSON, and within JSON that is itself a text in JSON (a body that an error's message repeats).
    """
    values = {part for secret in secrets for part in (secret, *re.split(r"[\s;,]+", secret)) if len(part) >= SHORTEST}
    within_json = {_within_json(value) for value in values}
    spelled = values | within_json | set(map(_within_json, within_json)) | {quote(value, safe="") for value in values}
    return tuple(sorted(spelled, key=lambda text: (-len(text), text)))


def _within_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def hide_in_text(text: str, hidden: Spellings) -> str:
    """``text`` with HIDDEN in place of each spelling."""
    for spelling in hidden:
        text = text.replace(spelling, HIDDEN)
    return text


def hide_in_bodies(bodies: Sequence[bytes], hidden: Spellings) -> list[bytes]:
    """The bodies of an answer with HIDDEN in place of each spelling; a secret that is spread over several bodies stays."""
    whole = b"\n".join(bodies)
    for spelling in (text.encode() for text in hidden):
        if spelling in whole:
            bodies = [body.replace(spelling, HIDDEN.encode()) for body in bodies]
    return list(bodies)
