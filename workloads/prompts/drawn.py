"""What every source of prompts has: it draws requests, and reports what it did otherwise than requested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from workloads.elements.request import Request, Turn
from workloads.elements.token_ids import TokenIds
from workloads.prompts.shared_prefixes import GroupPrefix


@dataclass(frozen=True, slots=True)
class Drawn:
    """``requests`` in the order of sending. ``dropped_too_long`` are not among them, nor are ``dropped_behind``: turns that
    wait for one that is not sent.

    Requests of a file are made of its rows ``kept``, of the first ``rows`` rows, and those of a law of its draws ``kept``.
    ``without_length`` requests have the output length for rows without one; ``without_history`` are sent without the messages
    that the file has before their prompt.
    ``inexact`` have another length than the law drew, since no text of it was found, or are left out, since there was none.

    Per request, and empty where a source has none: the places ``turns`` in conversations, and the shared ``prefixes``.
    ``prompt_ids`` are the whole prompts' tokens, without the template of a chat's server; None where they are unknown.
    """

    requests: tuple[Request, ...]
    dropped_too_long: int = 0
    dropped_behind: int = 0
    kept: tuple[int, ...] = ()
    rows: int = 0
    without_length: int = 0
    without_history: int = 0
    inexact: int = 0
    turns: tuple[Turn, ...] = ()
    prefixes: tuple[GroupPrefix, ...] = ()
    prompt_ids: tuple[TokenIds, ...] | None = None

    @property
    def sessions(self) -> int:
        """The number of conversations of ``turns``."""
        return sum(turn.parent is None for turn in self.turns)


class PromptSource(Protocol):
    """A source of prompts, which draws the same requests each time."""

    def draw(self, most: int | None) -> Drawn:
        """At most ``most`` requests; None: all that there are. Raises WorkloadError where none is left."""
        ...
