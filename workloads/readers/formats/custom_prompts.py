"""Reader of rows of JSON with ``prompt``: vLLM's custom dataset, and prompts with times as AIPerf's traces have them.

``output_tokens`` (or ``output_length``, ``max_tokens``, or ``output_tokens_count`` of GuideLLM) is the output length, where the
file sets one. ``timestamp`` is the arrival in ms, ``session_id`` the conversation, in which a row waits for the one before it,
and ``delay`` its think time in ms. AIPerf calls the prompt ``text_input``. ``prefix``, ``system_prompt`` or ``system``, of
GuideLLM, is a system prompt before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from workloads.elements.request import Message
from workloads.readers.fields import Row, first_tokens_of, optional_ms_of, prompt_of, shown, text_of, whole_number
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.text_rows import TextRow, text_workload, timed_rows
from workloads.table.workload import Workload

NAME = "custom"
SHAPE = "JSON with prompt and, where known, output_tokens and timestamp (vLLM custom)"
_LENGTH_FIELDS = ("output_tokens", "output_length", "max_tokens", "output_tokens_count")
_SYSTEM_FIELDS = ("prefix", "system_prompt", "system")


def recognises(first_row: Row) -> bool:
    """Whether a row has a prompt."""
    return "prompt" in first_row or "text_input" in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    return text_workload(NAME, list(_without_repeats(timed_rows(accepted(rows, _row, rejects), rejects))), rejects)


def _row(row: Row) -> TextRow:
    return TextRow(
        prompt_of(row, "text_input" if "text_input" in row else "prompt"),
        history=_history(row),
        session=_session(row),
        output_tokens=first_tokens_of(row, _LENGTH_FIELDS),
        arrival_ns=optional_ms_of(row, "timestamp"),
        think_time_ns=optional_ms_of(row, "delay"),
    )


def _history(row: Row) -> tuple[Message, ...]:
    """The system prompt of the first field that has one."""
    field = next((field for field in _SYSTEM_FIELDS if row.get(field)), None)
    return () if field is None else (Message("system", text_of(row, field)),)


def _without_repeats(rows: Iterable[TextRow]) -> Iterator[TextRow]:
    """The rows without the system prompt that an earlier one of their session has: it is sent with that one's turn."""
    said: dict[str, tuple[Message, ...]] = {}
    for row in rows:
        if row.session is None or not row.history:
            yield row
        else:
            repeats = said.get(row.session) == row.history
            said[row.session] = row.history
            yield replace(row, history=()) if repeats else row


def _session(row: Row) -> str | None:
    value = whole_number(row.get("session_id"))
    if value is None or isinstance(value, str):
        return None if value is None else text_of(row, "session_id")
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowError(f'"session_id" must be a string or a whole number, found {shown(value)}')
    return shown(value)
