"""HTTP/1.1 for the null server: the requests of a connection one after the other, each response when it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from harness.calibration.null_server.channel import DirectChannel, Inbox
from harness.calibration.null_server.http_messages import HttpAnswer, http_head
from harness.calibration.null_server.models import BadRequestError
from harness.calibration.null_server.pacing import Answer, DueResponses, Pace

_MAX_HEAD_BYTES = 64 * 1024
_MAX_BODY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request. ``received_ns`` is the arrival of its last byte."""

    method: str
    path: str
    body: bytes
    received_ns: int


class HttpChannel(DirectChannel):
    """One client's connection."""

    def __init__(self, due: DueResponses, inbox: Inbox, on_request: Callable[[HttpChannel, HttpRequest], None]) -> None:
        super().__init__(due, inbox)
        self._on_request = on_request
        self._unread = bytearray()
        self._received_ns = 0  # of the last bytes
        self._answer: Answer | None = None
        self._ending = b""
        self._keeps_open = True

    # ---- answering

    def answer(self, answer: HttpAnswer, pace: Pace, received_ns: int) -> None:
        """Send ``answer`` at ``pace``. The next request on this connection waits."""
        self._ending = answer.ending
        self._answer = Answer(self, answer.responses, pace, received_ns)
        self.due.add(self._answer)

    def reply(self, status: str, content_type: str, body: bytes) -> None:
        """Send a short answer at once."""
        self.write(http_head(status, content_type, len(body)) + body)
        if not self._keeps_open:
            self._transport.close()

    def ending(self, answer: Answer) -> bytes:
        self._answer = None
        asyncio.get_running_loop().call_soon(self._continue)
        return self._ending

    # ---- reading

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def read(self, data: bytes, received_ns: int) -> None:
        self._unread += data
        self._received_ns = received_ns
        self._read_requests()

    def _continue(self) -> None:
        if not self._keeps_open:
            self._transport.close()
        self._read_requests()

    def _read_requests(self) -> None:
        while self._answer is None and self._unread and self.is_open:
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
        """Take the next complete request off the received bytes. Raises BadRequestError where it is invalid or unsupported."""
        end = self._unread.find(b"\r\n\r\n")
        if end < 0:
            if len(self._unread) > _MAX_HEAD_BYTES:
                raise BadRequestError("the request's head is too long")
            return None
        lines = self._unread[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = fields.get("content-length", "0")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not length.isdigit():
            raise BadRequestError("this is not an HTTP/1.1 request")
        if "transfer-encoding" in fields or int(length) > _MAX_BODY_BYTES:
            raise BadRequestError("a request needs a Content-Length of at most 64 MiB; chunked requests are not supported")
        start, stop = end + 4, end + 4 + int(length)
        if len(self._unread) < stop:
            return None
        self._keeps_open = words[2] == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
        body = bytes(self._unread[start:stop])
        del self._unread[:stop]
        return HttpRequest(words[0], words[1].partition("?")[0], body, self._received_ns)
