"""Reader of request bodies of OpenAI's chat API, as JSON: ``messages``, of which the last one of the user is the prompt.

The messages before it are its history, and the assistant's message right after it is its answer. ``max_completion_tokens``, or
``max_tokens``, is the output length. ``timestamp`` and ``output_length``, which are no part of such a body, are the arrival in
ms and the output length in AIPerf's traces with messages. Their ``message_mode`` "delta" is refused: the messages of such a row
follow answers of its session.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.elements.request import Message
from workloads.readers.fields import Row, checked_prompt, first_tokens_of, list_of, object_of, optional_ms_of, text_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.text_rows import TextRow, text_workload, timed_rows
from workloads.table.workload import Workload

NAME = "openai"
SHAPE = "JSON with messages (OpenAI)"
_LENGTH_FIELDS = ("max_completion_tokens", "max_tokens", "output_length")


def recognises(first_row: Row) -> bool:
    """Whether a row has messages."""
    return "messages" in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    return text_workload(NAME, timed_rows(accepted(rows, _row, rejects), rejects), rejects)


def _row(row: Row) -> TextRow:
    if row.get("message_mode") == "delta":
        raise RowError('"message_mode" is "delta": messages that follow answers of a session are not read')
    messages = [_message(message, number) for number, message in enumerate(list_of(row, "messages"), start=1)]
    last = max((place for place, message in enumerate(messages) if message.role == "user"), default=None)
    if last is None:
        raise RowError('"messages" has none of the user')
    behind = messages[last + 1] if last + 1 < len(messages) else None
    answer = behind.content if behind is not None and behind.role == "assistant" and behind.content else None
    return TextRow(
        prompt=checked_prompt(messages[last].content),
        answer=answer,
        history=tuple(messages[:last]),
        output_tokens=first_tokens_of(row, _LENGTH_FIELDS),
        arrival_ns=optional_ms_of(row, "timestamp"),
    )


def _message(message: object, number: int) -> Message:
    fields = object_of(message)
    if not isinstance(fields.get("role"), str):
        raise RowError(f'message {number} must have the string "role"')
    return Message(text_of(fields, "role"), _content(fields, number))


def _content(message: Row, number: int) -> str:
    """The text of a message: a string, a list of parts, or null, as of a call of tools."""
    content = message.get("content")
    if content is None:
        return ""
    if not isinstance(content, list):
        return text_of(message, "content")
    parts = [object_of(part) for part in content]
    if any(part.get("type") != "text" for part in parts):
        raise RowError(f"message {number} has a part that is not text")
    return "".join(text_of(part, "text") for part in parts)
