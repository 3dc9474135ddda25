"""A server of known constants, fitted from its engine's step log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.step_log import LoggedSteps, StepLogFileError, opened_step_log
from benchmarks.logging_engine import LoggedRun, Row, logged_run
from simulator.arrays import BoolArray
from simulator.errors import SimulatorError
from simulator.fit import doubts, fit, fit_engine
from simulator.logged import logged_steps, unknown_context
from simulator.observed import EngineTimes, Observed
from simulator.server import Admission, Order, Server, StepLaw
from simulator.step_law import FittedLaw
from simulator.steps import Steps, recover_steps
from simulator.structure import structure_of
from tests.simulator.known import SERVER, poisson

_WORK = (
    (0, 0, 1, 300),
    (0, 0, 6, 1_500),
    (60, 3_600, 3, 700),
    (120, 14_400, 4, 1_000),
)  # prefill, with context, sequences, context
_SILENT: Callable[[str], None] = lambda line: None  # noqa: E731


def _quiet(law: StepLaw, admission: Admission) -> Server:
    return replace(SERVER, law=law, admission=admission, noise=(0.0,))


def _runs(server: Server, requests: int = 300, rates: Sequence[float] = (15, 30)) -> list[LoggedRun]:
    return [logged_run(server, poisson(rate, requests, seed), seed, f"at {rate}") for seed, rate in enumerate(rates, start=1)]


def _steps(runs: Sequence[LoggedRun], path: Path) -> tuple[Steps, ...]:
    for run in runs:
        path = run.write(path.with_name(f"{run.observed.name}.csv"))
    return logged_steps([run.observed for run in runs], [path.with_name(f"{run.observed.name}.csv") for run in runs])


def _times(run: LoggedRun) -> EngineTimes:
    assert run.observed.by_engine is not None
    return run.observed.by_engine


def _width(law: FittedLaw, term: str) -> float:
    low, high = np.percentile(law.draws[:, law.terms.index(term)], (2.5, 97.5))
    return float(high - low)


@settings(max_examples=12)
@given(
    step_ms=st.floats(2.0, 20.0),
    prefill_us=st.floats(5.0, 60.0),
    sequence_us=st.floats(20.0, 200.0),
    context_ns=st.one_of(st.just(0.0), st.floats(50.0, 200.0)),
    admission=st.sampled_from(
        [Admission(), Admission(token_budget=128), Admission(max_sequences=6), Admission(order=Order.PREFILL_FIRST)]
    ),
)
def test_a_log_of_known_constants_gives_them_back(
    tmp_path_factory: pytest.TempPathFactory,
    step_ms: float,
    prefill_us: float,
    sequence_us: float,
    context_ns: float,
    admission: Admission,
) -> None:
    """Also the cost of a prompt's context, where prompts are cut, and the budget that cuts them."""
    law = StepLaw(
        step=step_ms * 1e-3, prefill=prefill_us * 1e-6, sequence=sequence_us * 1e-6, prefill_context=context_ns * 1e-9
    )
    noise = np.random.default_rng(2).standard_normal(2_000) * 2e-3 * law.step
    server = replace(SERVER, law=law, admission=admission, noise=tuple((noise - noise.mean()).tolist()))
    capacity = 1.0 / (30 * law.step / 6 + 250 * law.prefill)
    run = logged_run(server, poisson(0.6 * capacity, 200, 3), 3, "run")
    steps = _steps([run], tmp_path_factory.mktemp("logs") / "log.csv")
    structure, found = fit_engine(steps, ["run"], 0)
    fitted = found.law(found.coefficients)
    assert [fitted.duration(*work) for work in _WORK] == pytest.approx([law.duration(*work) for work in _WORK], rel=0.01)
    assert structure.admission.order is admission.order
    cut = any(steps[0].cuts_prompt)  # type: ignore[arg-type]
    assert structure.admission.token_budget == (admission.token_budget if cut else None)


@pytest.mark.parametrize("admission", [Admission(), Admission(token_budget=128), Admission(order=Order.PREFILL_FIRST)])
def test_the_rows_of_a_log_are_the_steps(tmp_path: Path, admission: Admission) -> None:
    """The context of the law is not in the log: it follows from the requests."""
    law = StepLaw(step=6e-3, prefill=20e-6, sequence=40e-6, context=0.2e-6, prefill_context=60e-9, prefill_step=1e-3)
    [steps] = _steps(_runs(_quiet(law, admission), 200, (25,)), tmp_path / "log.csv")
    assert steps.is_whole.all()
    assert steps.is_busy.mean() > 0.5
    rows = zip(
        steps.prefill.tolist(), steps.prompt_context.tolist(), steps.sequences.tolist(), steps.context.tolist(), strict=True
    )
    expected = [law.duration(*row) for row in rows]  # type: ignore[arg-type]
    took = np.diff(steps.at_s)
    busy = steps.is_busy[1:]
    assert took[busy] == pytest.approx(np.array(expected)[1:][busy], abs=5e-9)
    assert (took[~busy] > np.array(expected)[1:][~busy] - 5e-9).all()


def test_the_constants_are_narrower_than_from_the_arrivals_of_tokens(tmp_path: Path) -> None:
    """A real client sees tokens some tenths of a ms late, by chance."""
    runs = _runs(SERVER, 400, (25, 50))
    late = [run.observed.times_s + np.random.default_rng(5).exponential(0.2e-3, len(run.observed.times_s)) for run in runs]
    seen = [replace(run.observed, times_s=times) for run, times in zip(runs, late, strict=True)]
    names = [run.observed.name for run in runs]
    _, by_log = fit_engine(_steps(runs, tmp_path / "log.csv"), names, 0)
    _, by_tokens = fit_engine([recover_steps(each) for each in seen], names, 0)
    assert by_log.rows > by_tokens.rows
    for term in ("step", "prefill", "sequence"):
        assert _width(by_log, term) < _width(by_tokens, term)
        true = getattr(SERVER.law, term)
        assert abs(by_log.coefficients[by_log.terms.index(term)] / true - 1) < 0.02


def test_a_batch_limit_is_that_of_the_steps(tmp_path: Path) -> None:
    server = replace(SERVER, admission=Admission(max_sequences=4))
    structure = structure_of(_steps(_runs(server, 300, (40,)), tmp_path / "log.csv"))
    assert structure.admission.max_sequences == 4


def test_a_batch_limit_shows_where_full_steps_often_had_no_request_waiting(tmp_path: Path) -> None:
    server = replace(SERVER, admission=Admission(max_sequences=8))
    steps = _steps(_runs(server, 300, (35, 45)), tmp_path / "log.csv")
    waiting = np.concatenate([each.waiting[each.sequences == 8] > 0 for each in steps])
    assert 0.7 < waiting.mean() < 0.9
    assert structure_of(steps).admission.max_sequences == 8


@pytest.mark.parametrize(
    "beside", [{"order": Order.PREFILL_FIRST}, {"token_budget": 64}, {"token_budget": 128}, {"token_budget": 2_048}]
)
def test_a_batch_limit_shows_beside_steps_that_had_no_room_for_a_prompt(beside: dict[str, Any], tmp_path: Path) -> None:
    """Requests wait beside steps of fewer sequences, too: those with a cut prompt, and prompts that are computed alone."""
    server = replace(SERVER, admission=Admission(max_sequences=8, **beside))
    steps = _steps(_runs(server, 300, (35, 45)), tmp_path / "log.csv")
    assert structure_of(steps).admission.max_sequences == 8


def test_a_token_budget_that_made_requests_wait_is_no_batch_limit(tmp_path: Path) -> None:
    server = replace(SERVER, admission=Admission(token_budget=64))
    steps = _steps(_runs(server, 300, (15, 20)), tmp_path / "log.csv")
    assert np.concatenate([each.waiting > 0 for each in steps]).mean() > 0.1
    assert structure_of(steps).admission.max_sequences is None


def test_requests_that_wait_beside_steps_of_any_size_are_no_batch_limit(tmp_path: Path) -> None:
    """They wait for something else, such as room in the KV cache."""
    steps = [
        replace(each, waiting=(np.arange(len(each)) % 3 == 0).astype(float))
        for each in _steps(_runs(SERVER, 300, (35, 60)), tmp_path / "log.csv")
    ]
    assert structure_of(steps).admission.max_sequences is None


def test_a_model_says_that_its_steps_are_those_of_a_log(tmp_path: Path) -> None:
    runs = _runs(SERVER, 300, (25, 45))
    model = fit([run.observed for run in runs], 0, _SILENT, _steps(runs, tmp_path / "log.csv"))
    assert [source.logged for source in model.sources] == [True, True]
    assert model.server.law.step == pytest.approx(SERVER.law.step, rel=0.02)


def test_pauses_are_in_the_noise_of_the_simulation(tmp_path: Path) -> None:
    """They are no mistakes of recovering steps, so that the mean step is that of the log."""
    noise = np.array(SERVER.noise)
    noise[::200] = 60e-3
    server = replace(SERVER, noise=tuple((noise - np.median(noise)).tolist()))
    runs = _runs(server, 400, (15, 25))
    steps = _steps(runs, tmp_path / "log.csv")
    _, law = fit_engine(steps, ["one", "another"], 0)
    assert law.coefficients[0] == pytest.approx(server.law.step, rel=0.03)
    assert law.residuals_s.max() > 50e-3
    assert law.residuals_s.mean() == pytest.approx(60e-3 / 200, rel=0.4)
    (said,) = (finding for finding in doubts([], law) if "far from the law" in finding)
    assert "which the simulation has as noise" in said


# ---- what a log does not know


def _without(rows: Sequence[Row], each: int) -> list[Row]:
    """The rows, of which every n-th has unknown contents."""
    return [(*row[:5], None, None, None, None, row[9]) if k % each == 0 else row for k, row in enumerate(rows)]


def test_rows_with_unknown_cells_are_left_out(tmp_path: Path) -> None:
    run = logged_run(_quiet(SERVER.law, Admission()), poisson(20, 200, 1), 1, "run")
    path = run.write(tmp_path / "log.csv", _without(run.rows, 3))
    [steps] = logged_steps([run.observed], [path])
    assert not steps.is_whole[::3].any()
    _, law = fit_engine([steps], ["run"], 0)
    assert law.coefficients == pytest.approx([SERVER.law.step, SERVER.law.prefill, SERVER.law.sequence], rel=1e-3)


def test_the_context_of_prompts_of_others_is_not_guessed(tmp_path: Path) -> None:
    """The run has half of the requests of the log: of the steps with others' prompts the contexts are unknown."""
    law = replace(SERVER.law, prefill_context=60e-9)
    run = logged_run(_quiet(law, Admission(token_budget=128)), poisson(20, 300, 1), 1, "run")
    times = run.observed.by_engine
    assert times is not None
    path = run.write(tmp_path / "log.csv")

    def own(share: float) -> Steps:
        is_own = np.random.default_rng(1).random(300) < share
        hidden = replace(
            times, first_ns=np.where(is_own, times.first_ns, np.nan), last_ns=np.where(is_own, times.last_ns, np.nan)
        )
        [steps] = logged_steps([replace(run.observed, by_engine=hidden)], [path])
        return steps

    most, few = own(0.8), own(0.2)
    assert most.context.any()
    assert unknown_context([most]) == []
    assert 0.5 < most.is_whole[most.prefill > 0].mean() < 1.0
    _, fitted = fit_engine([most], ["run"], 0)
    assert fitted.law(fitted.coefficients).prefill_context == pytest.approx(60e-9, rel=0.01)
    assert not few.context.any()
    assert few.is_whole.all()
    [said] = unknown_context([few])
    assert "no cost of a context" in said


def _of_own(run: LoggedRun, is_own: BoolArray) -> Observed:
    """The run of a client that sent only some of the requests."""
    times = _times(run)
    first_ns, last_ns = (np.where(is_own, each, np.nan) for each in (times.first_ns, times.last_ns))
    return replace(run.observed, by_engine=replace(times, first_ns=first_ns, last_ns=last_ns))


def test_a_chunk_of_another_s_prompt_is_not_that_of_the_next_own_one(tmp_path: Path) -> None:
    """The own prompts have a long part in the cache, so that a chunk has another context as theirs than as another's."""
    law = replace(SERVER.law, prefill_context=60e-9)
    run = logged_run(_quiet(law, Admission(token_budget=128)), poisson(20, 300, 1), 1, "run")
    path = run.write(tmp_path / "log.csv")
    is_own = np.random.default_rng(1).random(300) < 0.8
    cached = replace(run.observed, input_tokens=run.observed.input_tokens + np.where(is_own, 2_000, 0))
    [true] = logged_steps([cached], [path])
    [seen] = logged_steps([_of_own(replace(run, observed=cached), is_own)], [path])
    begin = len(true) - len(seen) - int(np.argmin(_places(true, seen)[::-1]))
    whole = slice(begin, begin + len(seen))
    assert true.prefill[whole].tolist() == seen.prefill.tolist()
    known = seen.is_whole & (seen.prefill > 0)
    assert np.count_nonzero(known) > 200
    assert seen.prompt_context[known].tolist() == true.prompt_context[whole][known].tolist()


def _places(true: Steps, seen: Steps) -> list[bool]:
    """Whether the steps are others than those from each place on."""
    count = len(seen)
    return [true.prefill[k : k + count].tolist() != seen.prefill.tolist() for k in range(len(true) - count + 1)]


def test_the_step_after_a_cut_prompt_did_not_wait(tmp_path: Path) -> None:
    [steps] = _steps(_runs(_quiet(SERVER.law, Admission(token_budget=64)), 100, (1,)), tmp_path / "log.csv")
    assert steps.cuts_prompt is not None
    after_cut = np.flatnonzero(steps.cuts_prompt[:-1]) + 1
    assert after_cut.size > 100
    assert steps.is_busy[after_cut].all()
    assert np.diff(steps.at_s)[after_cut - 1].max() < 0.01


def test_passes_of_single_requests_are_no_time_of_steps(tmp_path: Path) -> None:
    """From the middle of the run on a pass of 3 ms follows each step that another one followed at once."""
    run = logged_run(_quiet(SERVER.law, Admission()), poisson(20, 300, 1), 1, "run")
    rows: list[Row] = []
    late_ns, shifts, ends = 0, [], []
    for k, row in enumerate(run.rows):
        start, took = int(row[0] or 0), int(row[1] or 0)
        rows.append((start + late_ns, *row[1:]))
        shifts.append(late_ns)
        ends.append(start + took)
        goes_on = k + 1 < len(run.rows) and int(run.rows[k + 1][0] or 0) - ends[-1] < 10_000
        if goes_on and k > len(run.rows) / 2:
            rows.append((ends[-1] + late_ns, 3_000_000, "single", 1, 0, None, None, None, None, None))
            late_ns += 3_000_000
    times = _times(run)
    first_ns, last_ns = (at + np.array(shifts)[np.searchsorted(ends, at - 1_000)] for at in (times.first_ns, times.last_ns))
    observed = replace(run.observed, by_engine=replace(times, first_ns=first_ns, last_ns=last_ns))
    [steps] = logged_steps([observed], [run.write(tmp_path / "log.csv", rows)])
    _, law = fit_engine([steps], ["run"], 0)
    assert law.coefficients[:3] == pytest.approx([SERVER.law.step, SERVER.law.prefill, SERVER.law.sequence], rel=1e-3)
    assert abs(law.residuals_s).max() < 1e-6


def test_requests_in_single_passes_are_in_the_log(tmp_path: Path) -> None:
    """Half of the requests, those that came later, took a pass for each token."""
    run = logged_run(SERVER, poisson(30, 100, 1), 1, "run")
    times = _times(run)
    pass_ns, later_ns = 2_000_000, int(times.last_ns.max()) + 10**9
    starts = later_ns + pass_ns * np.arange(200)
    rows: list[Row] = [(int(at), pass_ns, "single", 1, 0, None, None, None, None, None) for at in starts]
    last = run.rows[-1]
    end: Row = (int(starts[-1]) + pass_ns, 1_000, *last[2:])
    both = _joined(
        run.observed, EngineTimes(times.arrival_ns + 10**9, starts[:100] + 1.0 * pass_ns, starts[100:] + 1.0 * pass_ns)
    )
    path = run.write(tmp_path / "log.csv", [*run.rows, *rows, end])
    [steps] = logged_steps([both], [path])
    assert steps.not_logged == 0


def _joined(observed: Observed, others: EngineTimes) -> Observed:
    """The run of as many requests again, which the engine had at the ``others`` times."""
    times = observed.by_engine
    assert times is not None
    arrival_ns, first_ns, last_ns = (
        np.concatenate([getattr(times, name), getattr(others, name)]) for name in ("arrival_ns", "first_ns", "last_ns")
    )
    return replace(
        observed,
        by_engine=replace(times, arrival_ns=arrival_ns, first_ns=first_ns, last_ns=last_ns),
        input_tokens=np.tile(observed.input_tokens, 2),
        prefill_tokens=np.tile(observed.prefill_tokens, 2),
    )


def test_the_log_of_one_of_two_engines_is_refused(tmp_path: Path) -> None:
    one, other = (logged_run(SERVER, poisson(5, 100, seed), seed, "run") for seed in (1, 2))
    with pytest.raises(
        StepLogFileError,
        match=r"^--step_log .*log.csv: the log has the tokens of 100 of the \d+ requests of the run in its time: it is the log "
        r"of one of several engines, or of another; give that of the one engine which served the run \(run\)$",
    ):
        logged_steps([_joined(one.observed, _times(other))], [one.write(tmp_path / "log.csv")])


def _moved(run: LoggedRun, is_moved: BoolArray) -> Observed:
    """The run whose moved requests have tokens at no end of a step, the first and the last one almost as far apart as any."""
    times = _times(run)
    first_ns = np.where(is_moved, np.nanmin(times.first_ns) + 500_000, times.first_ns)
    last_ns = np.where(is_moved, np.nanmax(times.last_ns) - 500_000, times.last_ns)
    return replace(run.observed, by_engine=replace(times, first_ns=first_ns, last_ns=last_ns))


def test_a_few_requests_that_are_not_in_the_log_are_said(tmp_path: Path) -> None:
    """Up to 5 %; during their decode the engine of the log may wait."""
    runs = _runs(SERVER, 250, (3, 20))
    logs = [run.write(tmp_path / f"{run.observed.name}.csv") for run in runs]
    is_moved = np.arange(250) % 25 == 12
    moved = [_moved(run, is_moved) for run in runs]
    steps = logged_steps(moved, logs)
    assert [each.not_logged for each in steps] == [10, 10]
    assert 0.5 < steps[0].is_busy.mean() < 0.99
    assert [each.is_busy.tolist() for each in steps] == [
        each.is_busy.tolist() for each in logged_steps([_of_own(run, ~is_moved) for run in runs], logs)
    ]
    said = [
        finding for finding in fit(moved, 0, _SILENT, steps).findings if "does not have the tokens of 10 requests" in finding
    ]
    assert [finding.partition(":")[0] for finding in said] == ["at 3", "at 20"]
    with pytest.raises(StepLogFileError, match="the log has the tokens of 225 of the 250 requests of the run in its time"):
        logged_steps([_moved(runs[0], np.arange(250) % 10 == 2)], logs[:1])


def test_too_few_steps_are_one_sentence(tmp_path: Path) -> None:
    run = logged_run(SERVER, poisson(30, 5, 1, output=4), 1, "short")
    with pytest.raises(SimulatorError, match=r"^short: only \d+ steps of the log have known contents .* and a fit needs 100"):
        fit_engine(_steps([run], tmp_path / "log.csv"), ["short"], 0)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (slice(0, 0), "the log has no steps"),
        (slice(0, 200), r"the log ends \d+\.\d s before the run's last token"),
        (slice(200, None), r"the log begins \d+\.\d s after the run's first token"),
    ],
)
def test_a_log_that_does_not_cover_the_run_is_refused(tmp_path: Path, rows: slice, problem: str) -> None:
    run = logged_run(SERVER, poisson(30, 100, 1), 1, "run")
    path = run.write(tmp_path / "log.csv", list(run.rows)[rows])
    with pytest.raises(StepLogFileError, match=f"^--step_log .*log.csv: {problem} \\(run\\)$"):
        logged_steps([run.observed], [path])
    damaged = tmp_path / "log.csv.cut"
    damaged.write_text('#{"step_log": 1\n')
    with pytest.raises(
        StepLogFileError,
        match="^--step_log: none of the 2 logs has the steps of run; give that of its server, whole. "
        rf"{path}: {problem}. {damaged}: the log is damaged: the head of a start cannot be read$",
    ):
        logged_steps([run.observed], [path, damaged])


def test_each_log_is_read_once_and_a_damaged_one_is_none_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def opened(path: Path) -> Callable[[int | None], LoggedSteps]:
        read.append(path)
        return opened_step_log(path)

    monkeypatch.setattr("simulator.logged.opened_step_log", opened)
    runs = _runs(SERVER, 100, (25, 50))
    logs = [run.write(tmp_path / f"{run.observed.name}.csv") for run in runs]
    damaged = tmp_path / "damaged.csv"
    damaged.write_text(logs[0].read_text()[:4_000] + "what,\n" + logs[0].read_text()[4_000:])
    found = logged_steps([run.observed for run in runs], [damaged, *logs])
    assert [len(steps) for steps in found] == [len(run.rows) for run in runs]
    assert read == [damaged, *logs]


def test_a_log_of_another_engine_or_boot_is_refused(tmp_path: Path) -> None:
    run = logged_run(SERVER, poisson(30, 100, 1), 1, "run")
    moved = [(int(row[0] or 0) + 500_000, *row[1:]) for row in run.rows]
    with pytest.raises(StepLogFileError, match="it is the log of another engine"):
        logged_steps([run.observed], [run.write(tmp_path / "other.csv", moved)])
    later = [(int(row[0] or 0) + 10**15, *row[1:]) for row in run.rows]
    with pytest.raises(StepLogFileError, match=r"the log begins .* after the run's last token"):
        logged_steps([run.observed], [run.write(tmp_path / "boot.csv", later)])


def test_a_run_without_the_engine_s_times_is_refused(tmp_path: Path) -> None:
    run = logged_run(SERVER, poisson(30, 100, 1), 1, "run")
    path = run.write(tmp_path / "log.csv")
    with pytest.raises(
        StepLogFileError, match=r"log.csv: run has no times of its requests .* measure it with --server_timings"
    ):
        logged_steps([replace(run.observed, by_engine=None)], [path])


def test_one_log_has_the_steps_of_several_runs(tmp_path: Path) -> None:
    """A server outlives a run: its log covers those one after the other."""
    first, second = _runs(SERVER, 100, (25, 50))
    pause_ns = int(first.rows[-1][0] or 0) - int(second.rows[0][0] or 0) + 10**10
    times = second.observed.by_engine
    assert times is not None
    moved = replace(
        times, arrival_ns=times.arrival_ns + pause_ns, first_ns=times.first_ns + pause_ns, last_ns=times.last_ns + pause_ns
    )
    path = first.write(tmp_path / "log.csv")
    second.write(path, [(int(row[0] or 0) + pause_ns, *row[1:]) for row in second.rows])
    found = logged_steps([first.observed, replace(second.observed, by_engine=moved)], [path])
    assert [len(steps) for steps in found] == [len(first.rows), len(second.rows)]
