"""Load modes: what each makes of the same requests, and how they print themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workloads.arrivals.processes import AllAtOnce, Constant, Exponential, RampedUp
from workloads.arrivals.rate_profile import Profiled, parse_profile
from workloads.elements.errors import WorkloadError
from workloads.elements.request import HistorySource, Request, Turn
from workloads.schedule.load import AnyLoad, ClosedLoop, OpenLoop, Sessions

_REQUESTS = [Request(output_tokens=k) for k in range(1, 101)]


def test_an_open_loop_gives_each_request_its_arrival() -> None:
    schedule = OpenLoop(Exponential(50.0), max_concurrency=9).schedule(_REQUESTS, 7)
    assert schedule.requests == tuple(_REQUESTS)
    assert schedule.offsets_ns == tuple(Exponential(50.0).offsets_ns(100, 7).tolist())
    assert (schedule.seed, schedule.max_concurrency) == (7, 9)


def test_an_open_loop_with_a_duration_leaves_out_what_would_come_later() -> None:
    schedule = OpenLoop(Constant(10.0), duration_s=2.5).schedule(_REQUESTS, 0)
    assert schedule.requests == tuple(_REQUESTS[:25])
    assert schedule.offsets_ns[-1] == 2_400_000_000


def test_too_few_requests_for_the_duration_are_all_sent_once() -> None:
    load = OpenLoop(Constant(10.0), duration_s=60.0)
    schedule = load.schedule(_REQUESTS, 0)
    assert (len(schedule), len(schedule.offsets_ns)) == (100, 100)  # and no arrival is without a request
    assert load.most_requests(0, None) == 600


@pytest.mark.parametrize(("num_requests", "most"), [(None, 25), (10, 10), (1_000, 25)])
def test_whichever_comes_first_ends_an_open_loop(num_requests: int | None, most: int) -> None:
    assert OpenLoop(Constant(10.0), duration_s=2.5).most_requests(0, num_requests) == most


def test_a_load_whose_requests_all_come_later_is_refused() -> None:
    silent = Profiled(Exponential(1.0), parse_profile("stages:0/s*60s,5/s*60s"), 1.0)
    with pytest.raises(WorkloadError, match=r"^rate_profile: no request arrives in the first 30 s$"):
        OpenLoop(silent, 30.0).most_requests(0, 7)
    assert OpenLoop(silent, 61.0).most_requests(0, 1) == 1
    assert OpenLoop(silent, 30.0).most_requests(0, 0) == 0


def test_as_many_requests_are_announced_as_the_seed_s_arrivals_send() -> None:
    load = OpenLoop(Exponential(10.0), duration_s=5.0)
    announced = [load.most_requests(seed, None) for seed in range(4)]
    assert announced == [len(load.schedule(_REQUESTS, seed)) for seed in range(4)]
    assert len(set(announced)) > 1


def test_the_same_seed_cuts_at_the_same_request_whatever_was_prepared() -> None:
    load = OpenLoop(RampedUp(Exponential(40.0), 1.0), duration_s=2.0)
    assert load.schedule(_REQUESTS, 5).digest == load.schedule(_REQUESTS[:90], 5).digest


def test_a_closed_loop_gives_its_users_their_starts() -> None:
    assert ClosedLoop(4).schedule(_REQUESTS, 7).user_starts_ns == (0, 0, 0, 0)
    schedule = ClosedLoop(4, duration_s=9.0, ramp_up_s=2.0).schedule(_REQUESTS, 7)
    assert schedule.user_starts_ns == (0, 500_000_000, 1_000_000_000, 1_500_000_000)
    assert (schedule.end_ns, schedule.seed, len(schedule)) == (9_000_000_000, 7, 100)


@pytest.mark.parametrize(
    ("users", "duration_s", "input_tokens", "output_tokens", "requests"),
    [
        (8, 60.0, 128.0, 20.0, 24_000),  # each could get 1,000 tokens/s: 50 requests of 20 a second
        (256, 600.0, 128.0, 20.0, 78_125),  # 10 million tokens of prompts are the most that is prepared
        (4, 0.001, 128.0, 2_000.0, 4),  # one for each user at least
    ],
)
def test_a_closed_loop_gets_as_many_requests_as_it_can_need(
    users: int, duration_s: float, input_tokens: float, output_tokens: float, requests: int
) -> None:
    assert ClosedLoop(users, duration_s).enough_requests(input_tokens, output_tokens) == requests


@pytest.mark.parametrize("num_requests", [None, 12])
def test_how_many_requests_a_closed_loop_sends_is_not_known_beforehand(num_requests: int | None) -> None:
    assert ClosedLoop(4, duration_s=9.0).most_requests(0, num_requests) == num_requests


def test_first_turns_have_the_arrivals_and_later_ones_wait_for_their_parents() -> None:
    turns = (
        Turn(),  # begins at 0 s
        Turn(),  # begins at 0.5 s
        Turn(parent=0, think_time_ns=7),
        Turn(parent=1, think_time_ns=9, after_first_ns=300_000_000),
        Turn(parent=3, after_first_ns=400_000_000),
        Turn(),  # begins at 1 s
    )
    sessions = Sessions(Constant(2.0), turns, "three sessions", HistorySource.SERVER)
    assert (sessions.count, sessions.ends_by_the_clock) == (3, False)
    schedule = sessions.schedule(_REQUESTS[:6], 7)
    assert schedule.requests == tuple(_REQUESTS[:6])
    assert schedule.offsets_ns == (0, 500_000_000, None, 800_000_000, 900_000_000, 1_000_000_000)
    assert schedule.parents == (None, None, 0, 1, 3, None)
    assert schedule.think_times_ns == (0, 0, 7, 9, 0, 0)
    assert (schedule.seed, schedule.history, schedule.joins) == (7, HistorySource.SERVER, ())
    joining = replace(sessions, turns=(*turns[:4], Turn(parent=3, joins=(1,)), Turn()))
    assert joining.schedule(_REQUESTS[:6], 7).joins == ((), (), (), (), (1,), ())


def test_sessions_begin_at_the_arrivals_of_the_seed() -> None:
    offsets_ns = Sessions(Exponential(2.0), (Turn(),) * 5, "five").schedule(_REQUESTS[:5], 7).offsets_ns
    assert offsets_ns == tuple(Exponential(2.0).offsets_ns(5, 7).tolist())


@pytest.mark.parametrize(
    ("load", "text", "by_the_clock"),
    [
        (OpenLoop(AllAtOnce()), "all requests at once", False),
        (
            OpenLoop(Constant(10), 30, 64),
            "constant arrivals at 10 requests/s, at most 64 in flight, for 30 s",
            False,
        ),
        (ClosedLoop(1), "closed loop of 1 user", False),
        (ClosedLoop(8, 30, 2), "closed loop of 8 users, coming over 2 s, for 30 s", True),
        (Sessions(AllAtOnce(), (Turn(),), "one session"), "one session", False),
    ],
)
def test_a_load_prints_itself(load: AnyLoad, text: str, by_the_clock: bool) -> None:
    assert str(load) == text
    assert load.ends_by_the_clock == by_the_clock
