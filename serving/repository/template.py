"""Substitution of ``${name}`` in a ``config.pbtxt`` template, as in upstream's ``tools/fill_template.py``.

Substitutions are written ``key:value,key:value``; a backslash escapes ``,`` or ``:`` in a value. Placeholders without a
substitution stay, except for those in ``DEFAULTS``, which are always filled.
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
    """``unused`` are keys that occur in the template, but not as ``${key}``; ``unfilled`` are the remaining placeholders."""

    text: str
    unused: tuple[str, ...]
    unfilled: tuple[str, ...]


def parse_substitutions(text: str) -> dict[str, str]:
    """Parse ``key:value,…``. Raises TemplateError for a pair without or with two colons, without key, or a duplicate."""
    values: dict[str, str] = {}
    for pair in _split(text, ",") if text else []:
        key, *rest = _split(pair, ":")
        key = key.strip()
        if not rest:
            raise TemplateError(f"{pair!r} has no colon: write key:value, and escape commas in a value with a backslash")
        if len(rest) > 1:
            raise TemplateError(f"{pair!r} has more than one colon: escape colons in the value with a backslash")
        if not key:
            raise TemplateError(f"{pair!r} has no key before its colon")
        if key in values:
            raise TemplateError(f"{key} is given twice")
        values[key] = _unescaped(rest[0])
    return values


def fill_template(text: str, values: Mapping[str, str]) -> FilledTemplate:
    """Replace ``${name}`` with ``values`` and DEFAULTS. Raises TemplateError for a key that is not in ``text``."""
    template = Template(text)
    names = template.get_identifiers()
    for key in values:
        if key not in text:
            placeholders = f"; its placeholders are {', '.join(names)}" if names else ", which has no placeholders"
            raise TemplateError(f"{key} is not in the template{placeholders}")
    return FilledTemplate(
        text=template.safe_substitute({**DEFAULTS, **values}),
        unused=tuple(key for key in values if key not in names),
        unfilled=tuple(name for name in names if name not in values and name not in DEFAULTS),
    )


def _split(text: str, separator: str) -> list[str]:
    return re.split(rf"(?<!\\){separator}", text)


def _unescaped(text: str) -> str:
    return re.sub(r"\\([,:])", r"\1", text)
