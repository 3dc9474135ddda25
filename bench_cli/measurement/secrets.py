"""Secrets in options: read from a file or the environment, hidden in whatever is recorded or shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import click
from click.core import ParameterSource

from bench_cli.suggestions import user_text
from bench_errors import BenchError
from harness.clients.secret_values import HIDDEN, Spellings, hide_in_text

_SECRET_NAME = re.compile(
    r"auth|cookie|key|token(?!s|_id|iz)|secret|passw|pwd|credential|session|signature|sig$|hmac|jwt|bearer", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_USER = re.compile(r"(?<=//)[^/?#]*@|^[^/?#]*@")
_TO_LAST_AT = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_QUERY_PAIR = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]*)")


class SecretText(str):
    """A text that may contain secrets: ``shown`` is the text to record, ``secrets`` are the values not to show."""

    shown: str
    secrets: tuple[str, ...]

    def __new__(cls, text: str, shown: str, secrets: tuple[str, ...]) -> SecretText:
        made = super().__new__(cls, text)
        made.shown, made.secrets = shown, secrets
        return made


@dataclass(frozen=True, slots=True)
class WrittenIn:
    """The option that has a value. Other users see a command line in the list of processes; --config is a file."""

    option: str
    in_process_list: bool = True

    @classmethod
    def of(cls, context: click.Context, parameter: click.Parameter) -> WrittenIn:
        """The option whose callback has these arguments."""
        name = parameter.name or ""
        return cls(f"--{name}", context.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP)


def is_secret_name(name: str) -> bool:
    """Whether a header, a query parameter or a body field of this name may hold a secret."""
    return _SECRET_NAME.search(name) is not None


def is_reference(written: str) -> bool:
    """Whether ``revealed`` reads the value elsewhere."""
    return _VARIABLE.fullmatch(written) is not None or (written.startswith("@") and not written.startswith("@@"))


def literal(value: str) -> str:
    """How an option spells ``value`` itself where that begins as a reference does: with its first character twice."""
    return value[0] + value if is_reference(value) or value.startswith(("@@", "$$")) else value


def revealed(place: WrittenIn, name: str, value: str) -> str:
    """The value that ``@file`` or ``$VARIABLE`` names, ``@x`` for ``@@x`` and ``$x`` for ``$$x``, or else ``value`` itself.

    A value that is no reference draws a warning if ``name`` may hold a secret. Raises BadParameter for what cannot be read, and
    for HIDDEN, which a recorded run has in place of a secret.
    """
    if HIDDEN in value:
        raise click.BadParameter(
            f"{name}: the recorded run does not contain this value; give it again", param_hint=place.option
        )
    variable = _VARIABLE.fullmatch(value)
    if variable is not None:
        if variable[1] not in os.environ:
            problem = f"{name}: the environment variable {variable[1]} is not set; $$ begins a value that is no variable"
            raise click.BadParameter(problem, param_hint=place.option)
        return os.environ[variable[1]].strip()
    if is_reference(value):
        try:
            return Path(value[1:]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            problem = f"{name}: the file after @ cannot be read; @@ begins a value that is no file"
            raise click.BadParameter(problem, param_hint=place.option) from error
    if value and is_secret_name(name) and place.in_process_list:
        click.echo(
            f"Warning: {place.option}: other users can read the value of {name} in the list of processes; "
            "give @FILE or $VARIABLE",
            err=True,
        )
    return value[1:] if value.startswith(("@@", "$$")) else value


def reveal_query(place: WrittenIn, address: str) -> SecretText:
    """A URL or path with the values of its query read as ``revealed`` does. Raises BadParameter."""
    secrets: list[str] = []

    def reveal(pair: re.Match[str]) -> str:
        name = unquote_plus(pair[1])
        value = revealed(place, name, pair[2])
        if is_secret_name(name) or is_reference(pair[2]):
            secrets.extend((value, unquote_plus(value)))
        return f"{pair[1]}={value}"

    text = _QUERY_PAIR.sub(reveal, address)
    return SecretText(text, hide_in_url(address), tuple(dict.fromkeys(filter(None, secrets))))


def reveal_fields(place: WrittenIn, value: Any, name: str = "") -> Any:
    """JSON with the texts under secret-like names read as ``revealed`` does, at any depth. Raises BadParameter."""
    if isinstance(value, dict):
        return {key: reveal_fields(place, item, key if is_secret_name(key) else name) for key, item in value.items()}
    if isinstance(value, list):
        return [reveal_fields(place, item, name) for item in value]
    return revealed(place, name, value) if isinstance(value, str) and (name or value == HIDDEN) else value


def hide_fields(value: Any) -> Any:
    """JSON with whatever has a secret-like name replaced, at any depth."""
    if isinstance(value, dict):
        return {key: HIDDEN if is_secret_name(key) else hide_fields(item) for key, item in value.items()}
    return [hide_fields(item) for item in value] if isinstance(value, list) else value


def without_secrets(value: Any, hidden: Spellings) -> Any:
    """JSON from a server: whatever has a secret-like name replaced, and each of the spellings in its texts."""
    if isinstance(value, dict):
        return {
            hide_in_text(key, hidden): HIDDEN if is_secret_name(key) else without_secrets(item, hidden)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item, hidden) for item in value]
    return hide_in_text(value, hidden) if isinstance(value, str) else value


def secret_fields(value: Any, is_secret: bool = False) -> Iterator[str]:
    """The texts that ``hide_fields`` replaces."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secret_fields(item, is_secret or is_secret_name(key))
    elif isinstance(value, list):
        for item in value:
            yield from secret_fields(item, is_secret)
    elif isinstance(value, str) and is_secret:
        yield value


def hide_in_url(url: str) -> str:
    """A URL or path without user and password, and without the values of its query that are secret-like or references."""

    def hide(pair: re.Match[str]) -> str:
        is_hidden = is_secret_name(unquote_plus(pair[1])) or is_reference(pair[2])
        return f"{pair[1]}={HIDDEN}" if is_hidden else pair[0]

    return _QUERY_PAIR.sub(hide, _USER.sub("", url))


def hide_in_refused_url(url: str) -> str:
    """As ``hide_in_url``, of what is no URL: a password may contain any character, and so all before the last @ is left out."""
    return hide_in_url(_TO_LAST_AT.sub(lambda match: match[1] or "", url))


@contextmanager
def hidden_in_errors(hidden: Spellings) -> Iterator[None]:
    """Replace the spellings in the text of a BenchError: a server's refusal may repeat what it was sent."""
    try:
        yield
    except BenchError as error:
        error.args = (hide_in_text(user_text(error), hidden),)
        raise
