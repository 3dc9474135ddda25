"""Runs whose findings make them doubtful material for a model: said at the fit, and wherever the model is used."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench_cli import run
from bench_cli.simulate import material
from bench_cli.simulate.material import EFFECTS, Material, doubts_of, material_of
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from bench_records.table import read_table
from reports.findings.checks import KINDS
from reports.findings.client import ClientSaturated
from reports.findings.finding import Finding
from reports.findings.target import TargetPaused
from reports.run_report import read_run
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from simulator.model import read_model
from simulator.observed import read_observed
from simulator.recorded import simulated_run
from tests.reports.manifests import run_manifest
from tests.simulator.known import SERVER, poisson, write_run

_PAUSE = TargetPaused(at_s=1.0, length_s=2.0, in_flight=9, usual_s=0.1, pauses=1, client_lag_max_ms=None)
_STOPPED = (
    "has the finding interrupted: it was stopped before its end, and requests that were in flight then are left out, though "
    "the server worked on them"
)


def _folder(path: Path, rate: float, seed: int, outcomes: dict[str, int] | None = None, **manifest: Any) -> Path:
    """A run of 400 requests, the last of which ended otherwise."""
    path.mkdir()
    table = write_run(simulated_run(SERVER, poisson(rate, 400, seed), seed, "run"), path / "requests.parquet")
    others = [outcome for outcome, count in (outcomes or {}).items() for _ in range(count)]
    if others:
        columns = read_table(table)
        place = columns.schema.get_field_index("outcome")
        values = pa.array(["done"] * (400 - len(others)) + others, pa.string())
        pq.write_table(
            columns.set_column(place, columns.schema.field(place), values.cast(columns.schema.field(place).type)), table
        )
    (path / "run.json").write_text(json.dumps(run_manifest(**manifest)))
    return path


def _saturated(unstamped_reads: int) -> ClientSaturated:
    """A client that is as late as its answers take."""
    return ClientSaturated(
        lag_p99_ms=90.0,
        lag_mean_ms=40.0,
        lag_max_ms=200.0,
        wake_ups=300,
        p50_latency_from_sent_ms=100.0,
        p99_icl_ms=40.0,
        cpu_share=1.0,
        run_queue_wait_share=0.2,
        run_queue_wait_ms=0.3,
        gc_longest_ms=1.0,
        steal_cores=0.0,
        unstamped_reads=unstamped_reads,
    )


def _with(findings: list[Finding]) -> Any:
    return lambda folder, criteria: SimpleNamespace(findings=findings)


def test_a_stopped_run_is_fitted_and_the_doubt_is_said_wherever_the_model_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its requests that were never sent are no failures."""
    runs = [
        _folder(tmp_path / "half", 25, 1),
        _folder(tmp_path / "high", 50, 2, {"not_sent": 100}, interrupted=True),
    ]
    model = tmp_path / "model.json"
    assert run(["simulate", "fit", *map(str, runs), "-o", str(model)]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert captured.err.startswith(f"high {_STOPPED}.\n")
    assert f"  - high {_STOPPED}\n" in captured.out
    assert "failed" not in captured.out
    assert read_model(model).doubts == (f"high {_STOPPED}",)
    validated = ["simulate", "validate", "--model", str(model), "--draws", "0", str(runs[1])]
    assert run(validated) == ExitStatus.VALID
    assert f"model.json: high {_STOPPED}.\nhigh {_STOPPED}.\n" in capsys.readouterr().err
    traffic = ["token_norm_dist", "--request_rate", "20", "--num_requests", "50"]
    traffic += ["--isl", "100", "--osl", "8", "--tokenizer_dir", str(DEMO_ENGINE_DIR)]
    simulated = ["simulate", "run", "--model", str(model), "--draws", "0", *traffic, "--run_dir", str(tmp_path / "run")]
    assert run(simulated) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert f"model.json: high {_STOPPED}.\n" in captured.err
    folder = RunFolder(tmp_path / "run")
    assert folder.read_manifest().simulation.doubts == (f"high {_STOPPED}",)  # type: ignore[union-attr]
    assert "doubtful_model" in {finding.code for finding in read_run(folder).findings}
    said = "The model of this run is in doubt: high has the finding interrupted"
    for page in (folder.html, folder.markdown):
        assert said in page.read_text()
    sized = ["size", "--model", str(model), "--slo", "p90_e2e<=10s", "--draws", "18", "--max_replicas", "1", *traffic]
    assert run(sized) == ExitStatus.VALID
    assert f"model.json: high {_STOPPED}.\n" in capsys.readouterr().err


def test_a_run_whose_client_decided_when_tokens_arrived_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(tmp_path / "late", 25, 1)
    monkeypatch.setattr(material, "read_run", _with([_saturated(unstamped_reads=3)]))
    assert run(["simulate", "fit", str(folder), "-o", str(tmp_path / "model.json")]) == ExitStatus.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "late has the finding client_saturated: the client noted tokens late" in said
    assert "Error: late cannot be fitted, since its client, not the server, decided when tokens arrived. The client's" in said
    monkeypatch.setattr(material, "read_run", _with([_saturated(unstamped_reads=0)]))
    assert material_of(folder) == Material("late")  # the kernel stamped what came


def test_a_run_that_mostly_failed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _folder(tmp_path / "failed", 25, 1, {"timeout": 250, "not_sent": 20})
    assert read_observed(folder).left_out == 250
    assert run(["simulate", "fit", str(folder), "-o", str(tmp_path / "model.json")]) == ExitStatus.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "failed: 250 of 380 requests failed or have no known lengths, so what the server did is mostly not" in said


def test_runs_with_one_finding_are_named_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "read_run", _with([_PAUSE]))
    runs = [material_of(tmp_path / name) for name in "abcde"]
    said = f"the finding target_paused: {EFFECTS['target_paused']}"
    assert doubts_of(runs[:1]) == (f"a has {said}",)
    assert doubts_of(runs[:3]) == (f"a, b and c have {said}",)
    assert doubts_of(runs) == (f"a, b and 3 other runs have {said}",)


def test_findings_that_are_not_known_are_said(tmp_path: Path) -> None:
    said = list[str]()
    (tmp_path / "requests.parquet").touch()
    material.say([material_of(tmp_path / "requests.parquet"), material_of(tmp_path)], said.append)
    assert said == [
        "requests.parquet: its findings are not known, since it is a table of requests alone.",
        f"{tmp_path.name}: its findings are not known, since {tmp_path} is not a run folder: it has no run.json.",
    ]


def test_each_effect_is_that_of_a_finding() -> None:
    assert set(EFFECTS) <= {kind.code for kind in KINDS}
