"""Secrets in options: read from a file or the environment, hidden in whatever is recorded or shown."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import click

HIDDEN = "(not written down)"
_SECRET_NAME = re.compile(
    r"auth|cookie|key|token(?!s|_id)|secret|passw|pwd|credential|session|signature|sig$|hmac|jwt|bearer", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_USER = re.compile(r"(^|//)[^/]*@")
_QUERY_PAIR = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]*)")


def is_secret_name(name: str) -> bool:
    """Whether a header, a query parameter or a body field of this name may hold a secret."""
    return _SECRET_NAME.search(name) is not None


def revealed(option: str, name: str, value: str) -> str:
    """The value that ``@file`` or ``$VARIABLE`` names, or ``value`` itself, with a warning if ``name`` may hold a secret.

    Raises BadParameter for what cannot be read, and for HIDDEN, which a recorded run has in place of a secret.
    """
    if HIDDEN in value:
        raise click.BadParameter(f"{name}: the recorded run does not contain this value; give it again", param_hint=option)
    variable = _VARIABLE.fullmatch(value)
    if variable is not None:
        if variable[1] not in os.environ:
            raise click.BadParameter(f"{name}: the environment variable {variable[1]} is not set", param_hint=option)
        return os.environ[variable[1]].strip()
    if value.startswith("@"):
        try:
            return Path(value[1:]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"{name}: the file after @ cannot be read", param_hint=option) from error
    if value and is_secret_name(name):
        click.echo(
            f"Warning: {option}: other users can read the value of {name} in the list of processes; give @FILE or $VARIABLE",
            err=True,
        )
    return value


def reveal_query(option: str, path: str) -> str:
    """``path`` with the values of its query read as ``revealed`` does. Raises BadParameter."""
    return _QUERY_PAIR.sub(lambda pair: f"{pair[1]}={revealed(option, unquote_plus(pair[1]), pair[2])}", path)


def reveal_fields(option: str, value: Any, name: str = "") -> Any:
    """JSON with the texts under secret-like names read as ``revealed`` does, at any depth. Raises BadParameter."""
    if isinstance(value, dict):
        return {key: reveal_fields(option, item, key if is_secret_name(key) else name) for key, item in value.items()}
    if isinstance(value, list):
        return [reveal_fields(option, item, name) for item in value]
    return revealed(option, name, value) if isinstance(value, str) and (name or value == HIDDEN) else value


def hide_fields(value: Any) -> Any:
    """JSON with whatever has a secret-like name replaced, at any depth."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret_name(key) else hide_fields(item) for key, item in value.items()}
    return [hide_fields(item) for item in value] if isinstance(value, list) else value


def hide_in_url(url: str) -> str:
    """A URL or path, well-formed or not, without user and password, and without secret-like values of its query."""
    shown = _USER.sub(r"\1", url)
    return _QUERY_PAIR.sub(lambda pair: f"{pair[1]}={HIDDEN}" if is_secret_name(unquote_plus(pair[1])) else pair[0], shown)
