"""What is known to be beyond a limit while a run goes on, and when that is more than the whole run allows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bench_cli.measurement.stop_rules import StopIf, is_beyond
from bench_records.record import Outcome, Record
from harness.run.end_rule import RunMoment
from reports.criteria import parse_stop_if

_MS = 1_000_000
_S = 1_000 * _MS


def _record(
    index: int, outcome: Outcome = Outcome.DONE, *, first_ms: int | None = 5, last_ms: int = 9, sent: bool = True
) -> Record:
    """One that was due at 0 and whose tokens, 3 of them, came from ``first_ms`` to ``last_ms``."""
    times_ns = () if first_ms is None else (first_ms * _MS, (first_ms + last_ms) // 2 * _MS, last_ms * _MS)
    return Record(
        index=index,
        outcome=outcome,
        scheduled_ns=0,
        requested_output_tokens=3,
        sent_ns=1 if sent else None,
        done_ns=last_ms * _MS,
        token_times_ns=times_ns,
        output_tokens=len(times_ns),
    )


@pytest.mark.parametrize(
    ("rule", "record", "beyond"),
    [
        ("p99_ttft>5ms", _record(0), False),
        ("p99_ttft>4ms", _record(0), True),
        ("p99_e2e>9ms", _record(0), False),
        ("p99_e2e>8ms", _record(0), True),
        ("p99_tpot>2ms", _record(0), False),
        ("p99_tpot>1.9ms", _record(0), True),
        ("p99_tpot>3.9ms", replace(_record(0), hidden_tokens=1), True),  # two tokens came
        ("p99_ttft>60s", _record(0, Outcome.SERVER_ERROR, first_ms=None), True),
        ("p99_ttft>8ms", _record(0, Outcome.TIMEOUT, first_ms=None), True),
        ("p99_ttft>9ms", _record(0, Outcome.WITHDRAWN, first_ms=None), False),
        ("p99_e2e>8ms", _record(0, Outcome.WITHDRAWN), True),
        ("p99_ttft>1ms", _record(0, Outcome.CANCELLED, first_ms=None), False),
        ("p99_ttft>1ms", _record(0, Outcome.LOST, first_ms=None, sent=False), False),
        ("failed_share>1%", _record(0, Outcome.TIMEOUT), True),
        ("failed_share>1%", _record(0), False),
    ],
)
def test_a_request_is_beyond_where_that_is_sure(rule: str, record: Record, beyond: bool) -> None:
    assert is_beyond(record, parse_stop_if(rule)) is beyond


def _moment(at_s: float, answered: int | None = None, *, behind: bool = False) -> RunMoment:
    return RunMoment(round(at_s * _S), answered, behind)


@pytest.mark.parametrize(
    ("rule", "allowed", "what"),
    [
        ("p99_ttft>4ms", 10, "are beyond the limit"),
        ("p70_ttft>4ms", 300, "are beyond the limit"),
        ("failed_share>5%", 50, "failed"),
    ],
)
def test_a_run_ends_when_the_rest_cannot_make_up_for_it(rule: str, allowed: int, what: str) -> None:
    stop = StopIf(parse_stop_if(rule), 1_000, ())
    for index in range(allowed):
        stop.add(_record(index, Outcome.SERVER_ERROR))
    stop.add(_record(1_000, Outcome.SERVER_ERROR))  # the first probe
    assert stop.reason(_moment(1.0)) is None
    stop.add(_record(allowed, Outcome.SERVER_ERROR))
    assert stop.reason(_moment(1.0)) == f"{allowed + 1:,} of 1,000 planned requests {what} already, and {allowed:,} may be"


def test_a_request_older_than_the_limit_without_a_token_is_beyond_it() -> None:
    """100 requests, one each 10 ms; with what a second's doubt about records costs."""
    due_ns = [k * 10 * _MS for k in range(100)]
    stop = StopIf(parse_stop_if("p70_ttft>500ms"), 100, due_ns)
    for index in range(20):
        stop.add(_record(index, Outcome.SERVER_ERROR, first_ms=None))
    assert stop.reason(_moment(1.89, answered=10)) is None  # 40 are old, 10 have a token, 20 failed and count by themselves
    assert stop.reason(_moment(1.9, answered=10)) is not None
    assert stop.reason(_moment(9.0, answered=None)) is None
    assert stop.reason(_moment(9.0, answered=89)) is None


def test_an_answer_that_has_not_ended_is_known_to_be_late_unless_records_are_behind() -> None:
    stop = StopIf(parse_stop_if("p70_e2e>500ms"), 100, [k * 10 * _MS for k in range(100)])
    for index in range(20):
        stop.add(_record(index))
    assert stop.reason(_moment(1.99)) is None
    assert stop.reason(_moment(2.0)) is not None
    assert stop.reason(_moment(2.0, behind=True)) is None
