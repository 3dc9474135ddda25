"""The simulation against theory, and what it must conserve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import SimulatorError
from simulator.recorded import simulated_run
from simulator.server import Admission, FrontEnd, Order, Server, StepLaw
from simulator.simulation import simulate
from simulator.traffic import Traffic
from tests.simulator.known import SERVER, poisson, requests

_costs = st.floats(0, 1e-3)
servers = st.builds(
    Server,
    st.builds(
        StepLaw,
        step=st.floats(1e-4, 1e-2),
        prefill=st.floats(0, 1e-4),
        sequence=st.floats(0, 1e-4),
        context=st.floats(0, 1e-7),
        launch=st.floats(0, 1e-2),
        launch_large=st.floats(0, 1e-2),
        free_prefill=st.integers(0, 60),
        large_step=st.none() | st.integers(1, 60),
    ),
    st.builds(
        Admission,
        order=st.sampled_from(Order),
        max_sequences=st.none() | st.integers(1, 8),
        token_budget=st.none() | st.integers(1, 300),
        lookahead=st.integers(0, 1),
    ),
    st.builds(
        FrontEnd, delay=_costs, intake=_costs, intake_rounds=st.integers(1, 5), token=st.floats(0, 1e-4), response=_costs
    ),
    noise=st.lists(st.floats(-1e-3, 1e-3), min_size=1, max_size=9).map(tuple),
)
_traffic = st.builds(
    poisson,
    rate=st.floats(5, 500),
    requests=st.integers(1, 60),
    seed=st.integers(0, 9),
    prompt=st.just(50),
    output=st.integers(1, 12),
    users=st.none() | st.integers(1, 70),
)


@given(servers, _traffic, st.integers(0, 99))
def test_every_request_gets_all_its_tokens_in_order_and_a_seed_repeats_them(
    server: Server, traffic: Traffic, seed: int
) -> None:
    seen = simulated_run(server, traffic, seed, "run")
    totals = np.add.reduceat(seen.counts, seen.starts[:-1])
    assert totals.tolist() == traffic.output_tokens.tolist()
    within = np.ones(len(seen.times_s) - 1, bool)
    within[seen.starts[1:-1] - 1] = False
    assert (np.diff(seen.times_s)[within] >= 0).all()
    assert (seen.first_s >= seen.sent_s + server.front_end.delay + server.front_end.intake).all()
    again = simulated_run(server, traffic, seed, "run")
    assert again.times_s.tolist() == seen.times_s.tolist()


@given(servers, st.integers(1, 500), st.integers(1, 9))
def test_a_request_alone_takes_the_sum_of_its_costs(server: Server, prompt: int, output: int) -> None:
    law = replace(server.law, launch=0.0, launch_large=0.0)
    server = replace(server, law=law, admission=Admission(), noise=(0.0,))
    front = server.front_end
    answers = simulate(server, requests([1.0], [prompt], [output]), 0)
    first = law.step + law.prefill * max(0, prompt - law.free_prefill) + law.sequence + law.context * (prompt + 1)
    to_engine, back = front.delay + front.intake, front.token + front.response
    assert answers.first_s[0] == pytest.approx(1.0 + to_engine + first + back)
    decode = sum(law.step + law.sequence + law.context * (prompt + 1 + token) for token in range(1, output))
    if back < law.step:  # else the front end is the slower of the two
        assert answers.last_s[0] == pytest.approx(answers.first_s[0] + decode)


def test_one_sequence_at_a_time_waits_as_in_m_d_1() -> None:
    service, load = 10e-3, 0.7
    server = Server(StepLaw(step=service), Admission(max_sequences=1))
    random = np.random.default_rng(1)
    arrivals = np.cumsum(random.exponential(service / load, 60_000))
    ones = np.ones(len(arrivals), np.int64)
    answers = simulate(server, Traffic(arrivals, ones, ones, ones), 0)
    wait = (answers.first_s - answers.sent_s).mean() - service
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.05)  # Pollaczek and Khinchine


def test_sequences_share_their_steps() -> None:
    """Ten requests at once with 5 tokens each take 5 steps of 10, where one after the other takes 50."""
    server = Server(StepLaw(step=5e-3, sequence=1e-4))
    answers = simulate(server, requests([0.0] * 10, [1] * 10, [5] * 10), 0)
    assert answers.steps == 5
    assert answers.last_s == pytest.approx(np.full(10, 5 * (5e-3 + 10e-4)))
    alone = simulate(replace(server, admission=Admission(max_sequences=1)), requests([0.0] * 10, [1] * 10, [5] * 10), 0)
    assert alone.steps == 50


def test_a_prompt_beyond_the_budget_takes_several_steps() -> None:
    server = Server(StepLaw(step=1e-3, prefill=1e-5), Admission(token_budget=256))
    answers = simulate(server, requests([0.0], [1_000], [1]), 0)
    assert answers.steps == 4
    assert answers.first_s[0] == pytest.approx(4e-3 + 1e-2)


def test_prompts_first_stop_the_sequences_that_decode() -> None:
    law = StepLaw(step=1e-3, prefill=1e-5)
    traffic = requests([0.0, 2.5e-3], [100, 1_000], [5, 1])  # the second comes in the second step
    mixed = simulate(Server(law), traffic, 0)
    alone = simulate(Server(law, Admission(order=Order.PREFILL_FIRST)), traffic, 0)
    assert mixed.last_s[0] == pytest.approx(2e-3 + 4e-3 + 1e-2)
    assert alone.last_s[0] == pytest.approx(2e-3 + 4e-3 + 1e-2 + 1e-3)  # a step more
    assert alone.first_s[1] == mixed.first_s[1]


def test_a_request_waits_until_the_kv_cache_has_room_for_all_its_tokens() -> None:
    """Each needs 2 blocks of 32 tokens, so 2 of 3 run; the third is taken when one has ended."""
    server = Server(StepLaw(step=1e-3), Admission(kv_blocks=5))
    answers = simulate(server, requests([0.0, 0.0, 0.0], [30, 30, 30], [4, 6, 3]), 0)
    assert answers.first_s * 1e3 == pytest.approx([1, 1, 5])
    assert answers.last_s * 1e3 == pytest.approx([4, 6, 7])


def test_a_request_that_is_larger_than_the_kv_cache_is_refused() -> None:
    server = Server(StepLaw(step=1e-3), Admission(kv_blocks=5))
    with pytest.raises(SimulatorError, match="--kv_blocks 5: a request of 161 tokens needs 6 of them"):
        simulate(server, requests([0.0], [160], [1]), 0)


def test_asynchronous_scheduling_decides_a_step_while_the_one_before_runs() -> None:
    law, traffic = StepLaw(step=1e-3), requests([0.0, 2.5e-3], [1, 1], [8, 2])
    plain, ahead = (simulate(Server(law, admission), traffic, 0) for admission in (Admission(), Admission(lookahead=1)))
    assert plain.first_s[1] == pytest.approx(4e-3)  # in the step from 3 to 4 ms
    assert ahead.first_s[1] == pytest.approx(5e-3)
    assert plain.first_s[0] == ahead.first_s[0] == pytest.approx(1e-3)  # an engine that waits decides at once


def test_a_launch_delays_the_tokens_of_the_step_before_and_not_the_engine() -> None:
    """The second request is decided at 4 ms and launched at 7; its step runs from 6 to 8, and that before from 4 to 6."""
    law, traffic = StepLaw(step=2e-3, launch=3e-3), requests([0.0, 3.5e-3], [1, 1], [9, 2])
    seen = simulated_run(Server(law, Admission(lookahead=1)), traffic, 0, "run")
    first = seen.times_s[: seen.starts[1]] * 1e3
    assert first[0] == pytest.approx(3)  # its own launch takes longer than its step
    gaps = np.diff(first)
    late = int(np.argmax(gaps))
    assert gaps[late] == pytest.approx(3)
    assert gaps[late] + gaps[late + 1] == pytest.approx(4)
    assert seen.first_s[1] * 1e3 == pytest.approx(first[late + 2])


@pytest.mark.parametrize("limit", [{"max_sequences": 2}, {"kv_blocks": 2}])
@pytest.mark.parametrize(("lookahead", "first_ms"), [(0, 3), (1, 4)])
def test_a_request_has_its_place_until_its_last_token_is_sent(limit: dict[str, int], lookahead: int, first_ms: float) -> None:
    """The first of two requests ends with the step from 1 to 2 ms. The next one is decided meanwhile with a lookahead, so that
    the third request is in the step after it.
    """
    admission, traffic = Admission(lookahead=lookahead, **limit), requests([0.0] * 3, [1] * 3, [2, 9, 1])
    answers = simulate(Server(StepLaw(step=1e-3), admission), traffic, 0)
    assert answers.last_s[0] * 1e3 == pytest.approx(2)
    assert answers.first_s[2] * 1e3 == pytest.approx(first_ms)


@pytest.mark.parametrize("limit", [{"max_sequences": 1}, {"kv_blocks": 1}])
def test_no_step_is_launched_ahead_that_could_hold_nothing(limit: dict[str, int]) -> None:
    law, admission = StepLaw(step=1e-3, launch=3e-3), Admission(lookahead=1, **limit)
    answers = simulate(Server(law, admission), requests([0.0] * 2, [1] * 2, [1] * 2), 0)
    assert answers.last_s * 1e3 == pytest.approx([3, 6])  # no launch of the second delays the first


def test_a_step_beyond_the_large_size_takes_its_own_launch() -> None:
    law = StepLaw(step=1e-3, launch=2e-3, launch_large=9e-3, large_step=100)
    small, large = (simulate(Server(law, Admission(lookahead=1)), requests([0.0], [size], [1]), 0) for size in (100, 101))
    assert (small.first_s[0], large.first_s[0]) == pytest.approx((2e-3, 9e-3))


def test_while_the_front_end_writes_tokens_coalesce_and_requests_wait() -> None:
    """A response costs 1 ms and a step of 20 sequences lasts 5: the client gets fewer responses than tokens."""
    busy = Server(StepLaw(step=5e-3), front_end=FrontEnd(response=1e-3, intake=1e-4, intake_rounds=3))
    traffic = poisson(rate=200, requests=40, seed=3, output=30)
    seen = simulated_run(busy, traffic, 0, "busy")
    assert (seen.counts > 1).mean() > 0.3
    idle = simulate(replace(busy, front_end=replace(busy.front_end, response=0.0)), traffic, 0)
    assert np.median(seen.first_s - seen.sent_s) > 2 * np.median(idle.first_s - idle.sent_s)


def test_the_engine_has_the_first_request_of_a_burst_before_the_others_are_taken_in() -> None:
    server = Server(StepLaw(step=5e-3), front_end=FrontEnd(intake=2e-3, intake_rounds=4))
    answers = simulate(server, requests([0.0] * 3, [10] * 3, [1] * 3), 0)
    assert answers.first_s * 1e3 == pytest.approx([7, 12, 12])


def test_a_closed_loop_keeps_its_users_busy() -> None:
    traffic = poisson(rate=1e6, requests=600, seed=5, users=12)
    seen = simulated_run(SERVER, traffic, 0, "closed")
    ends = np.sort(seen.last_s)
    in_flight = np.arange(1, 601) - np.searchsorted(ends, seen.sent_s, side="right")
    assert in_flight.max() == 12
    assert np.median(in_flight) == 12


def test_seeds_differ_only_in_noise() -> None:
    traffic = poisson(rate=40, requests=200, seed=2)
    one, other = simulate(SERVER, traffic, 1), simulate(SERVER, traffic, 2)
    assert one.last_s.tolist() != other.last_s.tolist()
    silent = replace(SERVER, noise=(0.0,))
    assert simulate(silent, traffic, 1).last_s.tolist() == simulate(silent, traffic, 2).last_s.tolist()
