"""A link without Locust: a test gives the events, and sees the orders."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from harness.distribution.link import Deliver, LinkEvent, LinkOrder
from harness.distribution.messages import ToWorker, decode_to_worker, unpack


class FakeLink:
    """Takes the place of ``LinkProcess``. An exception among the events is raised."""

    def __init__(self, events: Sequence[LinkEvent | Exception] = ()) -> None:
        self.events: queue.Queue[LinkEvent | Exception] = queue.Queue()
        for event in events:
            self.events.put(event)
        self.sent: list[LinkOrder] = []
        self.is_closed = False

    def __call__(self, *arguments: Any) -> FakeLink:
        return self

    def receive(self, timeout_s: float) -> LinkEvent | None:
        try:
            event = self.events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        return event

    def send(self, order: LinkOrder) -> None:
        self.sent.append(order)

    def close(self) -> None:
        self.is_closed = True

    def messages_to(self, peer: str) -> list[ToWorker]:
        return [
            decode_to_worker(unpack(message.payload)[1])
            for message in self.sent
            if isinstance(message, Deliver) and message.peer == peer
        ]
