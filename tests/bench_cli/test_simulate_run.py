"""``bench simulate run`` from a model's file to the folder of a run, and what reads that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from bench_cli import run
from bench_cli.simulate.traffic import simulated_traffic
from bench_cli.tokenizers import ordinary_token_ids, shipped_tokenizer, text_codec
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from reports.run_report import read_run
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from simulator.answers import Deployment
from simulator.clients import clients_of
from simulator.deployed import Deployed, fingerprint
from simulator.model import MODEL_SCHEMA, UNFIT, Draw, Extent, Model, Parameter, Source, write_model
from simulator.observed import read_observed
from simulator.recorded import simulated_run
from simulator.routers import Router
from simulator.server import KV_BLOCK_TOKENS, StepLaw
from simulator.simulation import simulate_deployment
from tests.simulator.known import SERVER, poisson, write_run
from workloads.arrivals.processes import Exponential
from workloads.elements.request import CancelPoint, LengthLimits, Request
from workloads.lengths.families import Constant
from workloads.lengths.samples import Independent
from workloads.prompts.token_norm_dist import TokenNormDist
from workloads.schedule.load import OpenLoop
from workloads.schedule.schedule import Schedule
from workloads.table import prefixes

_HULL = (Extent("requests in flight", 40.0), Extent("requests a second", 60.0))
_FITTED = Deployed("grpc", "tensorrt_llm", True, str(DEMO_ENGINE_DIR), fingerprint(DEMO_ENGINE_DIR))
_TRAFFIC = ["token_norm_dist", "--request_rate", "40", "--num_requests", "120", "--isl", "150", "--osl", "9", "--seed", "5"]


def model_file(path: Path, **replaced: Any) -> Path:
    slower = replace(SERVER.law, step=1.1 * SERVER.law.step)
    model = Model(
        schema=MODEL_SCHEMA,
        server=SERVER,
        parameters=(),
        draws=(Draw(SERVER.law, SERVER.front_end), Draw(slower, SERVER.front_end)),
        hull=_HULL,
        sources=(Source("half", 400, None, 3_000),),
        structure=(),
        findings=(),
        deployed=_FITTED,
    )
    write_model(replace(model, **replaced), path)
    return path


def _simulated(tmp_path: Path, name: str, *options: str, traffic: list[str] = _TRAFFIC) -> Path:
    model = tmp_path / "model.json"
    if not model.exists():
        model_file(model)
    folder = tmp_path / name
    arguments = ["simulate", "run", "--model", str(model), *options, *traffic, "--run_dir", str(folder)]
    assert run(arguments) == ExitStatus.VALID
    return folder


def test_a_simulated_run_has_the_schedule_of_the_real_one_and_says_everywhere_that_it_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _simulated(tmp_path, "run")
    text = capsys.readouterr().out
    lengths = Independent(Constant(150), Constant(9))
    ids = ordinary_token_ids(shipped_tokenizer())
    requests = TokenNormDist(lengths, ids, 5, LengthLimits(), None, ignore_eos=True).draw(120).requests
    schedule = OpenLoop(Exponential(40.0)).schedule(requests, 5)
    report = read_run(RunFolder(folder))
    assert report.schedule.digest == schedule.digest
    summary = json.loads((folder / "summary.json").read_text())
    ranges = summary["simulation"]["ranges"]
    p50 = summary["metrics"]["tpot_ms"]["p50"]
    low, high = ranges["tpot_ms"]["p50"]
    assert low == pytest.approx(p50, rel=1e-6)
    assert 1.05 * p50 < high < 1.15 * p50
    assert summary["simulation"]["draws"] == 2
    for shown in (text, (folder / "report.md").read_text(), (folder / "report.html").read_text()):
        assert "SIMULATED: no server was measured." in shown
        assert "simulated by model.json" in shown
    assert "With the model's error, by 2 draws" in " ".join(text.split())
    assert run(["why", str(folder)]) == ExitStatus.VALID
    assert "SIMULATED" in capsys.readouterr().out


@pytest.mark.parametrize(("protocol", "ignores_eos"), [("openai", False), ("openai_completions", False), ("grpc", True)])
def test_requests_of_text_are_those_that_the_fitted_protocol_sends(tmp_path: Path, protocol: str, ignores_eos: bool) -> None:
    """OpenAI's protocols have no field by which every server goes on after the end of a sequence, so none requests it."""
    model_file(tmp_path / "model.json", deployed=replace(_FITTED, protocol=protocol, model="text", token_ids=False))
    report = read_run(RunFolder(_simulated(tmp_path, "run", "--draws", "0")))
    tokenizer = shipped_tokenizer()
    lengths, ids = Independent(Constant(150), Constant(9)), ordinary_token_ids(tokenizer)
    prompts = TokenNormDist(lengths, ids, 5, LengthLimits(), text_codec(tokenizer), ignore_eos=ignores_eos)
    schedule = OpenLoop(Exponential(40.0)).schedule(prompts.draw(120).requests, 5)
    assert report.schedule.digest == schedule.digest


def test_one_draw_and_none_are_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _simulated(tmp_path, "one", "--draws", "1")
    shown = capsys.readouterr()
    assert "Simulating them with 1 draw of the model's constants." in shown.err
    assert "With the model's error, by 1 draw of its constants (ms)" in " ".join(shown.out.split())
    none = _simulated(tmp_path, "none", "--draws", "0")
    assert run(["report", str(none), "--full"]) == ExitStatus.VALID
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "longer or shorter by the error that the fit had on what it was not fitted to: the model's constants were not" in text
    )
    assert "over 0 draws" not in text


def test_the_records_are_the_simulated_times(tmp_path: Path) -> None:
    observed = read_observed(_simulated(tmp_path, "run", "--draws", "0"))
    traffic = observed.traffic(observed.sent_s)
    again = simulated_run(SERVER, traffic, 5, "again")
    assert observed.times_s == pytest.approx(again.times_s, abs=1e-7)
    assert (observed.input_tokens == 150).all()
    assert observed.deployed == _FITTED


@pytest.mark.parametrize("verb", [["fit", "-o", "other.json"], ["validate", "--model", "model.json"]])
def test_a_simulated_run_is_no_run_of_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    _simulated(tmp_path, "run", "--draws", "0")
    monkeypatch.chdir(tmp_path)
    assert run(["simulate", *verb, "run"]) == ExitStatus.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "run was simulated by model.json, and no server was measured: give runs of a server" in said


def test_a_simulated_run_is_refused_beside_a_measured_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated, other, measured = (_simulated(tmp_path, name, "--draws", "0") for name in ("a", "b", "c"))
    document = json.loads((measured / "run.json").read_text())
    (measured / "run.json").write_text(json.dumps(document | {"simulation": None}))
    capsys.readouterr()
    assert run(["compare", str(measured), str(simulated), "--allow_different"]) == ExitStatus.INVALID
    assert "simulation: measured against simulated by model.json" in capsys.readouterr().err
    assert run(["compare", str(measured), str(simulated), "--allow_simulated"]) == ExitStatus.VALID
    assert "measured | simulated by model.json" in " ".join(capsys.readouterr().out.split())
    assert run(["compare", str(simulated), str(other)]) == ExitStatus.VALID
    assert "No server was measured" in capsys.readouterr().out


def test_an_unfit_model_is_said_where_it_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = f"{UNFIT}: the TTFT of what was not fitted is wrong by a factor of 2.0"
    model = model_file(tmp_path / "model.json", findings=("another", said))
    _simulated(tmp_path, "run", "--draws", "0")
    assert capsys.readouterr().err.startswith(f"model.json: {said}.\n")
    measured = write_run(simulated_run(SERVER, poisson(30, 50, 1), 1, "run"), tmp_path / "measured.parquet")
    assert run(["simulate", "validate", "--model", str(model), "--draws", "0", str(measured)]) == ExitStatus.VALID
    assert capsys.readouterr().err.startswith(f"model.json: {said}.\n")
    limits = ["--slo", "p90_e2e<=10s", "--router", "rr", "--draws", "18", "--max_replicas", "1"]
    assert run(["size", "--model", str(model), *limits, *_TRAFFIC]) == ExitStatus.VALID
    assert capsys.readouterr().err.startswith(f"model.json: {said}.\n")


def test_a_model_that_was_edited_is_said_first_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.json"
    step = Parameter("step", SERVER.law.step, 5.9e-3, 6.1e-3, True)
    edited = replace(SERVER, law=replace(SERVER.law, step=1e-12))
    model_file(model, parameters=(step,), server=edited)
    said = "server.law.step of 1e-12 s in its file, which was fitted as 0.006 s (0.0059 to 0.0061)"
    _simulated(tmp_path, "run", "--draws", "0")
    captured = capsys.readouterr()
    assert f"This lies beyond what the model was fitted to: {said}" in captured.err
    assert f"SIMULATED BEYOND WHAT ITS MODEL WAS FITTED TO ({said}" in " ".join(captured.out.split())
    measured = write_run(simulated_run(SERVER, poisson(30, 50, 1), 1, "run"), tmp_path / "measured.parquet")
    assert run(["simulate", "validate", "--model", str(model), "--draws", "0", str(measured)]) == ExitStatus.VALID
    assert f"measured.parquet lies beyond what was fitted: {said}" in " ".join(capsys.readouterr().out.split())
    model_file(model, server=replace(edited, law=StepLaw(step=1e-12)))
    assert run(["simulate", "run", "--model", str(model), *_TRAFFIC]) == ExitStatus.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "model.json is not a valid fitted model: server.law.step of 1e-12 s" in said
    assert said.endswith("Fit it again, or undo what was edited")


def test_what_lies_beyond_the_fitted_runs_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traffic = [*_TRAFFIC[:2], "200", *_TRAFFIC[3:]]
    folder = _simulated(tmp_path, "run", traffic=traffic)
    captured = capsys.readouterr()
    assert captured.out.startswith("SIMULATED BEYOND WHAT ITS MODEL WAS FITTED TO (")
    assert "requests a second, fitted up to 60" in captured.err
    assert "beyond_model" in {finding.code for finding in read_run(RunFolder(folder)).findings}


def test_the_ranges_are_those_of_the_load_without_its_probes(tmp_path: Path) -> None:
    """There are twice as many probes, whose answers take less than a tenth of the time."""
    traffic = ["token_norm_dist", "--request_rate", "20", "--num_requests", "100", "--isl", "150", "--osl", "30"]
    traffic += ["--probe_rate", "40", "--probe_isl", "8", "--probe_osl", "2"]
    summary = json.loads((_simulated(tmp_path, "run", traffic=traffic) / "summary.json").read_text())
    metrics, ranges = summary["metrics"], summary["simulation"]["ranges"]
    assert metrics["e2e_ms"]["scheduled"]["p50"] > 150
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        own = metrics[name].get("scheduled", metrics[name])
        for figure, (low, high) in ranges[name].items():
            assert low <= own[figure] * (1 + 1e-6)
            assert own[figure] <= high * (1 + 1e-6)
    low, high = ranges["request_throughput"]["value"]
    assert low <= metrics["request_throughput"]["value"] * (1 + 1e-6) <= high * (1 + 2e-6)


def test_replicas_share_the_requests(tmp_path: Path) -> None:
    one = _simulated(tmp_path, "one", "--draws", "0")
    four = _simulated(tmp_path, "four", "--draws", "0", "--replicas", "4", "--router", "rr")
    assert read_observed(four).last_s.sum() < read_observed(one).last_s.sum()
    manifest = RunFolder(four).read_manifest()
    assert manifest.simulation is not None
    assert (manifest.simulation.replicas, manifest.simulation.router) == (4, "rr")


def test_a_gate_judges_a_simulated_run(tmp_path: Path) -> None:
    arguments = ["simulate", "run", "--model", str(model_file(tmp_path / "model.json")), "--draws", "0", *_TRAFFIC]
    assert run([*arguments, "--fail_if", "p50_ttft>1ms", "--run_dir", str(tmp_path / "run")]) == ExitStatus.FAILED


@pytest.mark.parametrize(
    "load",
    [
        ["--concurrency", "5", "--num_requests", "60"],
        ["--concurrency", "5", "--duration", "3"],
        ["--request_rate", "200", "--max_concurrency", "4", "--num_requests", "60"],
    ],
)
def test_loads_that_wait_for_answers_hold_their_number_in_flight(tmp_path: Path, load: list[str]) -> None:
    folder = _simulated(tmp_path, "run", "--draws", "0", traffic=["token_norm_dist", *load])
    requests = read_run(RunFolder(folder)).requests
    in_flight = [int(((requests.sent_ns <= at) & (requests.done_ns > at)).sum()) for at in np.sort(requests.sent_ns)]
    assert max(in_flight) == (4 if "--max_concurrency" in load else 5)
    if "--duration" in load:
        assert requests.scheduled_ns.max() < 3e9
    if "--max_concurrency" in load:
        assert (requests.sent_ns - requests.scheduled_ns).max() > 10e6
        assert (requests.sent_ns == requests.released_ns).all()


def test_the_range_of_a_latency_counts_from_the_schedule_as_the_latency_does(tmp_path: Path) -> None:
    """Requests wait for the ceiling, which a range from the send would leave out."""
    load = ["--request_rate", "60", "--max_concurrency", "2", "--num_requests", "60", "--isl", "20", "--osl", "9"]
    folder = _simulated(tmp_path, "run", traffic=["token_norm_dist", *load])
    ttft = json.loads((folder / "summary.json").read_text())["metrics"]["ttft_ms"]
    ranges = json.loads((folder / "run.json").read_text())["simulation"]["ranges"]
    assert ttft["scheduled"]["p99"] > 2.0 * ttft["sent"]["p99"]
    for name in ("ttft_ms", "e2e_ms"):
        scheduled = json.loads((folder / "summary.json").read_text())["metrics"][name]["scheduled"]
        for figure in ("mean", "p50", "p99"):
            low, high = ranges[name][figure]
            assert low - 1e-3 <= scheduled[figure] <= high + 1e-3


@pytest.mark.parametrize(
    ("options", "load"),
    [
        (["--fail", "1:at=0s,for=0.5s"], ["--request_rate", "40", "--num_requests", "60"]),
        (["--fail", "1:at=1s"], ["--request_rate", "40", "--num_requests", "60"]),
        (["--fail", "1:at=0.5s"], ["--concurrency", "3", "--duration", "4"]),
        (["--replicas", "2", "--fail", "1:at=1s"], ["--request_rate", "40", "--num_requests", "80"]),
        (["--fail", "1:at=0s"], ["--request_rate", "40", "--num_requests", "20"]),
    ],
)
def test_the_range_of_a_number_with_failures_holds_it_or_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], load: list[str]
) -> None:
    """A quantile that falls among failed requests has no value, so no range either."""
    traffic = ["token_norm_dist", *load, "--isl", "50", "--osl", "9"]
    model = str(model_file(tmp_path / "model.json"))
    run(["simulate", "run", "--model", model, *options, *traffic, "--run_dir", str(tmp_path / "run")])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    metrics, ranges = summary["metrics"], summary["simulation"]["ranges"]
    shown = {name: metrics[name].get("scheduled", metrics[name]) for name in ranges}
    for name in ("ttft_ms", "e2e_ms"):
        for figure in ("mean", "p50", "p90", "p99"):
            value = shown.get(name, {}).get(figure)
            assert (value is None) == (figure not in ranges.get(name, {})), (name, figure)
    for name, figures in ranges.items():
        for figure, (low, high) in figures.items():
            assert low * (1 - 1e-5) <= shown[name][figure] <= high * (1 + 1e-5), (name, figure)
    assert "(ms): ." not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "arguments", "reason"),
    [
        ({}, ["replay"], "after the options comes what to simulate"),
        ({}, [*_TRAFFIC, "--stop_if", "p99_ttft>1s"], "--stop_if: a simulation has no early end"),
        ({}, [*_TRAFFIC, "--no_streaming"], "--no_streaming: a simulated server streams"),
        ({}, [*_TRAFFIC, "--model", "ensemble"], "--model ensemble: model.json was fitted to runs of tensorrt_llm"),
        (
            {"deployed": replace(_FITTED, tokenizer="0")},
            [*_TRAFFIC, "--tokenizer_dir", str(DEMO_ENGINE_DIR)],
            "has another tokenizer than the runs that the model was fitted to",
        ),
        (
            {"deployed": replace(_FITTED, tokenizer_dir="/gone")},
            _TRAFFIC,
            "the tokenizer of the fitted runs is no longer in /gone",
        ),
        ({}, ["--router", "rr", *_TRAFFIC], "--router deals requests to several replicas: give --replicas"),
        ({}, ["--prefill", "1", *_TRAFFIC], "--prefill needs --decode"),
        ({}, ["--transfer_ms", "4", *_TRAFFIC], "--transfer_ms needs --prefill and --decode"),
        ({}, ["--transfer_post_ms", "4", *_TRAFFIC], "--transfer_post_ms needs --prefill and --decode"),
        ({}, ["--prefill", "1", "--decode", "1", "--transfer_ms", "nan", *_TRAFFIC], "--transfer_ms': 'nan' is not a number"),
        ({}, ["--prefill", "1", "--decode", "1", "--transfer_tokens_per_s", "inf", *_TRAFFIC], "inf is not in the range"),
        ({}, [*_TRAFFIC[:1], "--concurrency", "2", "--duration", "nan"], "'--duration': 'nan' is not a number"),
        ({}, ["--prefill", "1", "--decode", "1", "--replicas", "2", *_TRAFFIC], "--replicas are servers that prefill and"),
        ({}, ["--prefill", "1", "--decode", "1", "--router", "rr", *_TRAFFIC], "give more --prefill or --decode"),
        ({}, ["--fail", "two:at=3s", *_TRAFFIC], "--fail two:at=3s: 'two' is not the number of a replica, from 1 on"),
        ({}, ["--fail", "2:at=3s", *_TRAFFIC], "--fail 2:at=3s: the deployment has at most 1 replica"),
        ({}, ["--prefill", "1", "--decode", "1", "--fail", "1:at=3s", *_TRAFFIC], "--fail is for servers that prefill and"),
        ({}, ["--router", "prefix", *_TRAFFIC], "--router prefix needs --prefix_cache"),
        ({}, ["--kv_blocks", "4", *_TRAFFIC], "--kv_blocks 4: a request of 159 tokens needs 5 of them"),
        ({"schema": 9}, _TRAFFIC, "is a model of schema 9"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: dict[str, Any], arguments: list[str], reason: str
) -> None:
    path = model_file(tmp_path / "model.json", **model)
    assert run(["simulate", "run", "--model", str(path), *arguments]) == ExitStatus.USAGE
    assert reason in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


def test_options_of_a_real_server_and_of_its_client_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = ["--url", "h:1", "--max_num_sequences", "1", "--workers", "2", "--connections", "3", "--request_timeout", "9"]
    _simulated(tmp_path, "run", "--draws", "0", traffic=[*_TRAFFIC, *real])
    assert (
        "Without effect in a simulation: --url, --max_num_sequences, --workers, --connections, --request_timeout."
    ) in capsys.readouterr().err.splitlines()


def test_requests_that_the_simulator_has_no_answer_for_are_refused() -> None:
    for request, reason in (
        (Request(5, prompt="text"), "the lengths of the prompts are not known"),
        (Request(5, input_ids=(1, 2), cancel=CancelPoint(after_tokens=2)), "--cancel"),
    ):
        with pytest.raises(click.UsageError, match=reason):
            simulated_traffic(Schedule((request,), (0,), 1), 0)


def test_a_faster_schedule_is_the_same_one_in_less_time() -> None:
    schedule = Schedule(tuple(Request(3, input_ids=(1,) * 9) for _ in range(4)), (0, 10**9, 2 * 10**9, 3 * 10**9), 1)
    simulated = simulated_traffic(schedule, template_tokens=2)
    assert [at for at, _ in simulated.clients(2.0).first()] == [0.0, 0.5, 1.0, 1.5]
    assert simulated.traffic.input_tokens.tolist() == [11] * 4


def test_another_scheduler_than_the_fitted_one_is_simulated_and_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = read_observed(_simulated(tmp_path, "one", "--draws", "0"))
    capsys.readouterr()
    limits = ["--scheduler", "prefill_first", "--chunk", "64", "--max_num_sequences", "2", "--kv_blocks", "12"]
    other = read_observed(_simulated(tmp_path, "other", "--draws", "0", *limits))
    said = capsys.readouterr()
    begin = "SIMULATED BEYOND WHAT ITS MODEL WAS FITTED TO (scheduler prefill_first, which was not fitted"
    assert " ".join(said.out.split()).startswith(begin)
    for text in ("at most 64 tokens a step", "at most 2 sequences a step", "a KV cache of 12 blocks"):
        assert f"{text}, which was not fitted" in " ".join(said.err.split())
    _simulated(tmp_path, "single", "--draws", "0", "--chunk", "1", "--max_num_sequences", "1")
    assert "at most 1 token a step, which was not fitted; at most 1 sequence a step, which" in capsys.readouterr().err
    assert (other.first_s - other.sent_s).mean() > 2 * (one.first_s - one.sent_s).mean()


def test_prefix_caches_of_replicas_shorten_prompts_that_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traffic = ["token_norm_dist", "--num_requests", "60", "--isl", "20", "--osl", "5"]
    traffic += ["--prefix_groups", "4", "--prefix_len", "180"]
    options = ["--draws", "0", "--replicas", "2", "--router", "prefix", "--prefix_cache", "64000"]
    folder = _simulated(tmp_path, "cached", *options, traffic=traffic)
    cached = RunFolder(folder).read_requests(("cached_input_tokens",))["cached_input_tokens"].to_numpy()
    assert np.median(cached) > 100
    assert "prefix cache of 64,000 tokens" in " ".join(capsys.readouterr().out.split())


def test_a_block_is_that_of_the_simulator_and_of_the_workload() -> None:
    from bench_cli.simulate.deployment_options import BLOCK_TOKENS

    assert BLOCK_TOKENS == KV_BLOCK_TOKENS == prefixes.BLOCK_TOKENS


def test_router_names_are_those_of_the_simulator() -> None:
    from bench_cli.simulate.deployment_options import ROUTERS

    assert tuple(router.value for router in Router) == ROUTERS
    traffic = poisson(50, 20, 1)
    assert simulate_deployment(Deployment(SERVER, 3), traffic, clients_of(traffic), 1).replicas.max() == 2


def test_prefill_and_decode_on_replicas_of_their_own_are_named_as_beyond_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--prefill", "1", "--decode", "2", "--transfer_ms", "20", "--transfer_tokens_per_s", "30000", "--draws", "1")
    apart, together = _simulated(tmp_path, "apart", *options), _simulated(tmp_path, "together", "--draws", "0")
    said = " ".join(capsys.readouterr().err.split())
    assert "beyond what the model was fitted to: prefill and decode on replicas of their own, which was not fitted" in said
    summary = json.loads((apart / "summary.json").read_text())
    simulation = summary["simulation"]
    assert {name: simulation[name] for name in ("replicas", "prefill_replicas", "transfer_ms", "transfer_tokens_per_s")} == {
        "replicas": 3,
        "prefill_replicas": 1,
        "transfer_ms": pytest.approx(20.0),
        "transfer_tokens_per_s": 30_000.0,
    }
    assert "1 prefill and 2 decode replicas with a router (random)" in (apart / "report.md").read_text()
    assert "simulated by model.json, 1 prefill and 2 decode replicas, router random" in (apart / "report.md").read_text()
    low, high = simulation["ranges"]["ttft_ms"]["p50"]
    p50 = summary["metrics"]["ttft_ms"]["scheduled"]["p50"]
    assert low <= p50 + 1e-6
    assert p50 <= high
    before = json.loads((together / "summary.json").read_text())["metrics"]["ttft_ms"]["scheduled"]["p50"]
    assert p50 > before + 20 + 150 / 30  # the transfer, and the way into a second server
    assert json.loads((together / "summary.json").read_text())["simulation"]["prefill_replicas"] is None


def test_replicas_that_decode_fetch_what_others_prefilled_where_a_post_takes_time(tmp_path: Path) -> None:
    options = ("--prefill", "1", "--decode", "2", "--transfer_ms", "20", "--draws", "0")
    sent, fetched = (
        json.loads((_simulated(tmp_path, name, *options, *more) / "summary.json").read_text())
        for name, more in (("sent", ()), ("fetched", ("--transfer_post_ms", "8", "--transfer_post_tokens_per_s", "30000")))
    )
    facts = ("transfer_ms", "transfer_post_ms", "transfer_post_tokens_per_s")
    assert [sent["simulation"][name] for name in facts] == pytest.approx([20.0, None, None])
    assert [fetched["simulation"][name] for name in facts] == pytest.approx([20.0, 8.0, 30_000.0])
    first, then = (each["metrics"]["ttft_ms"]["scheduled"]["p50"] for each in (sent, fetched))
    assert then > first + 8 + 150 / 30


def test_replicas_that_fail_and_are_started_are_counted_and_their_requests_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaler = tmp_path / "scale.toml"
    scaler.write_text("target_in_flight = 2\nmin_replicas = 2\nmax_replicas = 4\ninterval_s = 0.5\nstartup_s = 0.2\n")
    options = ("--autoscale", str(scaler), "--fail", "1:at=1.5s,for=1s", "--draws", "1")
    folder = _simulated(tmp_path, "run", *options, traffic=["600" if each == "120" else each for each in _TRAFFIC])
    said = " ".join(capsys.readouterr().err.split())
    assert "There were 2 to 4 replicas, " in said
    report = read_run(RunFolder(folder))
    simulation = report.manifest.simulation
    assert simulation is not None
    assert simulation.fleet is not None
    assert simulation.replicas == 2
    assert simulation.fleet.failures == ("1:at=1.5s,for=1s",)
    assert simulation.fleet.autoscaler is not None
    assert simulation.fleet.autoscaler["target_in_flight"] == 2.0
    end_s = report.manifest.duration_s
    assert end_s is not None
    assert simulation.fleet.mean == pytest.approx(simulation.fleet.replica_s / end_s, rel=1e-3)
    cut = [kind for kind in report.requests.outcome if kind == "stream_cut"]
    assert 1 <= len(cut) == report.metrics.failed
    assert "2 to 4 replicas with a router (random)" in (folder / "report.md").read_text()
    cut_at = report.requests.done_ns[report.requests.outcome == "stream_cut"]
    assert (cut_at == 1_500_000_000).all()


def test_the_replicas_that_there_were_are_said_with_failures_that_changed_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _simulated(tmp_path, "run", "--replicas", "2", "--fail", "2:at=0s", "--fail", "1:at=9h", "--draws", "0")
    said = " ".join(capsys.readouterr().err.split())
    assert "There was 1 replica, 1 in the mean over time" in said
    assert "--fail 1:at=32400s: the simulation had ended before." in said
    assert "simulated by model.json, router random" in (folder / "report.md").read_text()


def test_what_a_fleet_came_to_is_a_result_and_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scaler = tmp_path / "scale.toml"
    scaler.write_text("target_in_flight = 2\nmax_replicas = 4\ninterval_s = 0.5\nstartup_s = 0.2\n")
    traffic = [["300" if each == "120" else each for each in _TRAFFIC[:-1]] + [seed] for seed in ("5", "6")]
    options = ("--autoscale", str(scaler), "--draws", "0")
    folders = [str(_simulated(tmp_path, f"run{seeded[-1]}", *options, traffic=seeded)) for seeded in traffic]
    capsys.readouterr()
    run(["compare", *folders])
    said = " ".join(capsys.readouterr().out.split())
    assert "note simulation.fleet.mean: " in said
    assert "A result of the runs, not a setting." in said
    assert "changed simulation.fleet" not in said


def test_turns_after_one_whose_replica_failed_have_records_as_not_sent(tmp_path: Path) -> None:
    turns = [{"from": "human" if place % 2 == 0 else "gpt", "value": "a b c d e f g h"} for place in range(6)]
    dataset = tmp_path / "conversations.json"
    dataset.write_text(json.dumps([{"id": f"c{number}", "conversations": turns} for number in range(40)]))
    traffic = ["dataset", "--dataset", str(dataset), "--sessions", "think_time", "--think_time", "0.1", "--request_rate", "40"]
    options = ["--replicas", "4", "--fail", "1:at=0.5s", "--draws", "0"]
    arguments = ["simulate", "run", "--model", str(model_file(tmp_path / "model.json")), *options, *traffic]
    run([*arguments, "--run_dir", str(tmp_path / "run")])
    requests = read_run(RunFolder(tmp_path / "run")).requests
    outcomes = requests.outcome.tolist()
    assert len(outcomes) == 120
    cut, unsent = outcomes.count("stream_cut"), outcomes.count("not_sent")
    assert cut >= 1
    assert 1 <= unsent <= 2 * cut
    assert outcomes.count("done") == 120 - cut - unsent


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("max_replicas = 2", "Object missing required field `target_in_flight`"),
        ("target_in_flight = 2\nmax_replicas = 2\nmost = 3", "it has no 'most'; known are target_in_flight, max_replicas,"),
        ("target_in_flight = 2\nmax_replicas = 2\nmin_replicas = 3", "min_replicas, 3, is above max_replicas, 2"),
        ("{}", "Invalid statement (at line 1, column 1)"),
        ("target_in_flight = 2\nmax_replicas = 2\ninterval_s = 1e-9", "Expected `float` >= 0.1 - at `$.interval_s`"),
    ],
)
def test_the_file_of_an_autoscaler_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    scaler = tmp_path / "scale.toml"
    scaler.write_text(text)
    model = str(model_file(tmp_path / "model.json"))
    assert run(["simulate", "run", "--model", model, "--autoscale", str(scaler), *_TRAFFIC]) == ExitStatus.USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert f"--autoscale {scaler}" in said
    assert reason in said
