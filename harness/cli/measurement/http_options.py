"""Options of the protocols that go over HTTP."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import click

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_OF_THE_CONNECTION = frozenset({"connection", "content-length", "transfer-encoding", "upgrade", "expect"})
_SECRET = re.compile(r"auth|cookie|key|token|secret|passw|credential|session", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Header:
    """One header of every request."""

    name: str
    value: str

    def __str__(self) -> str:
        """Fit to be written down: what may be a secret is not shown."""
        return f"{self.name}: {'(not written down)' if _SECRET.search(self.name) else self.value}"


def read_headers(ctx: click.Context, parameter: click.Parameter, lines: tuple[str, ...]) -> tuple[Header, ...]:
    """Callback of --header. Raises BadParameter."""
    headers = []
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None or not line.isascii():
            raise click.BadParameter(f"{line.partition(':')[0]!r} … is no header; give 'Name: value'", ctx, parameter)
        if match[1].lower() in _OF_THE_CONNECTION:
            raise click.BadParameter(f"{match[1]} is between bench and the server; it cannot be set", ctx, parameter)
        headers.append(Header(match[1], match[2].rstrip(" \t")))
    return tuple(headers)


def read_extra_body(ctx: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, Any]:
    """Callback of --extra_body. Raises BadParameter."""
    if text is None:
        return {}
    from harness.clients.openai_chat import OUR_FIELDS

    try:
        fields = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", ctx, parameter) from error
    if not isinstance(fields, dict):
        raise click.BadParameter('give a JSON object, as {"temperature": 0}', ctx, parameter)
    ours = sorted(OUR_FIELDS & fields.keys())
    if ours:
        raise click.BadParameter(f"{', '.join(ours)}: bench sets that itself", ctx, parameter)
    return fields


def read_endpoint(ctx: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Callback of --endpoint. Raises BadParameter."""
    if path is not None and not re.fullmatch(r"/[!-~]*", path):
        raise click.BadParameter(f"{path!r} is no path; give one that begins with /", ctx, parameter)
    return path
