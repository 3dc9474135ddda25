"""What a request asks of the null server, over whatever protocol it came."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_TOKENS = 1_000_000


class BadRequestError(Exception):
    """A request cannot be answered; the text says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants: ``tokens`` tokens, each in a response of its own (``streaming``) or all in one."""

    tokens: int
    streaming: bool
    id: str = ""


def check_tokens(tokens: int) -> None:
    """Raises BadRequestError where nothing or too much is asked for."""
    if not 1 <= tokens <= _MOST_TOKENS:
        raise BadRequestError(f"from 1 to {_MOST_TOKENS} tokens can be asked for, not {tokens}")
