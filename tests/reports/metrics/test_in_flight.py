"""The number in the system over time, and when its growth is no chance; by hand, from even arrivals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from bench_records.record import Outcome, Record
from reports.metrics.in_flight import (
    Queue,
    QueueGrowth,
    drain_start_ns,
    ends_at_even_server,
    filling_ns,
    first_user_end_ns,
    mean_in_system,
    number_over_time,
    queue_growth,
    queue_of,
)
from reports.metrics.requests import Requests

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

_LAST_MS = 15_000  # of the sending: its last 12 s are in twelve parts of a second each


@pytest.fixture
def in_order(make_requests: MakeRequests, answered: Make) -> Callable[..., Requests]:
    """Requests that are answered in the order of their arrival, at ``ends_ms``."""

    def make(arrivals_ms: Sequence[float], ends_ms: Sequence[float]) -> Requests:
        pairs = enumerate(zip(arrivals_ms, ends_ms, strict=True))
        return make_requests([answered(k, at, at, [(end, 1)], done=end) for k, (at, end) in pairs])

    return make


def _arrivals_ms(at_once: int = 1) -> list[float]:
    """``at_once`` requests at the start, and one each 10 ms until 15 s."""
    return [0.0] * at_once + [10.0 * k for k in range(1, _LAST_MS // 10 + 1)]


def _ends_ms(number_at: Sequence[tuple[float, float]]) -> list[float]:
    """The ends of ``_arrivals_ms`` with which the number in the system is that at the given times (ms), even between them."""
    times = np.array([*(at for at, _ in number_at), 10 * _LAST_MS])
    numbers = np.array([*(number for _, number in number_at), 0.0])
    arrived = numbers[0] + np.minimum(times, _LAST_MS) / 10.0
    ends: NDArray[np.float64] = np.interp(np.arange(int(numbers[0]) + _LAST_MS // 10) + 1.0, arrived - numbers, times)
    return ends.tolist()


# ---- overload


@pytest.mark.parametrize("start_ms", [0, 20_000])
@pytest.mark.parametrize("rate_per_s", [None, 80.0])
def test_a_server_at_half_the_rate_of_the_arrivals_falls_behind_by_half(
    make_requests: MakeRequests, answered: Make, failed: Make, start_ms: int, rate_per_s: float | None
) -> None:
    """One request each 10 ms, and 20 ms for each, one after the other: at a time t there are t / 20 ms + 1 in the system.

    The first part's middle is at 3.5 s and the last one's at 14.5 s. What was not sent does not count, nor what
    has no end.
    """
    records = [
        answered(k, start_ms + 10 * k, start_ms + 10 * k, [(start_ms + 20 * (k + 1), 1)], done=start_ms + 20 * (k + 1))
        for k in range(1_501)
    ]
    unsent = [failed(1_501 + k, start_ms + 4_005 + 10 * k, Outcome.NOT_SENT) for k in range(200)]
    lost = answered(1_701, start_ms + 6_000, start_ms + 6_000, [], outcome=Outcome.LOST, done_ns=None)
    growth = queue_growth(make_requests([*records, *unsent, lost]), rate_per_s)
    assert growth is not None
    assert growth.arrivals == 1_100
    assert (growth.in_system_before, growth.in_system_after) == (pytest.approx(176), pytest.approx(726))
    assert growth.offered_per_s == pytest.approx(rate_per_s or 100.0, rel=1e-12)
    assert growth.completed_per_s == pytest.approx(50.0, rel=1e-12)
    assert growth.share_left_behind == pytest.approx(0.5)


def test_growth_counts_from_the_least_crowded_part(in_order: Callable[..., Requests]) -> None:
    """100 in the system at the start, 40 after 9 s, 160 after 15 s: the lowest part is that from 8 to 9 s."""
    growth = queue_growth(in_order(_arrivals_ms(100), _ends_ms([(0, 100), (9_000, 40), (15_000, 160)])))
    assert growth is not None
    assert growth.arrivals == 600  # from 8.5 to 14.5 s
    assert growth.in_system_before == pytest.approx(40 + 60 * 0.5 / 9, abs=0.6)
    assert growth.in_system_after == pytest.approx(160 - 120 * 0.5 / 6, abs=0.6)
    little = in_order(_arrivals_ms(100), _ends_ms([(0, 100), (9_000, 40), (15_000, 62)]))
    assert queue_growth(little) is not None  # 11 more than the 43 from 8 to 9 s, and less than from 6 to 7 s


@pytest.mark.parametrize(("growth", "found"), [(3.4, False), (4.6, True)])
def test_a_number_in_the_system_may_grow_by_about_its_root(
    in_order: Callable[..., Requests], growth: float, found: bool
) -> None:
    """16 in the system may be 20 by chance. The middle of the last four seconds is 9.5 s after that of the first part."""
    ends_ms = _ends_ms([(0, 16), (3_500, 16), (15_000, 16 + growth * 11.5 / 9.5)])
    assert (queue_growth(in_order(_arrivals_ms(16), ends_ms)) is not None) == found


@pytest.mark.parametrize(("load", "low", "high"), [(0.5, 0.0, 0.1), (1.0, -0.5, 2.0), (1.2, 5.0, 20.0)])
def test_course_of_a_queue_is_near_0_below_capacity_and_large_above(
    in_order: Callable[..., Requests], load: float, low: float, high: float
) -> None:
    arrivals_ms = 10.0 * np.cumsum(np.random.default_rng(5).exponential(1.0, 6_000))
    queue = queue_of(in_order(arrivals_ms, ends_at_even_server(arrivals_ms, 10.0 * load)))

    assert queue is not None
    course = queue.course
    assert low <= course.growth <= high
    assert course.growth <= course.spread


def test_the_deviation_of_a_number_that_moves_slowly_is_that_over_long_spans() -> None:
    """A request arrives each 10 ms. The target answers 9 in that of 10 for 3.2 s, then 11, and so on, so that over 3.2 s the
    number changes by up to 32. The variance of the sums of 32 ones of such a row is 32² / 3, of 320 arrivals less an eighth.
    """
    number = 3_200
    arrivals_ns = 1e7 * np.arange(1, number + 1)
    ended = np.cumsum(np.where(np.arange(number // 10) // 32 % 2 == 0, 9.0, 11.0))
    done_ns = np.interp(np.arange(1, number + 1), np.concatenate([[0.0], ended]), 1e8 * np.arange(number // 10 + 1))
    edges = np.linspace(0.2 * arrivals_ns[-1], arrivals_ns[-1], 13)
    queue = Queue(arrivals_ns, done_ns, edges, mean_in_system(arrivals_ns, done_ns, edges))
    an_arrival = 32**2 / 3 / (320 * 7 / 8)
    assert queue.course.deviation == pytest.approx(np.sqrt(an_arrival * number), rel=0.1)


def test_course_of_a_short_sending_is_unknown(in_order: Callable[..., Requests]) -> None:
    assert queue_of(in_order([0.0] * 200, [10.0 * (k + 1) for k in range(200)])) is None


@pytest.mark.parametrize("start_ms", [0, 1_000_000])
@pytest.mark.parametrize(("took_ms", "is_known"), [(2_000, True), (2_001, False)])
def test_course_of_a_queue_is_known_where_it_fills_in_two_thirds_of_the_sending(
    in_order: Callable[..., Requests], start_ms: int, took_ms: int, is_known: bool
) -> None:
    """It fills in 1.5 times what an answer takes, 3 s of the 4.5 s of the sending."""
    arrivals_ms = [start_ms + 100.0 * k for k in range(46)]
    queue = queue_of(in_order(arrivals_ms, [at + took_ms for at in arrivals_ms]))
    assert (queue is not None) is is_known
    assert queue is None or (queue.edges[0], queue.edges[-1]) == ((start_ms + 3_000) * 1e6, (start_ms + 4_500) * 1e6)


def test_a_queue_that_was_drained_again_before_the_end_does_not_grow(in_order: Callable[..., Requests]) -> None:
    """From 20 to 120 until 14 s, and then to 20 within 0.7 s: in the last second there are 55, which is 0.44 of the growth."""
    drained, left = (
        queue_growth(in_order(_arrivals_ms(20), _ends_ms([(0, 20), (3_000, 20), (14_000, 120), *end])))
        for end in ([(14_700, 20), (15_000, 20)], [(15_000, 120)])
    )
    assert drained is None
    assert left is not None


def test_a_crowd_of_arrivals_is_no_growth(in_order: Callable[..., Requests]) -> None:
    """100 requests/s, and 125 in the last 4 s, at a server that holds 114: any server that is not faster would have a queue."""
    arrivals_ms = [10.0 * k for k in range(1_100)] + [11_000 + 8.0 * k for k in range(501)]
    ends_ms = (ends_at_even_server(np.array(arrivals_ms), 0.95 * 12_000 / 1_300)).tolist()
    assert queue_growth(in_order(arrivals_ms, ends_ms)) is None
    assert queue_growth(in_order(arrivals_ms, ends_ms), 150.0) is not None  # 150 were offered, it should have held 158


def test_few_arrivals_and_a_burst_show_no_growth(in_order: Callable[..., Requests]) -> None:
    slow = [(10.0 * k, 100.0 * (k + 1)) for k in range(20)]
    assert queue_growth(in_order(*zip(*slow, strict=True))) is not None
    assert queue_growth(in_order(*zip(*slow[:19], strict=True))) is None
    assert queue_growth(in_order([0.0] * 200, [10.0 * (k + 1) for k in range(200)])) is None


# ---- what the growth is compared with


def _of_spans(came: Sequence[int], went: Sequence[int], in_system: Sequence[float], before: int = 0) -> Queue:
    """A sending of spans of 1 s, after ``before`` arrivals at its beginning, with what came and went in each."""
    arrivals_ns, done_ns = (
        np.concatenate([k * 1e9 + 1e8 + np.arange(count) for k, count in enumerate(counts)]) for counts in (came, went)
    )
    edges = np.linspace(0.0, 1e9 * len(came), 13)
    return Queue(np.concatenate([np.full(before, -1e9), arrivals_ns]), done_ns, edges, np.array(in_system))


_NUMBERS = [9.0, 25.0, 16.0, 30.0, 9.5, 40.0, 12.0, 20.0, 30.0, 40.0, 50.0, 60.0]  # the mean of the last four is 45


@pytest.mark.parametrize(
    ("came", "went", "of_service", "of_arrivals"),
    [
        ([10] * 16, [8, 8, 12, 12] * 4, 4 / 10, 0.0),
        ([8, 12] * 8, [8, 12] * 8, 0.0, 4 / 10),  # the arrivals go at once
        ([8, 12] * 8, [8, 12, 8, 16, 8, 8, 8, 12] * 2, 0.0, 4 / 10),  # the number varies less than the arrivals
        ([10] * 16, [0, 20] * 8, 5.0, 0.0),  # answers in bursts: 100 / 10 over a span, 0 over several
        ([10] * 16, [0, 0, 0, 0, 20, 20, 20, 20] * 2, 10.0, 0.0),  # 10 over a span, and more over several
    ],
)
def test_chance_growth_is_that_of_service_arrivals_and_number(
    came: list[int], went: list[int], of_service: float, of_arrivals: float
) -> None:
    """With 160 arrivals after the beginning there are ten a span; a variance of ±2 is 4 requests squared, or 0.4 an arrival."""
    queue = _of_spans(came, went, _NUMBERS, before=7)
    assert queue.chance_growth == pytest.approx(20 * of_service + 5 * of_arrivals + 3.0)


@pytest.mark.parametrize(
    ("came", "went", "variance"),
    [
        ([10] * 16, [8, 8, 12, 12] * 4, 128 / 15 / 17.5),  # over two spans 4, 0, -4, 0 and so on, 15 times, of 20 (1 - 2/16)
        ([10] * 16, [8, 12] * 8, 4 / 10),  # over two spans there is none
        ([8, 12] * 8, [12, 8] * 8, 16 / 10),
        ([10] * 16, [8] * 8 + [12] * 8, 14 * 16 / 15 / 17.5),  # longer spans than an eighth do not count
        ([10] * 12, [8, 8, 12, 12] * 3, 4 / 10),  # an eighth is one span
    ],
)
def test_every_number_of_the_course_of_a_queue(came: list[int], went: list[int], variance: float) -> None:
    """In units of the standard deviation of the arrivals after the beginning; ``deviation`` is that of all, 40 more."""
    course = _of_spans(came, went, _NUMBERS, before=40).course
    unit = np.sqrt(sum(came) * variance)
    assert (course.growth, course.spread) == (pytest.approx((45 - 9) / unit), pytest.approx((60 - 9) / unit))
    assert course.deviation == pytest.approx(np.sqrt((sum(came) + 40) * variance))


_LOWEST_LATER = [12.0] * 5 + [9.0, 12.0, 12.0]


@pytest.mark.parametrize(
    ("last", "rate_per_s", "found"),
    [
        ([13.0] * 4, None, True),
        ([11.0] * 4, None, False),  # 9 may be 12 by chance
        ([14.0, 14.0, 14.0, 11.0], None, False),  # it grew by 4.25, and has been drained to less than half of that
        ([14.0, 14.0, 14.0, 11.5], None, True),
        ([13.0] * 4, 20.0, True),
        ([13.0] * 4, 5.0, False),  # any server for 5 a second would have a queue of 10 a second
    ],
)
def test_growth_is_above_that_of_chance_and_of_the_arrivals_alone(
    last: list[float], rate_per_s: float | None, found: bool
) -> None:
    """Ten requests come and go each second; the middles of the sixth and of the last part are at 7.33 and 15.33 s."""
    growth = _of_spans([10] * 16, [10] * 16, [*_LOWEST_LATER, *last]).growth(rate_per_s)
    assert growth == (QueueGrowth(9.0, last[-1], 80, pytest.approx(rate_per_s or 10.0), pytest.approx(10.0)) if found else None)


def test_a_queue_that_does_not_vary_moves_by_one_request_at_least() -> None:
    course = _of_spans([10] * 16, [10] * 16, _NUMBERS).course
    assert (course.growth, course.spread, course.deviation) == (36.0, 51.0, 1.0)


def test_an_even_server_takes_one_request_after_the_other() -> None:
    arrivals = np.array([100.0, 110.0, 120.0, 200.0, 201.0])
    assert ends_at_even_server(arrivals, 15.0).tolist() == [115.0, 130.0, 145.0, 215.0, 230.0]
    assert ends_at_even_server(arrivals, 1.0).tolist() == [101.0, 111.0, 121.0, 201.0, 202.0]
    services = np.array([5.0, 20.0, 30.0, 1.0, 9.0])
    assert ends_at_even_server(arrivals, services).tolist() == [105.0, 130.0, 160.0, 201.0, 210.0]


@pytest.mark.parametrize(
    ("waits_ms", "answers_ms", "later_ms", "filling_ms"),
    [
        ([0.0] * 10, range(10, 110, 10), 100.0, 1.5 * 91),  # not streamed: nine tenths take 91 ms at most
        (range(2, 22, 2), range(10, 110, 10), 100.0, 1.5 * (11 + 91)),  # the typical wait is 11 ms
        (range(2, 22, 2), range(10, 110, 10), 306.0, 1.5 * (11 + 91)),  # thrice as long
        (range(2, 22, 2), range(10, 110, 10), 307.0, 0.0),
        ([0.0] * 10, range(10, 110, 10), 274.0, 0.0),
    ],
)
def test_a_queue_fills_in_half_as_long_again_as_the_first_tenth_takes(
    make_requests: MakeRequests,
    answered: Make,
    waits_ms: Sequence[float],
    answers_ms: Sequence[float],
    later_ms: float,
    filling_ms: float,
) -> None:
    """A hundred requests, of which the last half takes ``later_ms``, beside some that were not sent or have no end. A first
    wait of 0 is one token at the end.
    """
    records = [answered(200, 0, 0, [(1, 1)], outcome=Outcome.LOST, done_ns=None)]
    for k in range(100):
        at = 10.0 * k
        wait, answer = (waits_ms[k], answers_ms[k]) if k < 10 else (5.0, 50.0 if k < 50 else later_ms - 5.0)
        end = at + wait + answer
        records.append(answered(k, at, at, [(at + wait, 1), (end, 1)] if wait else [(end, 1)], done=end))
    assert filling_ns(make_requests(records[1:])) == pytest.approx(1e6 * filling_ms)
    assert filling_ns(make_requests(records)) == pytest.approx(1e6 * filling_ms)


def _events(counts: Sequence[int], width: float) -> NDArray[np.float64]:
    """So many events in each of the parts of a time, evenly, none of them at a part's end."""
    return np.concatenate([width * (part + (np.arange(count) + 0.5) / count) for part, count in enumerate(counts)])


_EDGES = np.linspace(0.0, 120.0, 13)


@pytest.mark.parametrize(
    ("came", "went", "expected"),
    [
        ([10] * 12, [10] * 12, 0.0),
        ([8, 12] * 6, [10] * 12, 5 * 0.4),  # variance 4 of counts of 10: the arrivals alone
        ([8, 12] * 6, [8, 12] * 6, 5 * 0.4),  # the server does what comes
        ([10] * 12, [7, 13] * 6, 20 * 0.9),
        ([8, 12] * 6, [12, 8] * 6, 5 * 0.4 + 20 * (1.6 - 0.4)),
        ([8, 12] * 12, [10] * 24, 5 * 0.4),  # 240 arrivals: 24 counts of 10 on average
        ([10] * 24, [0, 20] * 12, 20 * 5.0),  # variance 10; over two counts none
        ([10] * 12, [4, 18, 4, 14] * 3, 20 * 3.8),  # little enough to count as it is
        ([10] * 24, [0, 0, 20, 20, 0, 0, 20, 20, 0, 0, 20, 20] * 2, 20 * 5.0),  # over two counts more, over four none
        ([10] * 24, [20] * 12 + [0] * 12, 20 * 10.0),  # over any longer span more
        ([10] * 15, [30, 0, 0] * 5, 20 * 200 / 40 / (1 - 4 / 15)),  # over four counts; a third of the 15 is the longest span
    ],
)
def test_chance_growth_goes_by_the_noise_of_arrivals_and_of_service(came: list[int], went: list[int], expected: float) -> None:
    width = 120.0 / len(came)
    events = (_events(counts, width) for counts in (came, went))
    assert Queue(*events, _EDGES, np.array([25.0, 16.0, 20.0])).chance_growth == pytest.approx(expected + 4.0)


@pytest.mark.parametrize(("per_s", "found"), [(100, False), (70, True)])
def test_answers_delivered_in_bursts_do_not_hide_a_growing_queue(
    in_order: Callable[..., Requests], per_s: int, found: bool
) -> None:
    arrivals_ms = _arrivals_ms()
    ends_ms = [500.0 * np.ceil((at + 1) / 500.0) for at in ends_at_even_server(np.array(arrivals_ms), 1_000.0 / per_s)]
    assert (queue_growth(in_order(arrivals_ms, ends_ms)) is not None) == found


def test_an_arrival_at_the_end_of_the_beginning_belongs_to_it() -> None:
    arrivals = _events([8, 12] * 6, 10.0)
    arrivals[0] = 0.0  # counts of 119 / 12 on average
    went = _events([10] * 12, 10.0)
    assert Queue(arrivals, went, _EDGES, np.zeros(12)).chance_growth == pytest.approx(5 * 4 / (119 / 12))


# ---- the number in the system


def test_what_has_no_time_is_not_in_the_system() -> None:
    entered, left = np.array([0.0, 0.0, np.nan, 4.0]), np.array([10.0, np.nan, 10.0, 8.0])
    assert mean_in_system(entered, left, np.array([0.0, 5.0, 10.0])).tolist() == [1.2, 1.6]
    assert mean_in_system(entered[1:3], left[1:3], np.array([0.0, 5.0, 10.0])).tolist() == [0.0, 0.0]
    assert mean_in_system(entered[3:], left[3:], np.array([0.0, 5.0, 10.0])).tolist() == [0.2, 0.6]  # a single stay


def test_the_number_in_the_system_is_exact_late_on_the_clock() -> None:
    """10,000 stays of 1 µs, one after the other, after 100 days: Σ of the times would not fit in a float64."""
    entered = 8.64e15 + 1_000.0 * np.arange(10_000)
    edges = 8.64e15 + np.array([0.0, 1e6, 9_999_000.0, 1e7])
    assert mean_in_system(entered, entered + 1_000.0, edges) == pytest.approx([1.0, 1.0, 1.0], abs=1e-9)


def test_the_first_user_stops_at_the_first_end_at_which_no_request_was_due(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Two users. The one whose connection is refused at 30 ms goes on at 31 ms; the other one stops at 40 ms."""
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        answered(1, 0, 0, [(19, 1)], done=20),
        failed(2, 10, Outcome.CONNECT, 10, 30),
        answered(3, 20, 20, [(39, 1)], done=40),
        answered(4, 31, 31, [(49, 1)], done=50),
        failed(5, 60, Outcome.NOT_SENT),
    ]
    assert first_user_end_ns(make_requests(records)) == 40e6


def test_where_nothing_ended_no_user_stopped(make_requests: MakeRequests, failed: Make) -> None:
    assert first_user_end_ns(make_requests([failed(0, 0, Outcome.NOT_SENT)])) == np.inf


def test_users_drain_when_the_first_of_their_conversations_has_ended(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Three users who think. A failure at 25 ms keeps the first from going on; the second one has sent all at 60 ms."""
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        answered(1, 1, 1, [(19, 1)], done=20),
        answered(2, 2, 2, [(19, 1)], done=21),
        failed(3, 15, Outcome.TIMEOUT, 15, 25, parent=0),
        failed(4, 25, Outcome.NOT_SENT, parent=3),
        answered(5, 30, 30, [(59, 1)], done=60, parent=1),
        answered(6, 40, 40, [(69, 1)], done=70, parent=2),
        answered(7, 80, 80, [(89, 1)], done=90, parent=6),
    ]
    assert drain_start_ns(make_requests(records), 80e6) == 60e6


def test_a_conversation_whose_last_turn_failed_ended_with_it(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        answered(1, 1, 1, [(10, 1)], done=11),
        failed(2, 30, Outcome.TIMEOUT, 30, 40, parent=0),
        answered(3, 60, 60, [(69, 1)], done=70, parent=1),
    ]
    assert drain_start_ns(make_requests(records), 60e6) == 40e6


def test_turns_are_found_by_their_numbers_in_the_schedule_whatever_their_order(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Conversations of the numbers 5 and 0, and 2 and 1, in this order: the first one ends at 30 ms."""
    records = [
        answered(5, 0, 0, [(9, 1)], done=10),
        answered(2, 1, 1, [(19, 1)], done=20),
        answered(0, 10, 10, [(29, 1)], done=30, parent=5),
        answered(1, 20, 20, [(59, 1)], done=60, parent=2),
    ]
    assert drain_start_ns(make_requests(records), 50e6) == 30e6


def test_where_failures_cut_every_conversation_the_drain_begins_with_the_last_send(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        failed(1, 15, Outcome.TIMEOUT, 15, 25, parent=0),
        failed(2, 25, Outcome.NOT_SENT, parent=1),
    ]
    assert drain_start_ns(make_requests(records), 15e6) == 15e6


def test_a_branch_of_a_conversation_that_ends_early_is_not_its_end(make_requests: MakeRequests, answered: Make) -> None:
    """Each of two conversations has three turns, and a request beside the first that nothing follows."""
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        answered(1, 1, 1, [(10, 1)], done=11),
        answered(2, 2, 2, [(11, 1)], done=12, parent=0),
        answered(3, 3, 3, [(12, 1)], done=13, parent=1),
        answered(4, 20, 20, [(29, 1)], done=30, parent=0),
        answered(5, 21, 21, [(30, 1)], done=31, parent=1),
        answered(6, 40, 40, [(49, 1)], done=50, parent=4),
        answered(7, 60, 60, [(69, 1)], done=70, parent=5),
    ]
    assert drain_start_ns(make_requests(records), 60e6) == 50e6


def test_conversations_that_begin_at_a_rate_drain_when_the_last_one_has_begun(
    make_requests: MakeRequests, answered: Make
) -> None:
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        answered(1, 50, 50, [(59, 1)], done=60, parent=0),
        answered(2, 100, 100, [(109, 1)], done=110),
        answered(3, 150, 150, [(159, 1)], done=160, parent=2),
    ]
    assert drain_start_ns(make_requests(records), 150e6) == 100e6


def test_a_closed_loop_drains_when_its_first_user_stops_and_no_later_than_its_last_send(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Two users: the first stops at 30 ms, and the second sends on at 40 ms."""
    records = [
        answered(0, 0, 0, [(9, 1)], done=10),
        answered(1, 0, 0, [(19, 1)], done=20),
        answered(2, 10, 10, [(29, 1)], done=30),
        answered(3, 20, 20, [(39, 1)], done=40),
        answered(4, 40, 40, [(49, 1)], done=50),
    ]
    requests = make_requests(records)
    assert drain_start_ns(requests, 40e6) == 30e6
    assert drain_start_ns(requests, 25e6) == 25e6


def test_users_who_think_send_until_the_last_send(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 4, 1)]) for k in range(20)])
    assert drain_start_ns(requests, 190e6) == 190e6


def test_the_share_left_behind_is_of_the_arrivals() -> None:
    assert QueueGrowth(10.0, 40.0, 60, 1.0, 1.0).share_left_behind == 0.5


def test_the_number_in_an_idle_system_is_never_below_0() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        entered = np.sort(rng.integers(0, 10**10, rng.integers(5, 60))).astype(float)
        left = entered + rng.integers(1, 10**7, entered.size)
        assert mean_in_system(entered, left, np.linspace(entered[0], entered[-1], 21)).min() >= 0.0


# ---- long answers


def test_a_number_that_rises_until_the_first_answers_end_is_no_growth(in_order: Callable[..., Requests]) -> None:
    """10 requests/s for 30 s at a target without a queue, whose answers take 8 to 16 s: 120 are in the system from 16 s on."""
    arrivals_ms = [100.0 * k for k in range(300)]
    took_ms = [8_000.0 + 80.0 * (37 * k % 100) for k in range(300)]
    ends_ms = [at + took for at, took in zip(arrivals_ms, took_ms, strict=True)]
    assert queue_growth(in_order(arrivals_ms, ends_ms)) is None


@pytest.mark.parametrize("times", [1.5, 3.0, 10.0])
def test_an_overload_is_found_whose_latencies_reach_the_length_of_the_sending(
    in_order: Callable[..., Requests], times: float
) -> None:
    """100 requests/s for 10 s at a server that answers as many in ``times`` as long."""
    arrivals_ms = [10.0 * k for k in range(1_000)]
    ends_ms = ends_at_even_server(np.array(arrivals_ms), 10.0 * times).tolist()
    assert queue_growth(in_order(arrivals_ms, ends_ms)) is not None


def test_the_number_over_time_rises_before_it_falls_at_the_same_time() -> None:
    times_ns, numbers = number_over_time(np.array([0.0, 10.0, 20.0]), np.array([10.0, 30.0, 15.0]))
    assert (times_ns.tolist(), numbers.tolist()) == ([0, 10, 10, 15, 20, 30], [1, 2, 1, 0, 1, 0])
    at_once = np.arange(100.0)
    assert number_over_time(at_once, at_once)[1].tolist() == [1, 0] * 100
