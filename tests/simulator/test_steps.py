"""Steps recovered from arrivals of tokens, against those that the simulated engine took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench_records.manifest import LoadFacts, Manifest
from bench_records.run_folder import RunFolder
from simulator.answers import Deployment
from simulator.clients import Users, clients_of
from simulator.observed import Observed, read_observed, users_of
from simulator.prompt_chunks import budgets_to_try, prefill_by_step
from simulator.recorded import Responses, observed_of, simulated_run
from simulator.server import Admission, Order
from simulator.simulation import simulate, simulate_deployment
from simulator.step_law import sample_of, undisturbed
from simulator.steps import Steps, recover_steps, response_spacing_s
from simulator.structure import structure_of
from simulator.traffic import Traffic
from tests.simulator.known import SERVER, poisson, write_run


def test_the_steps_of_a_light_load_are_the_engines() -> None:
    traffic = poisson(rate=30, requests=400, seed=1)
    steps = recover_steps(simulated_run(SERVER, traffic, 0, "run"))
    assert len(steps) == pytest.approx(simulate(SERVER, traffic, 0).steps, rel=0.02)
    assert steps.sequences.sum() == traffic.output_tokens.sum()
    assert steps.prefill.sum() == traffic.prefill_tokens.sum()
    assert steps.is_whole.mean() > 0.95
    spacing = response_spacing_s(steps)
    assert spacing == pytest.approx(SERVER.front_end.response, rel=0.2)


def test_durations_are_those_of_the_law() -> None:
    quiet = replace(SERVER, noise=(0.0,))
    steps = recover_steps(simulated_run(quiet, poisson(rate=30, requests=600, seed=1), 0, "run"))
    sample = sample_of(steps, None)
    law = quiet.law
    expected = law.step + law.prefill * sample.features[:, 1] + law.sequence * sample.features[:, 2]
    assert np.median(np.abs(sample.durations_s - expected)) < 0.1e-3
    assert len(sample) > 0.4 * len(steps)


def test_chunks_are_laid_back_from_the_step_of_the_first_token() -> None:
    chunked = replace(SERVER, admission=Admission(token_budget=256))
    steps = recover_steps(simulated_run(chunked, poisson(rate=30, requests=300, seed=4, prompt=400), 0, "run"))
    for budget in budgets_to_try(steps):
        assert prefill_by_step(steps, budget).prefill.sum() == pytest.approx(steps.prefill.sum())
    laid = prefill_by_step(steps, 256)
    assert (laid.prefill[steps.is_busy & laid.is_known] <= 256).mean() > 0.99
    whole = prefill_by_step(steps, None)
    assert whole.prefill.tolist() == steps.prefill.tolist()
    assert whole.is_known.all()


def test_the_steps_of_a_prompt_are_full_up_to_the_last() -> None:
    """So the durations of steps are those of the law, whichever part of a prompt they have."""
    chunked = replace(SERVER, noise=(0.0,), admission=Admission(token_budget=256))
    steps = recover_steps(simulated_run(chunked, poisson(rate=30, requests=600, seed=1, prompt=300), 0, "run"))
    sample = sample_of(steps, 256)
    law = chunked.law
    has_prompt = sample.features[:, 1] > 0
    expected = law.step + law.prefill * sample.features[:, 1] + law.sequence * sample.features[:, 2]
    errors = np.abs(sample.durations_s - expected)[has_prompt]
    assert (errors < 0.2e-3).mean() > 0.85


def _two_prompts(sent_s: float) -> Steps:
    """Six steps of 10 ms with one sequence that decodes, and a budget of 101 in mind. A prompt of 10 tokens is complete in step
    0, 15 ms after it was sent, one of 150 tokens in step 2, and one of 90, sent at ``sent_s``, in step 3.
    """
    zero, one, no = np.zeros(6), np.ones(6), np.zeros(6, bool)
    prompts, prefill = np.array([1, 0, 1, 1, 0, 0.0]), np.array([10, 0, 150, 90, 0, 0.0])
    first_sent = np.array([-0.005, 0, 0.0005, sent_s, 0, 0])
    return Steps(
        at_s=0.01 * np.arange(1, 7),
        last_s=0.01 * np.arange(1, 7),
        sequences=one + prompts,
        prompts=prompts,
        prefill=prefill,
        prompt_context=prefill**2,
        first_prefill=prefill,
        first_sent_s=first_sent,
        context=one,
        waiting=zero,
        coalesced=zero,
        since_sent_s=one,
        is_clear=~no,
        is_busy=~no,
        is_whole=~no,
    )


def test_a_prompt_begins_in_what_another_left_of_a_step_if_it_waited_then() -> None:
    """Step 2, which is decided at 20 ms, has 50 tokens left beside the first prompt. The way takes at most 15 ms."""
    before, after, unclear = (prefill_by_step(_two_prompts(sent), 101) for sent in (0.001, 0.025, 0.012))
    assert before.prefill.tolist() == [10, 100, 100, 40, 0, 0]
    assert after.prefill.tolist() == [10, 100, 50, 90, 0, 0]
    assert before.is_known.all()
    assert after.is_known.all()
    assert unclear.is_known.tolist() == [True, True, False, False, True, True]


def test_a_part_of_a_prompt_has_the_parts_before_it_and_what_a_cache_had_as_its_context() -> None:
    """As the engine counts it: the tokens of a part times the context at its end."""
    steps = _two_prompts(0.001)
    laid = prefill_by_step(steps, 101)
    assert laid.with_context.tolist() == [10 * 10, 100 * 100, 50 * 150 + 50 * 50, 40 * 90, 0, 0]
    assert prefill_by_step(steps, None).with_context.tolist() == steps.prompt_context.tolist()
    cached = prefill_by_step(replace(steps, prompt_context=steps.prefill * (steps.prefill + 7)), 101)
    expected = [10 * 17, 100 * 107, 50 * 157 + 50 * 57, 40 * 97, 0, 0]
    assert cached.with_context.tolist() == pytest.approx(expected)


def test_a_prompt_of_a_burst_is_not_taken_for_one_that_was_sent_after_the_first_step() -> None:
    """The engine waits at 20 ms, until a prompt comes that was sent at 20.5 ms. The way takes at most 9.5 ms."""
    prefill = np.array([0, 0, 60, 90, 0, 0.0])

    def is_known(sent_s: float) -> list[bool]:
        steps = replace(_two_prompts(sent_s), prompts=(prefill > 0).astype(float), prefill=prefill, first_prefill=prefill)
        first_sent = np.array([0, 0, 0.0205, sent_s, 0, 0])
        return prefill_by_step(replace(steps, first_sent_s=first_sent, is_busy=np.arange(6) != 2), 101).is_known.tolist()

    assert is_known(0.0206) == [True, True, False, False, True, True]
    assert is_known(0.0305) == [True] * 6


@pytest.mark.parametrize("prompts", [(100, 200), (300, 350)], ids=["whole", "over steps without a token"])
def test_steps_of_a_burst_that_finds_the_engine_idle_are_right_or_left_out(prompts: tuple[int, int]) -> None:
    front_end = replace(SERVER.front_end, intake=0.0)
    server = replace(SERVER, noise=(0.0,), admission=Admission(token_budget=256), front_end=front_end)
    sent_s = np.repeat(np.arange(40) * 0.5, 2)
    lengths = np.tile(prompts, 40)
    traffic = Traffic(sent_s, lengths, lengths, np.full(len(lengths), 8), None)
    sample = sample_of(recover_steps(simulated_run(server, traffic, 0, "run")), 256)
    law = server.law
    expected = law.step + law.prefill * sample.features[:, 1] + law.sequence * sample.features[:, 2]
    assert np.abs(sample.durations_s - expected).max() < 0.3e-3
    assert len(sample) > 200


def test_steps_beside_the_way_of_a_request_are_left_out() -> None:
    """A request was sent 2 ms before the end of step 3, and its way takes up to 4 ms: step 3 may be longer, step 4 shorter."""
    steps = replace(_two_prompts(0.025), first_sent_s=np.array([-0.005, 0, 0.016, 0.025, 0, 0]))
    steps = replace(steps, since_sent_s=np.array([1, 1, 1, 0.002, 1, 1]))
    usable = np.ones(6, bool)
    others = replace(steps, prompts=np.array([1, 0, 1, 0, 0, 1]))
    assert undisturbed(others, usable).tolist() == [True, True, True, False, False, True]
    alone = replace(steps, prompts=np.array([0, 0, 0, 1, 0, 0]))
    assert undisturbed(alone, usable).all()  # else no step with a prompt is left


def test_what_steps_without_a_token_computed_is_not_known() -> None:
    """A prompt is complete in step 3, at whose beginning nothing else ran. Step 2 may hold a part of it."""
    steps = replace(_two_prompts(0.015), prompts=np.array([0, 0, 0, 1, 0, 0.0]), prefill=np.array([0, 0, 0, 250, 0, 0.0]))
    steps = replace(steps, first_prefill=steps.prefill, is_busy=np.arange(6) != 3)
    assert prefill_by_step(steps, 101).is_known.tolist() == [True, True, False, True, True, True]


@pytest.mark.parametrize(
    ("admission", "rate"),
    [
        (Admission(), 30),
        (Admission(order=Order.PREFILL_FIRST), 30),
        (Admission(max_sequences=12), 90),
        (Admission(token_budget=256), 30),
        (Admission(lookahead=1), 30),
    ],
    ids=["mixed", "prefill first", "batch limit", "chunked", "asynchronous"],
)
def test_the_structure_is_recovered(admission: Admission, rate: float) -> None:
    server = replace(SERVER, admission=admission, law=replace(SERVER.law, launch=2 * SERVER.law.step * admission.lookahead))
    runs = [recover_steps(simulated_run(server, poisson(rate, 500, seed), seed, "run")) for seed in (1, 2)]
    assert structure_of(runs).admission == admission


def test_a_batch_limit_shows_where_steps_pile_up_however_few_they_are() -> None:
    """Without a limit, few steps hold the largest number."""
    rates = ((30, 1), (50, 2), (30, 3))
    limited = replace(SERVER, admission=Admission(max_sequences=16))
    runs = [recover_steps(simulated_run(limited, poisson(rate, 500, seed), seed, "run")) for rate, seed in rates]
    sequences = np.concatenate([steps.sequences for steps in runs])
    assert 20 <= np.count_nonzero(sequences == 16) < 0.05 * sequences.size
    assert structure_of(runs).admission.max_sequences == 16
    free = [recover_steps(simulated_run(SERVER, poisson(rate, 500, seed), seed, "run")) for rate, seed in rates]
    assert structure_of(free).admission.max_sequences is None


def test_a_closed_loop_is_recognised_by_its_records_and_an_open_one_is_not() -> None:
    closed = simulated_run(SERVER, poisson(1e6, 600, seed=5, users=12), 0, "closed")
    assert users_of(closed.sent_s, closed.last_s) == 12
    for rate in (3, 30, 60):
        opened = simulated_run(SERVER, poisson(rate, 600, seed=5), 0, "open")
        assert users_of(opened.sent_s, opened.last_s) is None


def _folder(path: Path, observed: Observed, load: LoadFacts) -> Path:
    path.mkdir()
    write_run(observed, RunFolder(path).requests)
    RunFolder(path).write_manifest(Manifest(load=load))
    return path


def test_a_manifest_says_whether_a_loop_was_closed_where_the_records_mislead(tmp_path: Path) -> None:
    """Even arrivals of even lengths have the same number in flight at each sending, and a single user has one."""
    ones = np.ones(200, np.int64)
    even = simulated_run(SERVER, Traffic(0.02 * np.arange(200), 100 * ones, 100 * ones, 20 * ones), 0, "even")
    assert users_of(even.sent_s, even.last_s) == 8
    assert read_observed(_folder(tmp_path / "even", even, LoadFacts(mode="open"))).users is None
    one = simulated_run(SERVER, poisson(1e6, 60, seed=5, users=1), 0, "one")
    assert read_observed(_folder(tmp_path / "one", one, LoadFacts(mode="closed", concurrency=1))).users == 1
    assert read_observed(_folder(tmp_path / "unknown", one, LoadFacts())).users is None
    ceiling = LoadFacts(mode="open", max_concurrency=8)
    assert read_observed(_folder(tmp_path / "ceiling", even, ceiling)).users == 8


def test_the_users_of_a_closed_loop_begin_when_they_began(tmp_path: Path) -> None:
    """They begin 0.4 s after each other, and the first ones send several requests meanwhile."""
    starts_s = [0.4 * user for user in range(8)]
    traffic, responses = poisson(1e6, 240, seed=5, users=8), Responses(240, SERVER.front_end.response)
    answers = simulate_deployment(Deployment(SERVER), traffic, Users(starts_s, 240), 0, responses.add)
    closed = LoadFacts(mode="closed", concurrency=8, ramp_up_s=3.2)
    ramped = read_observed(_folder(tmp_path / "run", observed_of(traffic, answers, responses, "ramped"), closed))
    assert ramped.sent_s[7] < 1.0
    clients = clients_of(ramped.traffic(ramped.sent_s))
    assert isinstance(clients, Users)
    assert clients.starts_s == pytest.approx(starts_s, abs=0.02)
