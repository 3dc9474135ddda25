"""Completeness: answers truncated by the server although the stream closed cleanly.

A server that aborts an answer can end its stream as that of a complete one, with ``[DONE]``; only the finish_reason is missing
then (https://platform.openai.com/docs/api-reference/chat/streaming). Some servers never send one, so that the answers of
the whole run decide, and not one alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from bench_records.record import Outcome, Record

_WITHOUT_REASON = "the answer ended in order but without a finish_reason, which this server sends: it cut the answer"


def _is_without_reason(record: Record) -> bool:
    """Whether an answer counts as done that has no finish_reason."""
    return record.outcome is Outcome.DONE and record.finish_reason is None


def _incomplete(record: Record) -> Record:
    """The record of an answer without a finish_reason from a server that sends them."""
    return replace(record, outcome=Outcome.INCOMPLETE, error=_WITHOUT_REASON)


class FinishReasonWatch:
    """Judges the answers of a run that goes on: as soon as one had a finish_reason, later ones without it are INCOMPLETE."""

    def __init__(self) -> None:
        self._is_sent = False

    def judged(self, record: Record) -> Record:
        self._is_sent = self._is_sent or record.finish_reason is not None
        return _incomplete(record) if self._is_sent and _is_without_reason(record) else record


def judge_completeness(records: Sequence[Record], expects_finish_reason: bool | None) -> tuple[Record, ...]:
    """The records of a run, INCOMPLETE where the server cut the answer.

    ``expects_finish_reason``: the server was seen to send one before the run. Else one answer with it shows that.
    """
    if not expects_finish_reason and all(record.finish_reason is None for record in records):
        return tuple(records)
    return tuple(_incomplete(record) if _is_without_reason(record) else record for record in records)
