"""Fills the ``${name}`` of a ``config.pbtxt`` template, as upstream's ``tools/fill_template.py`` does.

Substitutions are written ``key:value,key:value``; a backslash before ``,`` or ``:`` makes it part of the value. A name that no
substitution gives stays as it is, but for those in ``DEFAULTS``, which every run fills.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from serving.errors import TemplateError

DEFAULTS = {"max_queue_size": "0", "max_queue_delay_microseconds": "0"}


@dataclass(frozen=True, slots=True)
class FilledTemplate:
    """``unused`` are keys that stand in the template, but not as ``${key}``; ``unfilled`` are the names left open."""

    text: str
    unused: tuple[str, ...]
    unfilled: tuple[str, ...]


def parse_substitutions(text: str) -> dict[str, str]:
    """Read ``key:value,…``. Raises TemplateError for a pair without colon, with a second one, without key, or given twice."""
    values: dict[str, str] = {}
    for pair in _split(text, ",") if text else []:
        key, *rest = _split(pair, ":")
        key = key.strip()
        if not rest:
            raise TemplateError(
                f"{pair!r} has no colon: write key:value, and put a backslash before a comma that belongs to a value"
            )
        if len(rest) > 1:
            raise TemplateError(f"{pair!r} has more than one colon: put a backslash before each that belongs to the value")
        if not key:
            raise TemplateError(f"{pair!r} has no key before its colon")
        if key in values:
            raise TemplateError(f"{key} is given twice")
        values[key] = _unescaped(rest[0])
    return values


def fill_template(text: str, values: Mapping[str, str]) -> FilledTemplate:
    """Put ``values`` (and DEFAULTS) in place of their ``${name}``. Raises TemplateError for a key that is not in ``text``."""
    template = Template(text)
    names = template.get_identifiers()
    for key in values:
        if key not in text:
            known = f"; it asks for {', '.join(names)}" if names else ", which has nothing to fill"
            raise TemplateError(f"{key} is not in the template{known}")
    return FilledTemplate(
        text=template.safe_substitute({**DEFAULTS, **values}),
        unused=tuple(key for key in values if key not in names),
        unfilled=tuple(name for name in names if name not in values and name not in DEFAULTS),
    )


def _split(text: str, separator: str) -> list[str]:
    return re.split(rf"(?<!\\){separator}", text)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([,:])", r"\1", text)
