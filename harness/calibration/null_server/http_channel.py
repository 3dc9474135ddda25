"""The server's half of HTTP/1.1 for the null server: requests one after the other on a connection, answers as they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from harness.calibration.null_server.channel import DirectChannel, Inbox
from harness.calibration.null_server.http_messages import HttpAnswer, http_head
from harness.calibration.null_server.pacing import Answer, DueResponses, Pace
from harness.calibration.null_server.request import BadRequestError

_MOST_HEAD_BYTES = 64 * 1024
_MOST_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, whole. ``received_ns`` is when its last byte was read."""

    method: str
    path: str
    body: bytes
    received_ns: int


class HttpChannel(DirectChannel):
    """One client's connection."""

    def __init__(self, due: DueResponses, inbox: Inbox, on_request: Callable[[HttpChannel, HttpRequest], None]) -> None:
        super().__init__(due, inbox)
        self._on_request = on_request
        self._left = bytearray()
        self._received_ns = 0  # of the last bytes
        self._answer: Answer | None = None
        self._ending = b""
        self._keeps_open = True

    # ---- answering

    def answer(self, answer: HttpAnswer, pace: Pace, received_ns: int) -> None:
        """Send ``answer``, each response as ``pace`` says. The next request on this connection waits."""
        self._ending = answer.ending
        self._answer = Answer(self, answer.response, answer.stamp, answer.opening, answer.count, pace, received_ns)
        self.due.add(self._answer)

    def reply(self, status: str, content_type: str, body: bytes) -> None:
        """Send a short answer at once."""
        self.write(http_head(status, content_type, len(body)) + body)
        if not self._keeps_open:
            self._transport.close()

    def ending(self, answer: Answer) -> bytes:
        self._answer = None
        asyncio.get_running_loop().call_soon(self._go_on)
        return self._ending

    # ---- reading

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def read(self, data: bytes, received_ns: int) -> None:
        self._left += data
        self._received_ns = received_ns
        self._read_requests()

    def _go_on(self) -> None:
        if not self._keeps_open:
            self._transport.close()
        self._read_requests()

    def _read_requests(self) -> None:
        while self._answer is None and self._left and self.is_open:
            try:
                request = self._next_request()
            except BadRequestError as error:
                self._keeps_open = False
                self.reply("400 Bad Request", "text/plain", str(error).encode())
                return
            if request is None:
                return
            self._on_request(self, request)

    def _next_request(self) -> HttpRequest | None:
        """Take the next whole request off what was read. Raises BadRequestError where it is no request that is read here."""
        end = self._left.find(b"\r\n\r\n")
        if end < 0:
            if len(self._left) > _MOST_HEAD_BYTES:
                raise BadRequestError("the request's head is too long")
            return None
        lines = self._left[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = fields.get("content-length", "0")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not length.isdigit():
            raise BadRequestError("this is no HTTP/1.1 request")
        if "transfer-encoding" in fields or int(length) > _MOST_BODY_BYTES:
            raise BadRequestError("give a Content-Length, of 64 MiB at most; chunked requests are not read here")
        start, stop = end + 4, end + 4 + int(length)
        if len(self._left) < stop:
            return None
        self._keeps_open = words[2] == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
        body = bytes(self._left[start:stop])
        del self._left[:stop]
        return HttpRequest(words[0], words[1].partition("?")[0], body, self._received_ns)
