"""The simulated processes: theory, conservation, and schedules that two runs share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.serving_processes import PROCESSES, Engine, Process, drawn, queue
from benchmarks.slow_changes import SLOW_CHANGES, Spells, day_and_night


def _run(process: Process, requests: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(seed)
    run = process.run(process.work(requests, rng), rng)
    return run.arrivals_s, run.ttft_ms


def test_the_mean_time_in_a_queue_is_that_of_theory() -> None:
    _, times_ms = _run(queue("", 0.5), 400_000)
    assert times_ms.mean() == pytest.approx(5.0 / (1.0 - 0.5), rel=0.03)  # M/M/1: service / (1 − load)


def test_constant_services_halve_the_wait() -> None:
    _, times_ms = _run(queue("", 0.8, 0.0), 400_000)
    assert times_ms.mean() == pytest.approx(8.0 + 0.8 * 8.0 / (2 * 0.2), rel=0.03)  # Pollaczek and Khinchine


def test_a_load_by_day_and_night_has_its_mean_rate_and_its_height() -> None:
    arrivals_s, _ = _run(day_and_night("", 0.6, 10_000.0), 200_000)
    per_quarter = np.histogram(arrivals_s, np.arange(0.0, arrivals_s[-1], 25.0))[0]  # of a day of 100 s
    assert per_quarter.mean() == pytest.approx(2_500, rel=0.03)
    assert per_quarter.max() == pytest.approx(2_500 * (1.0 + 0.5 * np.sqrt(8.0) / np.pi), rel=0.07)


def test_two_runs_are_in_opposite_spells_throughout_as_often_as_the_chance_says() -> None:
    spells, rng = Spells(500, 300, 1.5), np.random.default_rng(1)
    runs = [spells.levels(400, rng) for _ in range(4_000)]
    opposite = [np.ptp(a) == np.ptp(b) == 0.0 and a[0] != b[0] for a, b in zip(runs[::2], runs[1::2], strict=True)]
    assert np.mean(opposite) == pytest.approx(spells.opposite_throughout(400), abs=0.02)


def test_a_closed_loop_never_has_more_requests_in_flight_than_users() -> None:
    process = replace(Engine(), users=20).at("", 0.5)
    rng = np.random.default_rng(1)
    run = process.run(process.work(5_000, rng), rng)
    ends_s = run.arrivals_s + run.e2e_ms / 1e3
    in_flight = [int(np.count_nonzero((run.arrivals_s <= t) & (ends_s > t + 1e-6))) for t in run.arrivals_s[::50]]
    assert max(in_flight) <= 20


@pytest.mark.parametrize("process", [*PROCESSES, *drawn(3), *SLOW_CHANGES], ids=lambda process: process.name)
def test_every_process_answers_every_request_and_a_seed_gives_the_same_run(process: Process) -> None:
    arrivals_s, ttft_ms = _run(process, 500)
    assert arrivals_s.shape == ttft_ms.shape == (500,)
    assert np.isfinite(ttft_ms).all()
    assert ttft_ms.min() > 0
    assert (np.diff(arrivals_s) >= 0).all() or "closed" in process.name
    assert np.array_equal(_run(process, 500)[1], ttft_ms)


def test_runs_of_one_schedule_share_it_and_differ_in_their_noise() -> None:
    process, rng = Engine().at("", 0.6), np.random.default_rng(1)
    work = process.work(1_000, rng)
    a, b = process.run(work, rng), process.run(work, rng)
    assert np.array_equal(a.arrivals_s, b.arrivals_s)
    assert not np.array_equal(a.ttft_ms, b.ttft_ms)
    assert np.corrcoef(a.e2e_ms, b.e2e_ms)[0, 1] > 0.9


def test_a_stall_evictions_and_chunks_lengthen_and_cached_prompts_shorten() -> None:
    engine = Engine(mean_input_tokens=400, prompt_token_s=5e-5)
    plain = engine.at("", 0.4)
    rng = np.random.default_rng(2)
    work = plain.work(3_000, rng)

    def mean_ttft_ms(varied: Engine) -> float:
        changed = replace(work, demand=np.full(work.demand.size, 0.1)) if varied.cached_share else work
        return float(varied.at("", 0.4).run(changed, np.random.default_rng(3)).ttft_ms.mean())

    usual = mean_ttft_ms(engine)
    assert mean_ttft_ms(replace(engine, stall_every_s=5.0, stall_s=0.5)) > 1.1 * usual
    assert mean_ttft_ms(replace(engine, cache_tokens=5_000)) > 1.1 * usual
    assert mean_ttft_ms(replace(engine, prompt_tokens_a_step=64)) > 1.1 * usual
    assert mean_ttft_ms(replace(engine, cached_share=1.0)) < 0.9 * usual


def test_capacity_counts_sequences_that_are_computed_again() -> None:
    """Below it the queue does not grow, above it it does; a cache for fewer sequences than there are slots evicts some."""
    engine = Engine(slots=53, noise=0.25, mean_output_tokens=174, mean_input_tokens=253, cache_tokens=16_000)
    assert engine.capacity_per_s < 0.95 * replace(engine, cache_tokens=1 << 30, slots=47).capacity_per_s

    def growth(load: float) -> float:
        times_ms = _run(replace(engine.at("", load), settle=0), 20_000)[1]
        return float(times_ms[15_000:].mean() / times_ms[5_000:10_000].mean())

    assert growth(0.8) < 1.5
    assert growth(1.1) > 1.5


def test_acceptances_of_speculated_tokens_do_not_move_together() -> None:
    """In a full engine, tokens per step are as variable as independent acceptances make them, for hundreds of steps."""
    engine = Engine(slots=40, noise=0.0, speculated=4, mean_output_tokens=400, mean_input_tokens=10, prompt_token_s=0.0)
    rng = np.random.default_rng(5)
    ends_s = np.sort(engine.latencies(engine.work_at(np.zeros(8_000), rng), rng).e2e_ms)[800:7_200] / 1e3
    counts = np.histogram(ends_s, 40)[0]  # in parts of a few hundred steps
    assert counts.var() / counts.mean() < 2.0
