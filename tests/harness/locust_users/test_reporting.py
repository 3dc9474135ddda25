"""Events of a request, and how Locust is made to count them."""

from __future__ import annotations

from typing import Any

import pytest

from bench_records.record import Outcome, Record

pytest.importorskip("gevent", reason="the extra [distributed] is not installed")
from harness.locust_users.reporting import bucket, leave_parts_out_of_total, report

_DONE = Record(
    index=0,
    outcome=Outcome.DONE,
    scheduled_ns=0,
    requested_output_tokens=3,
    sent_ns=0,
    token_times_ns=(20_000_000, 26_000_000, 30_000_000),
    token_counts=(1, 1, 1),
    output_tokens=3,
)
_FAILED = Record(index=0, outcome=Outcome.TIMEOUT, scheduled_ns=0, requested_output_tokens=3, sent_ns=0, error="no end in 5 s")


def _events(record: Record) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    report(record, "ensemble", 512, lambda **event: events.append(event))
    return events


def test_a_request_has_an_event_of_its_own_and_one_for_each_value() -> None:
    events = _events(_DONE)
    assert [(event["request_type"], event["response_time"]) for event in events] == [
        ("E2E", 30.0),
        ("TTFT", 20.0),
        ("tokens", 3),
        ("TPOT", 5.0),
        ("ITL", 6.0),
        ("ITL", 4.0),
    ]
    assert {event["name"] for event in events} == {"ensemble"}
    assert [event["response_length"] for event in events[:3]] == [512, 0, 3]
    assert all(event["exception"] is None for event in events)


def test_a_failure_is_one_event_with_its_kind_and_no_response_time() -> None:
    (event,) = _events(_FAILED)
    assert event["response_time"] is None
    assert str(event["exception"]) == "timeout: no end in 5 s"


class _Stats:
    """As ``locust.stats.RequestStats``: what was counted in the total, and by entry."""

    def __init__(self) -> None:
        self.total: list[float | None] = []
        self.entries: dict[str, list[float | None]] = {}

    def log_request(self, method: str, name: str, response_time: float | None, content_length: int) -> None:
        self.total.append(response_time)
        self.get(name, method).log(response_time, content_length)

    def get(self, name: str, method: str) -> Any:
        values = self.entries.setdefault(method, [])

        class Entry:
            def log(self, response_time: float | None, content_length: int) -> None:
                values.append(response_time)

        return Entry()


def test_the_total_has_requests_alone_and_each_line_its_own_values() -> None:
    stats = _Stats()
    leave_parts_out_of_total(stats)
    for record in (_DONE, _FAILED):
        for event in _events(record):
            stats.log_request(event["request_type"], event["name"], event["response_time"], event["response_length"])
    assert stats.total == [30.0, None]
    assert stats.entries == {"E2E": [30.0, None], "TTFT": [20.0], "tokens": [3], "TPOT": [5.0], "ITL": [6.0, 4.0]}


def test_values_are_counted_with_three_digits() -> None:
    assert [bucket(value) for value in (0, 0.7351, 7.354, 73.54, 735.4, 7354)] == [0, 0.735, 7.35, 73.5, 735, 7350]
