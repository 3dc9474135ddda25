"""Parser of server-sent events (WHATWG HTML, section 9.2.6, "Interpreting an event stream")."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits, message_too_long

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ERROR = b"error"

OnEvent = Callable[[bytes], None]


class EventStream:
    """Parses a byte stream, in parts of any size, and passes on the data of each event as soon as it is complete.

    Events named ``error`` go to ``on_error``, all others to ``on_event``. Comments, ids, retry times and events without data
    are ignored. ``limits`` has the longest event and line.
    """

    __slots__ = ("_at_start", "_data", "_limits", "_line", "_name", "_on_error", "_on_event", "_pending_bytes", "_skip_newline")

    def __init__(self, on_event: OnEvent, on_error: OnEvent, limits: AnswerLimits = DEFAULT_ANSWER_LIMITS) -> None:
        self._on_event = on_event
        self._on_error = on_error
        self._limits = limits
        self._pending_bytes = 0  # of the event and the line that are incomplete
        self._line = bytearray()  # an incomplete line
        self._data: list[bytes] = []
        self._name = b""
        self._at_start = True
        self._skip_newline = False  # a CR ended the last part; an LF that begins the next belongs to it

    def feed(self, part: bytes) -> None:
        """Parse the next bytes of the stream. Raises AnswerTooLongError."""
        whole = len(part) - 2
        if (
            part.find(b"\n") == whole > 6  # fast path: nearly every part is one event of one line
            and part.startswith(b"data: ")
            and part.endswith(b"\n")
            and not (self._line or self._data or self._name or self._skip_newline)
            and b"\r" not in part
        ):
            self._at_start = False
            self._on_event(part[6:whole])
        elif part:
            self._feed_lines(part)

    @property
    def is_between_events(self) -> bool:
        """Whether the next byte begins an event."""
        return not (self._line or self._data or self._name or self._skip_newline)

    def skip_events(self) -> None:
        """Skip whole events, which were parsed elsewhere."""
        self._at_start = False

    def end(self) -> None:
        """The stream ended in order: an event without its final blank line is complete, too."""
        if self._line:
            self._take_line(bytes(self._line))
            self._line = bytearray()
        self._dispatch()

    def _feed_lines(self, part: bytes) -> None:
        if self._skip_newline and part.startswith(b"\n"):
            part = part[1:]
        self._skip_newline = part.endswith(b"\r")
        self._pending_bytes += len(part)
        if self._pending_bytes > self._limits.max_message_bytes:
            raise message_too_long(self._limits)
        first, *others = _LINE_END.split(part)
        self._line += first
        for line in others:
            self._take_line(bytes(self._line))
            self._line = bytearray(line)

    def _take_line(self, line: bytes) -> None:
        if self._at_start:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._at_start = False
        if not line:
            self._dispatch()
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif not field and not self._data:  # a comment between events
            self._pending_bytes = 0
        elif field == b"event":
            self._name = value.removeprefix(b" ")

    def _dispatch(self) -> None:
        data, name = b"\n".join(self._data), self._name
        self._data, self._name, self._pending_bytes = [], b"", 0
        if data:
            (self._on_error if name == _ERROR else self._on_event)(data)
