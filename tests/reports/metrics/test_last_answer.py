"""A target that stopped answering: when, and what that leaves of the steady window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.metrics.last_answer import LastAnswer, last_answer
from reports.metrics.requests import Requests
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.findings.runs import CLOSED, dies

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
MakeReport = Callable[..., RunReport]


def test_a_steady_window_ends_when_the_server_goes(make_report: MakeReport, answered: Make, failed: Make) -> None:
    """It goes after 6.4 s of 30: most of the run is an empty system, which nothing is as steady as."""
    report = make_report(dies(answered, failed))
    finding = finding_of(report, "stopped_answering")
    assert finding is not None
    assert finding.evidence["after_s"] == pytest.approx(6.4, abs=0.02)
    assert finding.evidence["kind"] == "connect"
    assert finding.sentence.startswith("No token of an answer came after 6.4 s: all 2,36")
    assert "its rates end with the last success" in finding.advice
    whole, steady = report.metrics.windows.whole, report.metrics.windows.steady
    assert whole is not None
    assert whole.end_s == pytest.approx(6.4, abs=0.02)
    assert steady is not None
    assert steady.end_s <= finding.evidence["after_s"]
    assert steady.throughputs[REQUEST_THROUGHPUT].value == pytest.approx(100.0, rel=0.03)


def test_a_server_that_goes_at_once_has_no_steady_window(make_report: MakeReport, answered: Make, failed: Make) -> None:
    report = make_report(dies(answered, failed, at_ms=700.0))
    assert finding_of(report, "stopped_answering") is not None
    assert report.metrics.windows.steady is None


def test_a_server_that_comes_back_answers_to_the_end(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [*dies(answered, failed)[:1_000], answered(1_000, 10_000, 10_000, [(10_050, 1)])]
    assert last_answer(make_requests(records)) is None


@pytest.mark.parametrize(("count", "found"), [(4, False), (5, True)])
@pytest.mark.parametrize(("kind", "lasts_ms"), [(Outcome.TIMEOUT, 2_000), (Outcome.CONNECT, 1)])
def test_five_failures_after_the_last_answer_are_enough(
    make_requests: MakeRequests, answered: Make, failed: Make, count: int, found: bool, kind: Outcome, lasts_ms: int
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], done=10 * k + 5) for k in range(100)]
    records += [failed(100 + k, 1_000 + 10 * k, kind, 1_000 + 10 * k, 1_000 + 10 * k + lasts_ms) for k in range(count)]
    assert last_answer(make_requests(records)) == (LastAnswer(995e6, count, kind.value) if found else None)


def test_a_request_sent_at_the_time_of_the_last_answer_was_not_sent_after_it(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """It is one of the five that then hang, and so was in flight."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], done=10 * k + 5) for k in range(100)]
    records += [failed(100 + k, 995 + k, Outcome.TIMEOUT, 995 + k, 3_000) for k in range(5)]
    assert last_answer(make_requests(records)) == LastAnswer(995e6, 5, "timeout", in_flight=1)


def test_requests_that_were_cut_after_a_token_had_an_answer(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """Every other one was cut. Had they had none, five failures in a row would be chance: 3 %."""
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], done=10 * k + 5, **({} if k % 2 else {"outcome": Outcome.STREAM_CUT}))
        for k in range(100)
    ]
    records += [failed(100 + k, 1_000 + 10 * k, Outcome.CONNECT, 1_000 + 10 * k, 1_001 + 10 * k) for k in range(5)]
    assert last_answer(make_requests(records)) == LastAnswer(995e6, 5, "connect")


@pytest.mark.parametrize(
    ("kind", "sent_ms", "done_ms", "found"),
    [
        (Outcome.REFUSED, 20, 30, False),  # ended at the last answer: it failed before
        (Outcome.REFUSED, 20, 31, True),  # ended after it, and went with the target
        (Outcome.TIMEOUT, 30, 900, False),  # sent at the last answer, and may have hung by itself
    ],
)
def test_a_request_that_failed_at_the_time_of_the_last_answer_failed_before_it(
    make_requests: MakeRequests, answered: Make, failed: Make, kind: Outcome, sent_ms: int, done_ms: int, found: bool
) -> None:
    """Where one in three failed before, five failures in a row are chance: 0.4 %."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 20, 1)], done=10 * k + 20) for k in range(2)]
    records += [failed(2, sent_ms, kind, sent_ms, done_ms)]
    records += [failed(3 + k, 40 + k, Outcome.CONNECT, 40 + k, 41 + k) for k in range(5)]
    assert last_answer(make_requests(records)) == (LastAnswer(30e6, 5, "connect") if found else None)


def test_a_server_that_goes_before_any_answer_has_ended_is_found(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """vLLM killed after 1.8 s: nine answers were cut, three of them after their first token; all others found no server."""
    cut = [
        replace(answered(k, 200 * k, 200 * k, [(1_000 + k, 1)], done=1_800), outcome=Outcome.STREAM_CUT)
        if k < 3
        else failed(k, 200 * k, Outcome.STREAM_CUT, 200 * k, 1_800)
        for k in range(5)
    ]
    gone = [failed(5 + k, 2_000 + 200 * k, Outcome.CONNECT, 2_000 + 200 * k, 2_001 + 200 * k) for k in range(90)]
    assert last_answer(make_requests([*cut, *gone])) == LastAnswer(1_002e6, 90, "connect")


def test_requests_that_queued_when_a_server_went_do_not_make_its_failures_chance(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """llama-cpp-python answers one request after the other: killed after 2.5 s, it had answered one of six."""
    records = [answered(0, 0, 0, [(2_200, 1)], done=2_250)]
    records += [failed(k, 400 * k, Outcome.STREAM_CUT, 400 * k, 2_500) for k in range(1, 6)]
    records += [failed(6 + k, 3_000 + 400 * k, Outcome.CONNECT, 3_000 + 400 * k, 3_001 + 400 * k) for k in range(18)]
    assert last_answer(make_requests(records)) == LastAnswer(2_250e6, 18, "connect")


@pytest.mark.parametrize(("count", "found"), [(9, False), (10, True)])
def test_requests_that_hang_among_others_may_hang_in_a_row_by_chance(
    make_requests: MakeRequests, answered: Make, failed: Make, count: int, found: bool
) -> None:
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], done=10 * k + 5)
        if k % 2
        else failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 60_000)
        for k in range(100)
    ]
    records += [failed(100 + k, 1_000 + 10 * k, Outcome.TIMEOUT, 1_000 + 10 * k, 61_000 + 10 * k) for k in range(count)]
    assert (last_answer(make_requests(records)) is not None) is found


@pytest.mark.parametrize(("count", "found"), [(9, False), (10, True)])
def test_failures_in_a_row_may_be_chance_where_every_other_request_failed(
    make_requests: MakeRequests, answered: Make, failed: Make, count: int, found: bool
) -> None:
    """0.5 ** 9 is 0.2 %, and 0.5 ** 10 is 0.1 %."""
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], done=10 * k + 5)
        if k % 2
        else failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 1)
        for k in range(100)
    ]
    records += [failed(100 + k, 1_000 + 10 * k, Outcome.REFUSED, 1_000 + 10 * k, 1_001 + 10 * k) for k in range(count)]
    assert (last_answer(make_requests(records)) is not None) is found


def _users(
    answered: Make, users: int, hangs_ms: float = math.inf, hanging: Callable[[int], bool] = lambda number: False
) -> list[Record]:
    """Users of a closed loop of 600 requests, 1 s each with five tokens, until all hang from ``hangs_ms`` on. Requests whose
    numbers are ``hanging`` hang alone. Each hangs for 20 s, until the client's limit.
    """
    free, records = [(1_000.0 * user / users, user) for user in range(users)], []
    for number in range(600):
        due, user = min(free)
        if due > hangs_ms + 20_000.0:
            break
        tokens = [due + 200.0 * k for k in range(1, 6)]
        hangs = hanging(number) or tokens[-1] > hangs_ms
        seen = [] if hanging(number) else [at for at in tokens if at < hangs_ms]
        record = answered(number, due, due, [(at, 1) for at in seen], done=due + 20_000.0 if hangs else tokens[-1])
        records.append(replace(record, outcome=Outcome.TIMEOUT, error="no answer") if hangs else record)
        free[user] = (math.inf if due + 20_000.0 > hangs_ms and hangs else due + (20_000.0 if hangs else 1_000.0), user)
    return records


def test_a_server_that_hangs_while_all_users_wait_is_found(make_report: MakeReport, answered: Make) -> None:
    """It is stopped after 10 s: of 16 users none sends another request before the client's limit."""
    report = make_report(_users(answered, 16, hangs_ms=10_010.0), load=CLOSED)
    finding = finding_of(report, "stopped_answering")
    assert finding is not None
    assert finding.evidence["after_s"] == pytest.approx(10.0, abs=0.06)
    assert (finding.evidence["failed"], finding.evidence["kind"]) == (16, "timeout")
    assert finding.evidence["in_flight"] >= 15
    assert finding.sentence == (
        "No token of an answer came after 10.0 s: 16 requests that were in flight then or sent later failed, most of them as "
        "timeout."
    )


@pytest.mark.parametrize(("users", "found"), [(4, False), (5, True)])
def test_five_requests_in_flight_show_that_a_server_hangs(
    make_requests: MakeRequests, answered: Make, users: int, found: bool
) -> None:
    last = last_answer(make_requests(_users(answered, users, hangs_ms=10_010.0)))
    assert (None if last is None else last.failed) == (users if found else None)


def test_a_server_that_hangs_after_a_single_answer_is_found(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """Before a single end without a token there is no silence to compare with."""
    hung = [failed(k, k, Outcome.TIMEOUT, k, 3_000) for k in range(1, 6)]
    records = [answered(0, 0, 0, [], done=10), *hung]
    assert last_answer(make_requests(records)) == LastAnswer(10e6, 5, "timeout", in_flight=5)


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize(
    ("sent_ms", "took_ms", "silence_ms"),
    [
        ([*range(0, 100, 10), 1_085], 10, 2_985),  # three times the longest silence before, from 100 ms to 1,095 ms
        (range(0, 200, 10), 900, 900),  # as long as the median success takes
    ],
)
def test_a_target_hangs_after_a_silence_longer_than_any_before(
    make_requests: MakeRequests,
    answered: Make,
    failed: Make,
    sent_ms: Sequence[int],
    took_ms: int,
    silence_ms: int,
    found: bool,
) -> None:
    """Five requests sent just after the last success was sent."""
    records = [answered(k, at, at, [], done=at + took_ms) for k, at in enumerate(sent_ms)]
    last_sent, last_ms = sent_ms[-1], sent_ms[-1] + took_ms
    hung = [failed(50 + k, last_sent + k, Outcome.TIMEOUT, last_sent + k, last_ms + silence_ms + found) for k in range(1, 6)]
    expected = LastAnswer(last_ms * 1e6, 5, "timeout", in_flight=5) if found else None
    assert last_answer(make_requests([*records, *hung])) == expected


@pytest.mark.parametrize(("first_ms", "found"), [(191, True), (190, False)])
def test_requests_that_hang_count_from_the_longest_success_before_the_last_answer_on(
    make_requests: MakeRequests, answered: Make, failed: Make, first_ms: int, found: bool
) -> None:
    """The last of the successes is sent at 190 ms. What the client cancelled as planned since then shows nothing."""
    records = [answered(k, at, at, [], done=at + 900) for k, at in enumerate(range(0, 200, 10))]
    hung = [failed(50 + k, at, Outcome.TIMEOUT, at, 5_000) for k, at in enumerate(range(first_ms, first_ms + 5))]
    withdrawn = [failed(60 + k, at, Outcome.WITHDRAWN, at, at + 100) for k, at in enumerate((900, 1_200))]
    expected = LastAnswer(1_090e6, 5, "timeout", in_flight=5) if found else None
    assert last_answer(make_requests([*records, *hung, *withdrawn])) == expected


@pytest.mark.parametrize(("refused", "found"), [(25, True), (26, False)])
def test_five_in_flight_that_hang_may_be_chance_where_a_quarter_failed_before(
    make_requests: MakeRequests, answered: Make, failed: Make, refused: int, found: bool
) -> None:
    """0.25 ** 5 is 0.098 %, and 0.26 ** 5 is 0.12 %, of 100 requests before."""
    records = [
        failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 1)
        if k < refused
        else answered(k, 10 * k, 10 * k, [], done=10 * k + 10)
        for k in range(100)
    ]
    hung = [failed(100 + k, 990 + k, Outcome.TIMEOUT, 990 + k, 5_000) for k in range(1, 6)]
    expected = LastAnswer(1_000e6, 5, "timeout", in_flight=5) if found else None
    assert last_answer(make_requests([*records, *hung])) == expected


def test_where_no_request_succeeded_the_time_of_one_is_unknown_and_no_target_hangs(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    cut = answered(0, 0, 0, [(5, 1)], done=6, outcome=Outcome.STREAM_CUT)
    hung = [failed(k, 0, Outcome.TIMEOUT, 0, 3_000) for k in range(1, 6)]
    assert last_answer(make_requests([cut, *hung])) is None


@pytest.mark.parametrize("every", [3, 10, 30])
def test_requests_that_hang_alone_to_the_end_of_a_closed_loop_are_no_server_that_hangs(
    make_requests: MakeRequests, answered: Make, every: int
) -> None:
    records = _users(answered, 16, hanging=lambda number: number % every == 0)
    requests = make_requests(records)
    ended_ns = requests.token_times_ns.max()
    assert np.count_nonzero(requests.done_ns > ended_ns) >= 5  # hang then, as all of a server's would
    assert last_answer(requests) is None


def test_requests_that_a_limit_cuts_off_while_others_are_answered_are_no_server_that_hangs(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """100 requests at once, one answer each 250 ms, and a limit of 20 s for each."""
    records = [answered(k, 0, k / 1_000, [(250 * (k + 1), 1)], done=250 * (k + 1)) for k in range(80)]
    records += [failed(k, 0, Outcome.TIMEOUT, k / 1_000, 20_010) for k in range(80, 100)]
    assert last_answer(make_requests(records)) is None


def test_as_many_in_flight_as_hang_alone_at_any_time_are_chance(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Every other request hangs; 41 of the 82 of the last second do."""
    records = [
        failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 60_000)
        if k % 2
        else answered(k, 10 * k, 10 * k, [(10 * k + 200, 1)], done=10 * k + (200 if k else 1_000))
        for k in range(200)
    ]
    assert last_answer(make_requests(records)) is None


def test_requests_that_the_client_ends_later_show_no_server_that_hangs(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    records = _users(answered, 16, hangs_ms=10_010.0)
    assert last_answer(make_requests(records)) is not None
    lost = failed(len(records), 10_500, Outcome.LOST, 10_500, 40_000)
    assert last_answer(make_requests([*records, lost])) is None


def test_what_the_client_cancelled_is_no_server_that_went(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    answers = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], done=10 * k + 5) for k in range(100)]
    for kind in (Outcome.CANCELLED, Outcome.LOST, Outcome.WITHDRAWN):
        ends = [failed(100 + k, 1_000 + k, kind, 1_000 + k, 1_100) for k in range(50)]
        assert last_answer(make_requests([*answers, *ends])) is None
    assert last_answer(make_requests([failed(k, k, Outcome.CONNECT, k, k + 1) for k in range(50)])) is None
