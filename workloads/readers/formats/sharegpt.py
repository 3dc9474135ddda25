"""Reader of the ShareGPT shape: conversations, of which every human turn with text is a row.

Known variants are accepted: ``conversation`` for ``conversations``, and turns as ``role``/``content`` for ``from``/``value``.
Messages before the first human turn are left out, except system prompts, which are its ``history``. For a later turn, the
messages between its prompt and the answer to the turn before are its history, too: a second answer, or a message without one.
Conversations with images or videos are read without these, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.elements.request import Message
from workloads.readers.fields import Row, list_of, object_of, text_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.text_rows import TextRow, text_workload
from workloads.table.workload import Workload

NAME = "sharegpt"
SHAPE = "JSON with conversations (ShareGPT)"
_CONVERSATION_FIELDS = ("conversations", "conversation")
_MEDIA_FIELDS = ("image", "images", "video", "videos")
_TURN_FIELDS = (("from", "value"), ("role", "content"))
_ROLES = {"human": "user", "user": "user", "system": "system"} | dict.fromkeys(
    ("gpt", "assistant", "chatgpt", "bard", "bing"), "assistant"
)


def recognises(first_row: Row) -> bool:
    """Whether a row has ShareGPT's fields."""
    return any(field in first_row for field in _CONVERSATION_FIELDS)


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the conversations; those without a human turn are left out. Raises DatasetError."""
    turns: list[TextRow] = []
    sessions: set[str] = set()
    for where, (name, messages, has_media) in accepted(rows, _conversation, rejects):
        session = name if name and name not in sessions else f"{name} ({where})" if name else where
        sessions.add(session)
        added = session_turns(messages, session, len(turns))
        if not added:
            rejects.left_out(where, "the conversation has no human turn with text")
        rejects.with_media += has_media and bool(added)
        turns += added
    return text_workload(NAME, turns, rejects)


def session_turns(messages: list[Message], session: str, first_row: int) -> list[TextRow]:
    """The rows of one conversation, of which the first becomes row ``first_row`` of the workload.

    A human message with no answer right after it, unless it is the last one, is history of the next.
    """
    turns: list[TextRow] = []
    history: list[Message] = []
    has_begun = False
    position = 0
    while position < len(messages):
        message = messages[position]
        following = messages[position + 1] if position + 1 < len(messages) else None
        position += 1
        has_begun = has_begun or message.role == "user"
        is_answered = following is not None and following.role == "assistant"
        if message.role == "user" and (is_answered or following is None):
            parent = first_row + len(turns) - 1 if turns else None
            answer = following.content if following is not None else None
            turns.append(TextRow(message.content, answer, tuple(history), session, parent))
            history = []
            position += is_answered
        elif has_begun or message.role == "system":
            history.append(message)
    return turns


def _conversation(row: Row) -> tuple[str, list[Message], bool]:
    """Its name, its messages with text, and whether it has images or videos, which no request can carry."""
    field = next((field for field in _CONVERSATION_FIELDS if field in row), _CONVERSATION_FIELDS[0])
    name = row.get("id")
    messages = [_message(turn, number) for number, turn in enumerate(list_of(row, field), start=1)]
    with_text = [message for message in messages if message.content.strip()]
    return text_of(row, "id") if isinstance(name, str) else "", with_text, any(row.get(name) for name in _MEDIA_FIELDS)


def _message(turn: object, number: int) -> Message:
    fields = object_of(turn) if isinstance(turn, dict) else {}
    for speaker, text in _TURN_FIELDS:
        if isinstance(fields.get(speaker), str) and isinstance(fields.get(text), str):
            role = text_of(fields, speaker).lower()
            return Message(_ROLES.get(role, role), text_of(fields, text))
    raise RowError(f'turn {number} must be an object with the strings "from" and "value" (or "role" and "content")')
