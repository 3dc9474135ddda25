"""The simulation of a search's probes by a fitted model: the schedules that were sent, and others of their load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from bench_cli import run
from bench_cli.bench import CONTEXT_SETTINGS, bench
from bench_cli.experiments import model_control
from bench_cli.experiments.model_control import ModelControl, highest_held
from bench_errors import ExitStatus
from bench_records.search import PlannedProbe, PlannedTier, Search, SearchFolder
from reports.capacity.reading import read_probe
from simulator.model import Extent, Parameter
from tests.bench_cli.experiments.searches import SEARCH
from tests.bench_cli.test_simulate_run import model_file
from tests.simulator.known import SERVER

_VERB = ("token_norm_dist", "--isl", "normal:mean=150,stdev=60,min=20,max=400", "--osl", "9")
_SEARCH = replace(SEARCH, tiers=(PlannedTier(None, ("p90_ttft<=25ms",)), PlannedTier("e2e", ("p50_e2e<=75ms",))))
_PROBE = PlannedProbe(60.0, 160, 3, "001-60")


def _control(tmp_path: Path, *options: str, search: Search = _SEARCH) -> ModelControl:
    folder = SearchFolder(tmp_path)
    tmp_path.mkdir(exist_ok=True)
    model_file(folder.model)
    return model_control.model_control(
        click.Context(bench, **CONTEXT_SETTINGS), folder, search, (*_VERB, *options), folder.model
    )


def test_a_probe_is_simulated_with_the_requests_that_it_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured here is a simulation by the same model, so both have the same requests beyond the limits."""
    monkeypatch.setattr(model_control, "_FEWEST", 20)
    monkeypatch.setattr(model_control, "_MOST", 20)
    control = _control(tmp_path)
    load = ["--request_rate", "60", "--num_requests", "160", "--seed", "3"]
    measured = ["simulate", "run", "--model", str(control.folder.model), "--draws", "0", *_VERB, *load]
    assert run([*measured, "--run_dir", str(tmp_path / _PROBE.folder)]) == ExitStatus.VALID
    controls = control.controls(_SEARCH, _PROBE)
    assert len(controls) == 2
    for each in controls:
        assert each.measured == each.simulated
        assert 0 < sum(each.measured) < 160
        assert sum(each.measured) / 160 <= each.share <= sum(each.measured) / 90  # without the ramp
        assert each.expected == pytest.approx(each.share, abs=0.3)
        assert each.expected != each.share
    assert control.controls(_SEARCH, _PROBE) == controls


def test_a_share_beyond_a_limit_on_tpot_is_that_of_the_answers_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About half of the answers have one token, and a limit on TPOT counts the others in a probe: a share of all requests would
    take off half of what the model explains, and claim the whole.
    """
    monkeypatch.setattr(model_control, "_FEWEST", 5)
    monkeypatch.setattr(model_control, "_MOST", 5)
    search = replace(_SEARCH, tiers=(PlannedTier(None, ("p50_tpot<=1ms",)),))
    control = _control(tmp_path, "--osl", "uniform:min=1,max=2", search=search)
    verb = (*_VERB, "--osl", "uniform:min=1,max=2", "--request_rate", "60", "--num_requests", "160", "--seed", "3")
    folder = tmp_path / _PROBE.folder
    measured = ["simulate", "run", "--model", str(control.folder.model), "--draws", "0", *verb, "--run_dir", str(folder)]
    assert run(measured) == ExitStatus.VALID
    (found,) = control.controls(search, _PROBE)
    assert sum(found.measured) < 120  # of 160
    assert found.share == found.expected == 1.0  # every TPOT is longer than 1 ms
    (violations,) = read_probe(control.folder, search, _PROBE).run.probe.violations
    assert violations.share == 1.0


def test_other_schedules_have_arrivals_and_lengths_of_their_own(tmp_path: Path) -> None:
    control = _control(tmp_path)
    workload = model_control._workload(control.draw("60", 100, 3))
    one, again, other = (workload.draw(100, seed) for seed in (3, 3, 4))
    sent = control.draw("60", 100, 3).traffic
    for name in ("arrivals_s", "input_tokens", "output_tokens"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
        assert np.array_equal(getattr(one, name), getattr(sent, name))
    assert not np.array_equal(one.arrivals_s, other.arrivals_s)
    assert not np.array_equal(one.input_tokens, other.input_tokens)


def test_the_first_load_is_the_capacity_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_control, "_STARTING", 1)
    monkeypatch.setattr(model_control, "_STARTING_REQUESTS", 200)
    slow, fast = (_control(tmp_path / name, search=search).first_load() for name, search in _both())
    assert slow is not None
    assert fast is not None
    assert slow < fast


@pytest.mark.parametrize(("fitted_up_to", "is_said"), [(5.0, True), (1000.0, False)])
def test_first_load_beyond_the_fitted_runs_is_said(
    fitted_up_to: float, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_control, "_STARTING", 1)
    monkeypatch.setattr(model_control, "_STARTING_REQUESTS", 200)
    control = _control(tmp_path)
    model = replace(control.simulated.model, hull=(Extent("requests a second", fitted_up_to),))
    found = replace(control, simulated=replace(control.simulated, model=model)).first_load()
    assert found is not None
    said = " ".join(capsys.readouterr().err.split())
    assert (f"{found:g} requests/s lies beyond what the model was fitted to: " in said) is is_said
    assert ("requests a second, fitted up to 5. The answer is as sure, but may need more requests." in said) is is_said


def _both() -> tuple[tuple[str, Search], ...]:
    limits = (("near", "p90_ttft<=20ms"), ("far", "p90_ttft<=40ms"))
    return tuple((name, replace(SEARCH, tiers=(PlannedTier(None, (limit,)),))) for name, limit in limits)


@pytest.mark.parametrize("start", [1.0, 30.0, 45.0, 900.0])
def test_the_highest_load_that_holds_is_found_from_any_start(start: float) -> None:
    found = highest_held(lambda load: load <= 40.0, start)
    assert found is not None
    assert 39.0 <= found <= 40.0


@pytest.mark.parametrize("holds", [True, False])
def test_no_load_is_found_where_all_or_none_holds(holds: bool) -> None:
    assert highest_held(lambda load: holds, 10.0) is None


@pytest.mark.parametrize(
    "options", [("--arrival", "constant"), ("--max_concurrency", "4"), ("--probe_rate", "1")], ids=["even", "ceiling", "probes"]
)
def test_traffic_that_no_seed_draws_alone_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="a model explains random arrivals at a rate that stays"):
        _control(tmp_path, *options)


@pytest.mark.parametrize(
    ("limit", "message"),
    [("failed_share<=1%", "no request fails in a simulation; limit latencies"), ("p99_itl<=50ms", "a simulation is judged by")],
)
def test_a_dry_run_refuses_limits_that_no_simulation_shows(
    limit: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model_file(tmp_path / "m.json")
    command = ["capacity", "--slo", limit, "--model", str(tmp_path / "m.json"), "--dry_run", *_VERB]
    assert run(command) == ExitStatus.USAGE
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_checks_the_model_and_keeps_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model_file(tmp_path / "m.json")
    (tmp_path / "none.json").write_text("{}")
    command = ["capacity", "--slo", "p99_ttft<=50ms", "--dry_run", "--model"]
    assert run([*command, "none.json", *_VERB]) == ExitStatus.USAGE
    assert "none.json is no model of 'bench simulate fit'" in " ".join(capsys.readouterr().err.split())
    assert run([*command, "m.json", *_VERB, "--arrival", "constant"]) == ExitStatus.USAGE
    assert "a model explains random arrivals at a rate that stays" in " ".join(capsys.readouterr().err.split())
    assert run([*command, "m.json", *_VERB]) == ExitStatus.VALID
    assert "the model is simulated" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.json", "none.json"]


def test_constants_that_were_edited_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    step = Parameter("step", SERVER.law.step, 0.9 * SERVER.law.step, 1.1 * SERVER.law.step, identified=True)
    command = ["capacity", "--slo", "p99_ttft<=50ms", "--dry_run", "--model"]
    fitted = model_file(tmp_path / "fitted.json", parameters=(step,))
    assert run([*command, str(fitted), *_VERB]) == ExitStatus.VALID
    assert "was edited" not in capsys.readouterr().err
    twice = replace(SERVER, law=replace(SERVER.law, step=2 * SERVER.law.step))
    edited = model_file(tmp_path / "edited.json", parameters=(step,), server=twice)
    assert run([*command, str(edited), *_VERB]) == ExitStatus.VALID
    shown = capsys.readouterr().err
    assert f"edited.json was edited: server.law.step of {2 * SERVER.law.step:g} s in its file, which was fitted as" in shown
    assert shown.count("was edited") == 1


def test_without_a_compiler_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_control, "can_compile", lambda: False)
    with pytest.raises(click.UsageError, match="needs numba"):
        _control(tmp_path)
