"""``bench simulate`` from files to texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench_cli import run
from bench_cli.simulate.validated import validation_text
from bench_errors import ExitStatus
from bench_records.table import read_table
from benchmarks.logging_engine import logged_run
from simulator.model import read_model
from simulator.observed import Observed, read_observed
from simulator.recorded import simulated_run
from simulator.validation import Prediction, Validation
from tests.bench_cli.test_simulate_run import model_file
from tests.reports.manifests import run_manifest
from tests.simulator.known import SERVER, poisson, write_run


def _run(folder: Path, rate: float, seed: int) -> Path:
    return write_run(simulated_run(SERVER, poisson(rate, 400, seed), seed, "run"), folder / f"at-{rate:g}.parquet")


def _unstreamed(observed: Observed) -> Observed:
    return replace(
        observed,
        starts=np.arange(len(observed) + 1),
        times_s=observed.last_s,
        counts=observed.output_tokens,
    )


def test_a_run_is_fitted_and_another_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.json"
    assert (
        run(["simulate", "fit", str(_run(tmp_path, 25, 1)), str(_run(tmp_path, 50, 2)), "-o", str(model)]) == ExitStatus.VALID
    )
    fitted = capsys.readouterr().out
    assert fitted.startswith("Fitted to at-25.parquet (400 requests, ")
    assert "a prompt token" in fitted
    assert "nothing is known beyond" in fitted
    assert fitted.endswith(f"Written: {model}\n")
    assert "one run shows neither" not in fitted
    runs = [str(_run(tmp_path, rate, seed)) for rate, seed in ((40, 3), (120, 4))]
    html, json_file = tmp_path / "page.html", tmp_path / "validation.json"
    validate = ["simulate", "validate", "--model", str(model), "--draws", "2", "--html", str(html), "--json", str(json_file)]
    assert run([*validate, *runs]) == ExitStatus.VALID
    text = capsys.readouterr().out
    assert text.startswith("at-120.parquet lies beyond what was fitted: ")
    assert "at-40.parquet: 400 requests" in text
    assert "p99 TTFT" in text
    assert "1 run within what was fitted" in text
    assert text.endswith(f"\n\nWritten: {html}\n\nWritten: {json_file}\n")
    document = json.loads(json_file.read_text())
    assert [each["name"] for each in document["runs"] if each["beyond"]] == ["at-120.parquet"]
    assert document["sentences"]["verdict"] in " ".join(text.split())
    page = html.read_text()
    for name in ("ttft", "tpot", "e2e", "errors"):
        assert f'data-picture="{name}"' in page
    assert "at-40.parquet: 400 requests" in page
    assert "The predicted runs: at-40.parquet: its findings are not known, since it is a table of requests alone." in page


def test_a_run_is_fitted_with_the_log_of_its_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_of_engine = logged_run(SERVER, poisson(30, 300, 1), 1, "run")
    table, log = write_run(run_of_engine.observed, tmp_path / "at-30.parquet"), run_of_engine.write(tmp_path / "steps.csv")
    fit, model = ["simulate", "fit", str(table)], tmp_path / "model.json"
    assert run([*fit, "--step_log", str(log), "-o", str(model)]) == ExitStatus.VALID
    fitted = capsys.readouterr().out
    assert fitted.startswith(f"Fitted to at-30.parquet (300 requests, {len(run_of_engine.rows):,} steps of the step log).")
    assert "of simulated servers with a step log they held" in fitted
    assert read_model(model).sources[0].logged
    damaged, half = tmp_path / "damaged.csv", run_of_engine.write(tmp_path / "half.csv", list(run_of_engine.rows)[:900])
    damaged.write_text(log.read_text()[:4_000] + "what,\n" + log.read_text()[4_000:])
    for arguments, reason in (
        (["--step_log", str(damaged)], f"--step_log {damaged}: a row is damaged"),
        (["--step_log", str(half)], f"--step_log {half}: the log ends"),
        (["--step_log", str(half), "--step_log", str(half)], "--step_log: none of the 2 logs has the steps of at-30.parquet"),
        (["--step_log", str(table)], "the file is no step log"),
        (["--step_log", str(tmp_path / "none.csv")], "'--step_log'"),
    ):
        assert run([*fit, *arguments, "-o", str(model)]) == ExitStatus.USAGE
        assert reason in capsys.readouterr().err


def test_a_run_that_was_not_measured_with_the_engine_s_times_has_no_step_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of_engine = logged_run(SERVER, poisson(30, 100, 1), 1, "run")
    table = write_run(replace(run_of_engine.observed, by_engine=None), tmp_path / "at-30.parquet")
    log = run_of_engine.write(tmp_path / "steps.csv")
    assert run(["simulate", "fit", str(table), "--step_log", str(log), "-o", str(tmp_path / "model.json")]) == ExitStatus.USAGE
    said = (
        f"--step_log {log}: at-30.parquet has no times of its requests by the engine, which find their steps; measure it with"
    )
    assert f"{said} --server_timings" in capsys.readouterr().err


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    seen = simulated_run(SERVER, poisson(30, 50, 1), 1, "run")
    read = read_observed(write_run(seen, tmp_path / "requests.parquet"))
    since = min(seen.sent_s)
    assert read.times_s == pytest.approx(seen.times_s - since, abs=1e-8)
    assert read.counts.tolist() == seen.counts.tolist()
    assert read.starts.tolist() == seen.starts.tolist()


def test_the_folder_of_a_run_is_read_as_its_table(tmp_path: Path) -> None:
    table = write_run(simulated_run(SERVER, poisson(30, 50, 1), 1, "run"), tmp_path / "requests.parquet")
    manifest = run_manifest()
    manifest["workload"]["repeated_prefix"] = {"unit": "tokens", "share": 0.25}
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    assert read_observed(tmp_path).times_s.tolist() == read_observed(table).times_s.tolist()
    assert read_observed(tmp_path).name == tmp_path.name
    assert read_observed(tmp_path).may_be_cached == 0.25
    assert read_observed(table).may_be_cached == 0.0


def test_what_sessions_repeat_is_not_known_where_the_run_does_not_say_it(tmp_path: Path) -> None:
    path = write_run(simulated_run(SERVER, poisson(30, 50, 1), 1, "run"), tmp_path / "requests.parquet")
    table = read_table(path)
    place = table.schema.get_field_index("session")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(["a"] * 50, pa.string())), path)
    manifest = run_manifest()
    manifest["workload"]["repeated_prefix"] = None
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    observed = read_observed(tmp_path)
    assert observed.may_be_cached is None
    manifest["workload"]["repeated_prefix"] = {"unit": "tokens", "share": 0.25}
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    assert read_observed(tmp_path).may_be_cached == 0.25


def test_a_fit_to_one_run_says_what_its_ranges_do_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.json"
    assert run(["simulate", "fit", str(_run(tmp_path, 50, 2)), "-o", str(model)]) == ExitStatus.VALID
    text = " ".join(capsys.readouterr().out.split())
    assert "Not known, or in doubt: - one run shows neither what another load adds nor how far the speed of the server" in text


@pytest.mark.parametrize("verb", [["fit", "-o", "model.json"], ["validate", "--model", "model.json"]], ids=["fit", "validate"])
def test_a_run_that_is_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]) -> None:
    """It would count as two: ranges would be narrower, and medians over runs others."""
    other, table = _run(tmp_path, 25, 1), _run(tmp_path, 50, 2)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "requests.parquet").write_bytes(table.read_bytes())
    for again in (folder, folder / "requests.parquet", tmp_path / "." / "run"):
        assert run(["simulate", *verb, str(folder), str(other), str(again)]) == ExitStatus.USAGE
        assert f"{again} is given twice, and would count as two runs" in " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_fitted_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    observed = simulated_run(SERVER, poisson(30, 50, 1), 1, "run")
    unstreamed = write_run(_unstreamed(observed), tmp_path / "unstreamed.parquet")
    one_token = replace(poisson(30, 50, 1), output_tokens=np.ones(50, np.int64))
    short = write_run(simulated_run(SERVER, one_token, 1, "run"), tmp_path / "short.parquet")
    garbage = tmp_path / "garbage.parquet"
    garbage.write_text("no table")
    for path, reason in (
        (unstreamed, "was not streamed: its answers came in one response each"),
        (short, "has answers of one token alone, which show no steps of the engine"),
        (garbage, "cannot be read"),
        (tmp_path, "is not a run folder"),
    ):
        assert run(["simulate", "fit", str(path), "-o", str(tmp_path / "model.json")]) == ExitStatus.USAGE
        error = capsys.readouterr().err.rstrip().splitlines()[-1]
        assert error.startswith("Error: ")
        assert reason in error


def test_the_number_of_servers_is_read_from_the_targets_of_the_requests(tmp_path: Path) -> None:
    path = _run(tmp_path, 30, 1)
    assert read_observed(path).servers == 1
    _set_targets(path, [0, 1] * 200)
    assert read_observed(path).servers == 2


def test_a_run_of_two_targets_is_validated_with_two_replicas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = tmp_path / "model.json", _run(tmp_path, 25, 1)
    assert run(["simulate", "fit", str(path), "-o", str(model)]) == ExitStatus.VALID
    _set_targets(path, [0, 1] * 200)
    validate = ["simulate", "validate", "--model", str(model), "--draws", "0", str(path)]
    assert run(validate) == ExitStatus.USAGE
    assert "at-25.parquet was measured on 2 servers: give --replicas 2" in capsys.readouterr().err
    assert run([*validate, "--replicas", "2", "--router", "rr"]) == ExitStatus.VALID
    assert "at-25.parquet: 400 requests, to 2 replicas by the router rr" in capsys.readouterr().out
    assert run(["simulate", "fit", str(path), "-o", str(model)]) == ExitStatus.USAGE
    assert "fit runs of one of them" in capsys.readouterr().err


def _set_targets(path: Path, targets: list[int]) -> None:
    table = read_table(path)
    place = table.schema.get_field_index("target")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(targets, table.schema.field(place).type)), path)


@pytest.mark.parametrize(("held", "is_said"), [(9, False), (5, True)])
def test_ranges_that_hold_too_little_are_called_too_narrow(tmp_path: Path, held: int, is_said: bool) -> None:
    predictions = tuple(Prediction(("ttft", "p50"), 10.0 if n < held else 12.0, 10.0, 9.5, 10.5) for n in range(10))
    model = read_model(model_file(tmp_path / "model.json"))
    inside = Validation("run", 400, None, (), predictions)
    text = " ".join(validation_text(model, [inside]).split())
    assert ("these ranges are too narrow" in text) is is_said
    beyond = replace(inside, beyond=("81 requests a second, fitted up to 67",))
    assert "these ranges are too narrow" not in validation_text(model, [beyond])


@pytest.mark.parametrize(("requests", "few"), [(1, "1 request"), (99, "99 requests"), (100, None)])
def test_a_p99_that_is_the_maximum_is_called_so(tmp_path: Path, requests: int, few: str | None) -> None:
    validation = Validation("run", requests, None, (), (Prediction(("ttft", "p99"), 10.0, 10.0, 9.5, 10.5),))
    text = " ".join(validation_text(read_model(model_file(tmp_path / "model.json")), [validation]).split())
    assert f"run: {few or '100 requests'} " in text
    said = f"run has {few}: a p99 of fewer than 100 is their maximum, and says little of another run."
    assert (said in text) is (few is not None)


def test_a_model_in_no_folder_is_refused_before_anything_is_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "nowhere" / "model.json"
    assert run(["simulate", "fit", str(_run(tmp_path, 30, 1)), "-o", str(output)]) == ExitStatus.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert f"Invalid value for --output: {output}: there is no folder {output.parent}" in error
    assert "steps recovered" not in error


_FILES = pytest.mark.parametrize(("option", "name"), [("--html", "page.html"), ("--json", "validation.json")])


@_FILES
def test_a_file_in_no_folder_is_refused_before_anything_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    model, path = model_file(tmp_path / "model.json"), tmp_path / "nowhere" / name
    arguments = ["simulate", "validate", "--model", str(model), option, str(path), str(_run(tmp_path, 30, 1))]
    assert run(arguments) == ExitStatus.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert f"Invalid value for {option}: {path}: there is no folder {path.parent}" in error
    assert "simulating" not in error


@_FILES
def test_a_file_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    model, path = model_file(tmp_path / "model.json", hull=()), tmp_path / ("a" * 300 + name)
    arguments = ["simulate", "validate", "--model", str(model), option, str(path), str(_run(tmp_path, 30, 1))]
    assert run(arguments) == ExitStatus.FAILED
    assert f"{option} {path} cannot be written: File name too long" in " ".join(capsys.readouterr().err.split())


def test_validation_needs_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _run(tmp_path, 30, 1)
    assert run(["simulate", "validate", "--model", str(tmp_path / "none.json"), str(path)]) == ExitStatus.USAGE
    assert "'bench simulate fit RUN -o " in capsys.readouterr().err
