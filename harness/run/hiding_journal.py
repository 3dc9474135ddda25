"""The journal of exchanges whose requests contain secrets, which a server may repeat."""

from __future__ import annotations

from msgspec.structs import replace

from harness.clients.secret_values import Spellings, hide_in_bodies, hide_in_text
from harness.journal.worker_journal import Exchange, JournalWriter


class HidingJournal:
    """Writes exchanges to ``journal`` without the secrets in ``hidden``: neither in an answer nor in the text of a failure."""

    def __init__(self, journal: JournalWriter, hidden: Spellings) -> None:
        self._journal = journal
        self._hidden = hidden

    def append(self, exchange: Exchange) -> None:
        """Raises OSError where it cannot be written."""
        hidden = self._hidden
        if hidden:
            error = None if exchange.error is None else hide_in_text(exchange.error, hidden)
            exchange = replace(exchange, bodies=hide_in_bodies(exchange.bodies, hidden), error=error)
        self._journal.append(exchange)
