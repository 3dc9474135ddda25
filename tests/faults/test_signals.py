"""SIGINT and SIGTERM at every phase of a run: exit status 130, what was recorded is saved, and no process is left."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from bench_records.run_folder import RunFolder
from tests.faults import signal_script
from tests.faults.bench_program import Program, bench, check_whole, run_bench, token_norm_dist, wait_until
from tests.faults.unruly_proxy import Breakage, unruly_proxy
from tests.harness.scripted_server import ScriptedServer, scripted_server

pytestmark = pytest.mark.slow

# SIGTERM takes the same way as SIGINT, so it is tried at each phase, too, but not whenever tests are run.
BOTH = pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
_QUICK = ["--request_rate", "200", "--request_timeout", "30"]


def _interrupted(program: Program, number: signal.Signals) -> str:
    """Send the signal and wait for the end; returns its stderr."""
    program.process.send_signal(number)
    status, _, err = program.end()
    assert status == 130, err
    return err


def _state(folder: Path) -> str:
    state: str = RunFolder(folder).read_document()[0]["state"]
    return state


# ---- before the first request


@BOTH
def test_while_the_embedded_pipeline_is_deployed(tmp_path: Path, number: signal.Signals) -> None:
    with bench(tmp_path / "run", "dataset", "--request_rate", "5") as program:
        wait_until(lambda: (tmp_path / "run" / "server.log").exists(), process=program.process)
        time.sleep(0.5)
        err = _interrupted(program, number)
    assert err.splitlines()[-1] == "interrupted"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"server.log"}


@BOTH
def test_while_the_workers_connect(tmp_path: Path, server: ScriptedServer, number: signal.Signals) -> None:
    with (
        unruly_proxy(server.port, Breakage.RESET, chance=0) as proxy,
        bench(tmp_path / "run", *token_norm_dist(proxy.address, "scripted", 10)) as program,
    ):
        wait_until(lambda: (tmp_path / "run" / "schedule.bin").exists(), process=program.process)
        proxy.deaf = True  # new connections get no answer
        asked = proxy.connections
        wait_until(lambda: proxy.connections > asked, process=program.process)
        _interrupted(program, number)
    assert _state(tmp_path / "run") == "not_started"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"run.json"}


@BOTH
def test_while_the_target_is_warmed_up(tmp_path: Path, number: signal.Signals) -> None:
    with (
        scripted_server(tmp_path / "received") as server,
        bench(tmp_path / "run", *token_norm_dist(server, "mute", 10, "--warmup_requests", "2")) as program,
    ):
        wait_until(lambda: bool(server.received()), process=program.process)
        _interrupted(program, number)
    assert _state(tmp_path / "run") == "not_started"
    assert "before its first request" in run_bench("report", str(tmp_path / "run")).stderr


@BOTH
def test_before_the_first_request_is_due(tmp_path: Path, number: signal.Signals) -> None:
    options = ["--request_rate", "0.001", "--time_delay_dist", "constant", "--ramp_up", "1000"]
    with scripted_server(tmp_path / "received") as server:
        with bench(tmp_path / "run", *token_norm_dist(server, "scripted", 10, *options)) as program:
            program.wait_for_start()
            _interrupted(program, number)
        assert server.received() in ([], ["0"])
        counts = check_whole(tmp_path / "run", 10, server)
    assert counts["not_sent"] >= 9
    assert counts["done"] + counts["not_sent"] == 10


# ---- during the run


@BOTH
def test_in_the_middle_of_the_run(tmp_path: Path, number: signal.Signals) -> None:
    with scripted_server(tmp_path / "received") as server:
        arguments = token_norm_dist(server, "paced", 2_000, "--request_rate", "50", "--workers", "2")
        with bench(tmp_path / "run", *arguments) as program:
            program.wait_for_exchanges(20)
            _interrupted(program, number)
        counts = check_whole(tmp_path / "run", 2_000, server)
    assert set(counts) == {"done", "not_sent"}  # what was in flight came to its end
    assert counts["done"] >= 20
    assert (tmp_path / "run" / "report.html").exists()


@BOTH
def test_while_answers_are_awaited_that_do_not_come(tmp_path: Path, number: signal.Signals) -> None:
    with scripted_server(tmp_path / "received") as server:
        with bench(tmp_path / "run", *token_norm_dist(server, "mute", 2_000, "--request_rate", "50")) as program:
            wait_until(lambda: len(server.received()) >= 20, process=program.process)
            program.process.send_signal(number)
            time.sleep(1.0)
            assert program.process.poll() is None  # it waits: one signal breaks nothing off
            _interrupted(program, number)
        counts = check_whole(tmp_path / "run", 2_000, server)
    assert set(counts) == {"cancelled", "not_sent"}
    assert counts["cancelled"] >= 20


# ---- after the last request


@BOTH
@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("harness.run.coordinator", "account_for_all"),
        ("harness.recording.run_lifecycle", "write_table"),
        ("harness.recording.run_lifecycle", "delete_journals"),
        ("bench_cli.measurement.measure", "tabulate"),
        ("bench_cli.measurement.show", "read_run"),
        ("bench_cli.measurement.show", "write_reports"),
        ("reports.run.writing", "write_html"),
    ],
    ids=["accounting", "writing records", "giving up journals", "writing tables", "reading", "reporting", "writing the page"],
)
def test_once_all_requests_have_ended(
    tmp_path: Path, server: ScriptedServer, number: signal.Signals, module: str, function: str
) -> None:
    program_with_signal = [sys.executable, signal_script.__file__, number.name, module, function]
    folder = tmp_path / "run"
    arguments = token_norm_dist(server, "scripted", 40, *_QUICK)
    with bench(folder, *arguments, program=program_with_signal) as program:
        status, _, err = program.end()
    assert status == 130, err
    assert f"The run is recorded; 'bench report {folder}' makes its report." in err or not (folder / "report.html").exists()
    assert run_bench("report", str(folder)).returncode in (0, 3)
    assert check_whole(folder, 40) == {"done": 40}
    summary = json.loads((folder / "summary.json").read_text())
    assert "interrupted" not in {finding["code"] for finding in summary["findings"]}  # all was done by then
