"""A whole run on a machine whose energy counters are scripted, to its answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.measurement.measure import measure  # noqa: F401  binds the real stderr, not the capture of one test
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.host.clock import now_ns
from harness.observation import observation, power_sampler
from harness.observation.nvml import Reading
from harness.observation.rapl import Rapl
from reports.render.tables import three_digits
from tests.harness.metrics_server import metrics_server
from tests.harness.observation.powercap import RANGE_UJ, count, two_sockets
from tests.harness.scripted_server import ScriptedServer

_WATTS = {"intel-rapl:0": 60, "intel-rapl:1": 35, "intel-rapl:0:1": 8, "intel-rapl:1:1": 4}


class _Clock:
    """Gives the end of each reading the time of its beginning, so that the scripted energies are those of the recorded time."""

    def __init__(self) -> None:
        self._calls, self._began_ns = 0, 0

    def __call__(self) -> int:
        self._calls += 1
        if self._calls % 2:
            self._began_ns = now_ns()
        return self._began_ns


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of two packages whose counters rise by ``_WATTS``; the first wraps around 0.2 s after its first reading."""
    folder = two_sockets(tmp_path / "powercap")
    read = Rapl.read
    started_ns: list[int] = []

    def scripted(rapl: Rapl, at_ns: int) -> list[Reading]:
        started_ns.append(at_ns)
        for key, watts in _WATTS.items():
            first_uj = RANGE_UJ - 12_000_000 if key == "intel-rapl:0" else 1_000_000
            count(folder / key, (first_uj + watts * (at_ns - started_ns[0]) // 1000) % RANGE_UJ)
        return read(rapl, at_ns)

    monkeypatch.setattr(Rapl, "read", scripted)
    monkeypatch.setattr(power_sampler, "now_ns", _Clock())
    monkeypatch.setattr(observation, "POWERCAP", folder)
    return folder


def _measure(server: ScriptedServer, folder: Path) -> int:
    lengths = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]
    with metrics_server(lambda number: (404, b"")) as nothing:
        target = ["--url", server.address, "--model", "scripted", "--metrics_url", f"127.0.0.1:{nothing.port}"]
        return run(
            ["token_norm_dist", *target, *lengths, "--request_rate", "40", "--num_requests", "60", "--run_dir", str(folder)]
        )


def test_a_run_ends_with_the_energy_of_the_counters(
    server: ScriptedServer, powercap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert _measure(server, folder) in (ExitStatus.VALID, ExitStatus.INVALID)
    table = RunFolder(folder).read_server()
    assert table is not None
    first = [
        (time_ns, joules)
        for time_ns, name, labels, joules in zip(
            *(table[column].to_pylist() for column in ("time_ns", "name", "labels", "value")), strict=True
        )
        if (name, labels) == ("host_cpu_energy_joules_total", '{"zone": "package-0"}')
    ]
    assert first[0][0] < 0
    expected = [60 * (time_ns - first[0][0]) / 1e9 for time_ns, _ in first]
    assert [joules for _, joules in first] == pytest.approx(expected, abs=2e-6)  # counters have whole µJ
    assert first[-1][1] > 12.0  # the counter wrapped around

    found = json.loads((folder / "summary.json").read_text())["host_energy"]
    length_s = found["end_s"] - found["start_s"]
    for part, watts, zones in (("cpu", 95, [60, 35]), ("dram", 12, [8, 4])):
        assert found[part]["power_w"] == pytest.approx(watts, rel=1e-4)
        assert found[part]["energy_j"] == pytest.approx(watts * length_s, rel=1e-4)
        assert found[part]["joules_per_token"] == pytest.approx(watts * length_s / found["output_tokens"], rel=1e-4)
        assert [zone["power_w"] for zone in found[part]["zones"]] == pytest.approx(zones, rel=1e-4)
    answer = capsys.readouterr().out
    assert f"CPU: {three_digits(found['cpu']['joules_per_token'])} J a token, 95 W; DRAM 12 W." in answer
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "CPU and DRAM power" in page
    assert "CPU and DRAM energy" in page


def test_where_no_counter_can_be_read_nothing_is_said(
    server: ScriptedServer, powercap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "POWERCAP", tmp_path / "none")
    folder = tmp_path / "run"
    _measure(server, folder)
    assert json.loads((folder / "summary.json").read_text())["host_energy"] is None
    captured = capsys.readouterr()
    assert not re.search("^CPU: ", captured.out, re.MULTILINE)
    assert "RAPL" not in captured.err
    assert "DRAM" not in (folder / "report.html").read_text(encoding="utf-8")
    assert not (folder / "server.parquet").exists()
