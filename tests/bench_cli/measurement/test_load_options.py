"""The load that options describe, and options that contradict each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer

_LENGTHS = ["--isl", "4", "--osl", "3", "--vocab_size", "100"]
_LATE_MS = 10.0  # three mean gaps of the fastest stage: beyond, a busy machine joined several sends


def _measure(server: ScriptedServer, folder: Path, *options: str) -> int:
    line = ["token_norm_dist", "--url", server.address, "--model", "scripted", "--run_dir", str(folder), *_LENGTHS]
    return run([*line, "--warmup_requests", "0", *options])


def test_stages_end_the_run_and_their_change_of_rate_is_no_fault(server: ScriptedServer, tmp_path: Path) -> None:
    _measure(server, tmp_path / "r", "--rate_profile", "stages:80/s*500ms,300/s*500ms,80/s*500ms", "--arrival", "gamma:cv=0.5")
    rows = RunFolder(tmp_path / "r").read_requests()["scheduled_ns"].to_pylist()
    in_stage = [sum(at * 5e8 <= ns < (at + 1) * 5e8 for ns in rows) for at in range(3)]
    assert 120 < in_stage[1] < 180
    assert all(25 < in_stage[k] < 55 for k in (0, 2))
    assert max(rows) < 1.5e9
    manifest = RunFolder(tmp_path / "r").read_document()[0]
    assert manifest["arrivals"] == "gamma arrivals (shape 4), the rate by stages:80/s*0.5s,300/s*0.5s,80/s*0.5s, for 1.5 s"
    assert manifest["load"]["own_arrivals"] is True
    assert manifest["load"]["law"] == {"name": "gamma", "parameter": 4.0, "text": "gamma:shape=4"}
    assert manifest["load"]["stages"] == [
        {"begin_s": 0.5 * k, "end_s": 0.5 * k + 0.5, "rate_per_s": rate} for k, rate in enumerate((80.0, 300.0, 80.0))
    ]
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert [stage["scheduled"] for stage in summary["stages"]] == in_stage
    found = {finding["code"] for finding in summary["findings"]}
    late = summary["metrics"]["slip_ms"]["max"] > _LATE_MS  # so that the sends are another process than the schedule
    assert late or not found & {"rate_wanders", "arrivals_not_as_asked"}


@pytest.mark.parametrize("end", [("--duration", "0.5"), ("--num_requests", "40")])
def test_a_stage_that_is_cut_has_the_rates_of_the_time_that_it_lasted(
    server: ScriptedServer, tmp_path: Path, end: tuple[str, str]
) -> None:
    profile = "stages:40/s*250ms,120/s*2500ms,10/s*1s"
    _measure(server, tmp_path / "r", "--rate_profile", profile, "--arrival", "constant", *end)
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    first, second = summary["stages"]
    assert [first["scheduled"], second["scheduled"]] == [10, 30]
    assert (second["begin_s"], second["end_s"]) == (0.25, pytest.approx(0.5))
    whole, *stages = summary["arrival_laws"]
    assert whole["asked"]["rate_per_s"] == pytest.approx(80)
    assert whole["scheduled"]["rate_per_s"] == pytest.approx(80, rel=0.05)
    assert [stage["scheduled"]["rate_per_s"] for stage in stages] == [40, pytest.approx(120)]
    sent_s = [ns / 1e9 for ns in RunFolder(tmp_path / "r").read_requests()["sent_ns"].to_pylist()]
    within = sum(second["begin_s"] <= at_s < second["end_s"] for at_s in sent_s)  # a busy machine sends late
    assert second["sent_rate"] == pytest.approx(within / (second["end_s"] - second["begin_s"]))


def test_a_rate_that_changes_without_an_end_is_asked_for_until_the_last_request(server: ScriptedServer, tmp_path: Path) -> None:
    options = ("--rate_profile", "on_off:on=1s,off=3s", "--request_rate", "50", "--arrival", "constant", "--num_requests", "50")
    _measure(server, tmp_path / "r", *options)
    (whole,) = json.loads((tmp_path / "r" / "summary.json").read_text())["arrival_laws"]
    assert whole["asked"]["rate_per_s"] == pytest.approx(200)
    assert whole["scheduled"]["rate_per_s"] == pytest.approx(200)


def test_upstream_s_option_and_ours_are_one_schedule(server: ScriptedServer, tmp_path: Path) -> None:
    digests = set()
    spellings = (["--arrival", "gamma:cv=2"], ["--time_delay_dist", "gamma_dist", "--burstiness", "0.25"])
    for number, spelling in enumerate(spellings):
        _measure(server, tmp_path / str(number), "--num_requests", "20", "--request_rate", "400", *spelling)
        manifest = RunFolder(tmp_path / str(number)).read_document()[0]
        digests.add(manifest["schedule"]["digest"])
        assert manifest["load"]["law"]["text"] == "gamma:shape=0.25"
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arrival", "gamma:cv=2"], "--arrival gamma:cv=2: gaps need a --request_rate, or a --rate_profile"),
        (["--arrival", "pareto", "--request_rate", "5"], "'pareto' is no law of gaps; write exponential, constant"),
        (
            ["--arrival", "constant", "--time_delay_dist", "constant", "--request_rate", "5"],
            "--time_delay_dist and --arrival both set the gaps",
        ),
        (["--time_delay_dist", "constant"], "--time_delay_dist constant: gaps need a --request_rate, or a --rate_profile"),
        (["--burstiness", "2", "--time_delay_dist", "gamma_dist"], "it needs gamma_dist and a --request_rate"),
        (["--rate_profile", "sine:amplitude=1,period=5s"], "needs its mean rate: give --request_rate"),
        (["--rate_profile", "stages:5/s*5s", "--request_rate", "5"], "--request_rate 5 cannot be combined with stages:5/s*5s"),
        (["--rate_profile", "stages:5/s*5s", "--ramp_up", "5"], "--ramp_up and --rate_profile both change the rate"),
        (["--rate_profile", "stages:5/s*5s", "--concurrency", "5"], "--rate_profile cannot be combined with --concurrency"),
        (["--arrival", "constant", "--concurrency", "5"], "--arrival cannot be combined with --concurrency"),
        (["--rate_profile", "steps:5"], "'steps' is no profile of a rate; write sine:"),
    ],
)
def test_options_that_contradict_each_other_are_one_sentence(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert _measure(server, tmp_path / "r", *options) == ExitStatus.USAGE
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "r").exists()
