"""Records as Locust's request events, and how Locust counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent

from bench_records.record import Outcome, Record
from harness.locust_users.measures import Measure, e2e_ms, parts_of

_EVENTS_AT_ONCE = 200  # 0.4 ms: then other users have their turn to read
_LONGEST_MESSAGE = 200
_PARTS = frozenset(Measure) - {Measure.E2E}

Fire = Callable[..., Any]


class RequestFailedError(Exception):
    """A failed request, as Locust's table of failures shows it: its kind, and the beginning of the message."""


def report(record: Record, model: str, answer_bytes: int, fire: Fire) -> None:
    """Fire the events of one request; ``fire`` is that of ``environment.events.request``.

    A failure has no response time, so a quick error cannot improve a percentile. The length of E2E is the answer's bytes, that
    of tokens is their number.
    """
    failure = None
    if record.outcome is not Outcome.DONE:
        failure = RequestFailedError(f"{record.outcome}: {(record.error or '')[:_LONGEST_MESSAGE]}")
    common = {"name": model, "context": {}}
    latency_ms = e2e_ms(record)
    fire(request_type=Measure.E2E, response_time=latency_ms, response_length=answer_bytes, exception=failure, **common)
    for number, (measure, value) in enumerate(parts_of(record), 1):
        length = int(value) if measure is Measure.TOKENS else 0
        fire(request_type=measure, response_time=value, response_length=length, exception=None, **common)
        if number % _EVENTS_AT_ONCE == 0:
            gevent.sleep(0)


def leave_parts_out_of_total(stats: Any) -> None:
    """Have Locust's "Aggregated" line and charts count requests alone: a mixture with times of tokens has no meaning.

    ``stats`` is a ``locust.stats.RequestStats``, of which one method is replaced.
    """
    count_request = stats.log_request

    def log_request(method: str, name: str, response_time: float | None, content_length: int) -> None:
        if method in _PARTS:
            stats.get(name, method).log(response_time, content_length)
        else:
            count_request(method, name, response_time, content_length)

    stats.log_request = log_request


def bucket(response_time: float) -> float:
    """The value as which Locust counts a time or a number: of 3 significant digits, where Locust's own rule has whole ms
    below 100 ms and 2 digits above.
    """
    return float(f"{response_time:.3g}")
