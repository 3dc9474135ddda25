"""`bench calibrate` from the command line, in a temporary data folder; too short for meaningful numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bench_cli import run
from bench_cli.measurement.manifest import calibration_for_run
from harness.calibration import calibrate as calibrating
from harness.calibration.calibrate import Effort, worker_counts
from harness.calibration.result import this_machine
from harness.calibration.store import default_path, find_calibration
from harness.run.environment import describe_environment

_SHORT = Effort(budget_s=1.0, quiet_s=0.5, rung_s=0.2, first_requests_per_s=40.0, first_responses_per_s=400.0)


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(calibrating, "QUICK", _SHORT)
    return tmp_path / "data"


def test_a_calibration_is_shown_and_saved(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = describe_environment()
    assert calibration_for_run("grpc", environment) is None
    assert run(["calibrate", "--quick"]) == 0
    printed = capsys.readouterr()
    assert "TTFT: client adds, mean ± deviation, ms" in printed.out
    assert "Requests/s held, 1 worker" in printed.out
    assert str(default_path()) in printed.out
    assert "grpc, quiet: slip p99" in printed.err
    saved = find_calibration(default_path(), this_machine(environment))
    assert saved is not None
    assert saved.quick
    for transport in saved.transports:
        assert transport.ttft.n == 10
        assert transport.icl.n == 190
        assert transport.ttft.mean_ms > 0
        assert [limits.workers for limits in transport.limits] == list(worker_counts(saved.machine.cores))
    copied = calibration_for_run("grpc", environment)
    assert copied is not None
    assert copied.made_at == saved.made_at
    assert calibration_for_run("grpc", environment, workers_here=False) is None
    assert run(["calibrate", "--show"]) == 0
    assert capsys.readouterr().out in printed.out


def test_output_goes_to_the_named_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "elsewhere.json"
    assert run(["calibrate", "--quick", "--output", str(output)]) == 0
    assert json.loads(output.read_text())["schema"] == 1
    assert not default_path().exists()
    assert run(["calibrate", "--show", "--output", str(output)]) == 0
    capsys.readouterr()


def test_without_a_calibration_show_names_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--show"]) == 1
    assert "run `bench calibrate`" in capsys.readouterr().err


def test_a_damaged_file_is_one_sentence_for_the_verb_and_a_warning_for_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    default_path().parent.mkdir(parents=True)
    default_path().write_text('{"schema": 1, "calibrations": [{"mach')
    assert run(["calibrate", "--show"]) == 1
    assert "is damaged" in capsys.readouterr().err
    assert calibration_for_run("grpc", describe_environment()) is None
    warning = capsys.readouterr().err
    assert warning.startswith("Warning: ")
    assert warning.count("\n") == 1


def test_quick_and_show_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--quick", "--show"]) == 2
    capsys.readouterr()


@pytest.mark.parametrize("after", ["Calibrating", pytest.param("quiet:", marks=pytest.mark.slow)])
def test_ctrl_c_stops_it_and_saves_nothing(data_folder: Path, after: str) -> None:
    command = [sys.executable, "-c", "from bench_cli import main; main(['calibrate'])"]
    environment = {**os.environ, "XDG_DATA_HOME": str(data_folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as calibrate:
        assert calibrate.stderr is not None
        assert calibrate.stdout is not None
        while after not in calibrate.stderr.readline():
            assert calibrate.poll() is None
        calibrate.send_signal(signal.SIGINT)
        children = psutil.Process(calibrate.pid).children(recursive=True)
        assert calibrate.wait(timeout=120) == 130
        stderr = calibrate.stderr.read()
    assert "Traceback" not in stderr
    assert "interrupted" in stderr
    assert not default_path().exists()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive
