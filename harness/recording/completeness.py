"""Completeness: answers truncated by the server although the stream closed cleanly.

A server that aborts an answer can end its stream as that of a complete one, with ``[DONE]``; only the finish_reason is missing
then (https://platform.openai.com/docs/api-reference/chat/streaming). Some servers never send one, so that the answers of
the whole run decide, and not one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

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
    """Judges the answers of a run that goes on: as soon as one of a target had a finish_reason, its later ones without it are
    INCOMPLETE.
    """

    def __init__(self) -> None:
        self._sending: set[int | None] = set()  # targets

    def judged(self, record: Record) -> Record:
        if record.finish_reason is not None:
            self._sending.add(record.target)
        return _incomplete(record) if record.target in self._sending and _is_without_reason(record) else record


def judge_completeness(records: Sequence[Record], sending: AbstractSet[int]) -> tuple[Record, ...]:
    """The records of a run, INCOMPLETE where the server cut the answer.

    ``sending`` are the targets that were seen to send one before the run. One answer with it shows that of any other.
    """
    found = sending | {record.target for record in records if record.finish_reason is not None}
    return tuple(_incomplete(record) if record.target in found and _is_without_reason(record) else record for record in records)
