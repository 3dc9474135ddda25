"""``bench replay``: a recorded run is sent again, with the options that are given in place of the recorded ones."""

from __future__ import annotations

import json
import re
import shutil
import stat
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.chat_server import WHOLE, chat_server
from tests.harness.scripted_server import ScriptedServer

_TOKENIZER = ["--tokenizer_dir", str(Path(__file__).parents[2] / "serving" / "demo_engine")]
_RANDOM = ["token_norm_dist", "--vocab_size", "100", "--osl", "4", "--num_requests", "9"]
_MEASURED = (ExitStatus.VALID, ExitStatus.INVALID)  # a busy machine may send late


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _record(server: ScriptedServer, *line: str, model: str = "scripted") -> Path:
    """A run in the folder ``recorded``."""
    of_target = ["--url", server.address, "--model", model, "--warmup_requests", "0", "--run_dir", "recorded"]
    assert run([*line, *of_target]) in _MEASURED
    return Path("recorded")


@pytest.fixture(scope="module")
def _plain_run(server: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that the tests copy which do not measure it otherwise."""
    with chdir(tmp_path_factory.mktemp("plain")):
        return _record(server, *_RANDOM, "--isl", "5").absolute()


@pytest.fixture
def recorded(_plain_run: Path) -> Path:
    """A copy of the plain run, in the folder ``recorded``."""
    return Path(shutil.copytree(_plain_run, "recorded"))


def _replayed(*line: str) -> dict[str, Any]:
    """The manifest of a replay into a folder of its own below ``runs``."""
    before = set(Path("runs").glob("*"))
    assert run(["replay", *line]) in _MEASURED
    (new,) = set(Path("runs").glob("*")) - before
    return dict(RunFolder(new).read_document()[0])


def _files(folder: Path) -> dict[str, list[str]]:
    """The options of a verb that need a file, which is made in ``folder``."""
    prompts = [{"timestamp": 20 * k, "prompt": f"say {k}", "output_tokens": k + 1} for k in range(6)]
    (folder / "trace.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    said = [[{"from": who, "value": f"{who} {k}"} for who in ("human", "gpt") * 2] for k in range(3)]
    (folder / "chats.json").write_text(json.dumps([{"id": str(k), "conversations": turns} for k, turns in enumerate(said)]))
    (folder / "other.csv").write_text("q,n\nsay a,2\nsay b,3\n")
    run(["workload", "import", str(folder / "trace.jsonl"), "-o", str(folder / "trace.parquet")])
    (folder / "corpus.txt").write_text("The quick brown fox jumps over the lazy dog. " * 60)
    (folder / "chunk-0-trace.csv").write_text("0,20,1,Gamma,1,0.05\n")
    (folder / "chunk-0-dataset.json").write_text('{"0": {"input_tokens": "{9: 1}", "output_tokens": "{2: 1}"}}')
    run(["workload", "synthesize", str(folder), "--duration", "0.5", "-o", str(folder / "clients.parquet")])
    return {
        "trace": ["trace", "trace.jsonl", "--speed", "2", "--start", "0.02", "--duration", "0.09"],
        "trace at a rate": ["trace", "trace.jsonl", "--request_rate", "60"],
        "trace of users": ["trace", "trace.jsonl", "--concurrency", "2"],
        "dataset": ["dataset", "--dataset", "chats.json", "--repeat_dataset", "--num_requests", "7", "--request_rate", "90"],
        "sessions": ["dataset", "--dataset", "chats.json", "--sessions", "think_time", "--think_time", "0.01"],
        "users": ["dataset", "--dataset", "chats.json", "--sessions", "think_time", "--users", "2", "--user_rate", "50"],
        "columns": ["dataset", "--dataset", "other.csv", "--field", "prompt=q", "--field", "output_tokens=n"],
        "imported": ["trace", "trace.parquet", "--speed", "2"],
        "clients": ["trace", "clients.parquet", "--speed", "2"],
        "corpus": ["dataset", "--dataset", "corpus.txt", "--isl", "9", "--osl", "3", "--num_requests", "5"],
    }


@pytest.mark.parametrize(
    "line",
    [
        [*_RANDOM, "--isl", "12:3", "--request_rate", "200", "--seed", "7", "--slo", "e2e<=60s"],
        [*_RANDOM, "--isl", "zipf:exponent=1.5,min=1,max=9", "--concurrency", "2", "--no_ignore_eos"],
        [*_RANDOM, "--isl", "5", "--arrival", "gamma:cv=2", "--request_rate", "300", "--max_concurrency", "3"],
        [*_RANDOM, "--isl", "5", "--rate_profile", "stages:100/s*0.1s,300/s*1s", "--fail_if", "p99_e2e>60s"],
        [*_RANDOM, "--isl", "5", "--prefix_groups", "2", "--prefix_len", "8", "--system_prompt_len", "4"],
        [*_RANDOM, "--isl", "5", "--request_rate", "200", "--class", "a:weight=3", "--class", "b:slo=e2e<=9s"],
        [*_RANDOM, "--isl", "5", "--request_rate", "90", "--cancel", "50%:after=2tokens", "--probe_rate", "50", *_TOKENIZER],
        ["token_from_histogram", "--histogram_key", "example", "--vocab_size", "100", "--num_requests", "6"],
        ["dataset", "--num_requests", "4", "--request_rate", "100", *_TOKENIZER],
    ],
    ids=lambda line: " ".join(line[5:9]),
)
def test_a_replay_has_the_schedule_and_the_options_of_the_run(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    recorded = RunFolder(_record(server, *line)).read_document()[0]
    capsys.readouterr()
    replayed = _replayed("recorded")
    shown = capsys.readouterr()
    assert replayed["schedule"] == recorded["schedule"]
    assert {**replayed["options"], "run_dir": None} == {**recorded["options"], "run_dir": None}
    digest = recorded["schedule"]["digest"][:12]
    requests = recorded["workload"]["requests"]
    up_to = "up to " if "--rate_profile" in line else ""  # which ends by the clock
    said = f"Replays recorded: {line[0]}, {up_to}{requests:,} requests, seed {recorded['schedule']['seed']}, digest {digest}.\n"
    assert said in shown.err
    said, compare = shown.out.splitlines()[-2:]
    assert said == f"The schedule is the recorded one (digest {digest})."
    assert compare.startswith("Compare: bench compare recorded runs/")


@pytest.mark.parametrize(
    "kind",
    ["trace", "trace at a rate", "trace of users", "dataset", "sessions", "users", "corpus", "columns", "imported", "clients"],
)
def test_a_replay_reads_the_file_of_the_run_again(server: ScriptedServer, tmp_path: Path, kind: str) -> None:
    line = [*_files(tmp_path)[kind], *_TOKENIZER]
    recorded = RunFolder(_record(server, *line, model="text")).read_document()[0]
    assert _replayed("recorded")["schedule"] == recorded["schedule"]


def test_another_file_and_one_in_place_of_standard_input_can_be_given(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = _record(server, *_files(tmp_path)["trace at a rate"], *_TOKENIZER, model="text")
    digest = RunFolder(recorded).read_document()[0]["schedule"]["digest"]
    Path("trace.jsonl").rename("moved.jsonl")
    assert _replayed("recorded", "moved.jsonl")["schedule"]["digest"] == digest
    path = recorded / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "workload": {**document["workload"], "trace": "-"}}))
    capsys.readouterr()
    assert run(["replay", "recorded"]) == ExitStatus.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert "recorded read its requests from standard input, which is not recorded; give FILE after RUN" in error
    assert _replayed("recorded", "moved.jsonl")["schedule"]["digest"] == digest


def test_a_comparison_with_the_replay_finds_nothing_that_was_sent_otherwise(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(server, *_RANDOM, "--isl", "12:3", "--request_rate", "200")
    _replayed("recorded")
    compare = capsys.readouterr().out.splitlines()[-1].removeprefix("Compare: bench ").split()
    assert run([*compare, "--allow_different", "--output", "compare.json"]) == ExitStatus.VALID
    document = json.loads(Path("compare.json").read_text())
    differing = {reason["what"] for arm in document["comparisons"] for reason in arm["disagreements"]}
    sent = {"workload", "schedule", "arrivals", "load", "mixture", "target"}
    assert not [what for what in differing if re.split(r"\W", what)[0] in sent]  # schedule_slip is a finding


# ---- options in place of the recorded ones


def test_options_after_the_run_win_and_what_they_change_is_said(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(server, *_RANDOM, "--isl", "12:3", "--request_rate", "200", "--seed", "7")
    replayed = _replayed("recorded", "--request-rate", "400", "--slo", "e2e<=50s")
    shown = capsys.readouterr()
    assert "Changed: --request_rate, --slo.\n" in shown.err
    assert (replayed["options"]["request_rate"], replayed["schedule"]["seed"]) == (400.0, 7)
    assert replayed["options"]["slo"] == ["e2e<=50000ms"]
    (said,) = [line for line in shown.out.splitlines() if line.startswith("The schedule is not the recorded one (digest ")]
    assert said.endswith(". 9 requests are in both runs, and 8 were due at another time; the first is request 1.")


def test_requests_that_are_no_longer_the_same_are_counted(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    _record(server, *_RANDOM, "--isl", "5", "--concurrency", "2")
    _replayed("recorded", "--osl", "6", "--num_requests", "12")
    said = capsys.readouterr().out
    assert "9 requests are in both runs, and 9 have another output length; the first is request 0; 3 are new." in said
    _replayed("recorded", "--num_requests", "4")
    said = capsys.readouterr().out
    assert "4 requests are in both runs, with the same lengths; 5 are not sent any more." in said
    _replayed("recorded", "--seed", "1")
    assert "9 requests are in both runs, with the same lengths, so their prompts differ." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recorded", "changed"),
    [
        (("--concurrency", "2"), ("--concurrency", "3")),
        (("--request_rate", "200"), ("--without", "request_rate", "--concurrency", "2")),
    ],
    ids=["users", "loop"],
)
def test_other_users_are_not_taken_for_other_prompts(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], recorded: tuple[str, ...], changed: tuple[str, ...]
) -> None:
    _record(server, *_RANDOM, "--isl", "5", *recorded)
    _replayed("recorded", *changed)
    assert "9 requests are in both runs, with the same lengths, and the load is another one." in capsys.readouterr().out


def test_a_recorded_option_can_be_left_out(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    _record(server, *_RANDOM, "--isl", "5", "--request_rate", "200")
    capsys.readouterr()
    assert run(["replay", "recorded", "--concurrency", "2"]) == ExitStatus.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert "--request_rate cannot be combined with --concurrency" in error
    assert "('bench replay --without OPTION recorded …' leaves a recorded option out)" in error
    assert not Path("runs").exists()
    replayed = _replayed("--without", "request-rate", "recorded", "--concurrency", "2")
    assert (replayed["options"]["request_rate"], replayed["load"]["mode"]) == (-1.0, "closed")
    assert "Changed: --concurrency, --without request_rate." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--seed", "3", "recorded"], "--seed comes after the folder of the run: bench replay RUN --seed"),
        (["recorded", "--sed", "3"], "No such option '--sed'. Did you mean '--seed'?"),
        (["recorded", "--seed", "many"], "'many' is not a valid integer"),
        (["--without", "sed", "recorded"], "'sed' is no option of token_norm_dist; did you mean 'seed'?"),
        (["--without", "duration", "recorded"], "'duration': the run was measured without it"),
        (["--without", "step-log", "recorded"], "'step-log' is never repeated, so it need not be left out"),
        (["--without", "run_dir", "recorded"], "'run_dir' is never repeated, so it need not be left out"),
        ([], "Missing argument 'RUN'"),
        (["nowhere"], "nowhere is not a run folder: it has no run.json"),
    ],
)
@pytest.mark.usefixtures("recorded")
def test_a_mistake_is_one_sentence(capsys: pytest.CaptureFixture[str], line: list[str], message: str) -> None:
    capsys.readouterr()
    assert run(["replay", *line]) == ExitStatus.USAGE
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "changed", [{"verb": "serve"}, {"verb": "replay"}, {"verb": None}, {"options": {}}, {"options": {"help": True}}]
)
def test_a_folder_from_elsewhere_can_only_be_measured(
    recorded: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any]
) -> None:
    path = recorded / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    capsys.readouterr()
    assert run(["replay", "recorded"]) == ExitStatus.USAGE
    assert "recorded/run.json" in capsys.readouterr().err


# ---- what is not repeated


def test_folders_of_the_run_are_not_used_again(recorded: Path, tmp_path: Path) -> None:
    path = recorded / "run.json"
    document = json.loads(path.read_text())
    document["options"]["plots"] = "plots"
    path.write_text(json.dumps(document))
    Path("plots").mkdir()
    Path("plots/rates.png").write_text("as drawn by the run")
    before = {path: path.stat().st_mtime_ns for folder in (recorded, Path("plots")) for path in folder.iterdir()}
    replayed = _replayed("recorded")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert replayed["options"]["plots"] is None
    (folder,) = Path("runs").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(["replay", "recorded", "--run_dir", "named"]) in _MEASURED
    assert RunFolder(tmp_path / "named").read_document()[0]["schedule"] == replayed["schedule"]
    assert run(["replay", "recorded", "--run_dir", "named"]) == ExitStatus.USAGE


def test_the_step_log_of_the_run_is_not_used_again_and_that_is_said(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded / "run.json"
    document = json.loads(path.read_text())
    assert document["options"]["plots"] is None
    document["options"]["plots"] = "plots"
    document["options"]["engine_settings"]["step_log"] = str(tmp_path / "steps.csv")
    path.write_text(json.dumps(document))
    assert _replayed("recorded", "--seed", "3")["options"]["engine_settings"]["step_log"] is None
    assert not (tmp_path / "steps.csv").exists()
    assert "Changed: --seed. Not repeated: --plots, --step_log.\n" in capsys.readouterr().err
    _replayed("recorded", "--plots", "others")
    assert {"rates.png", "rates.svg"} <= {path.name for path in Path("others").iterdir()}
    assert not Path("plots").exists()
    assert "Changed: --plots. Not repeated: --step_log.\n" in capsys.readouterr().err


def test_secrets_have_to_be_given_again_and_other_headers_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = ["--header", "Authorization: $TOKEN", "--header", "X-Route: a", "--header", "X-Team: $$t"]
    body = ["--extra_body", '{"api_key": "$TOKEN", "top_k": 1}']
    load = [*_RANDOM[:1], *_RANDOM[3:], "--isl", "4", *_TOKENIZER, "--warmup_requests", "0", "--concurrency", "1"]
    monkeypatch.setenv("TOKEN", "canary-of-the-run")
    with chat_server(lambda _: WHOLE) as chat:
        target = ["-i", "openai", "--url", f"127.0.0.1:{chat.port}", "--endpoint", "/v1/chat/completions?sig=$TOKEN"]
        run([*load, *target, *headers, *body, "--run_dir", "recorded"])
        capsys.readouterr()
        assert run(["replay", "recorded"]) == ExitStatus.USAGE
        error = " ".join(capsys.readouterr().err.split())
        assert "recorded was recorded without its secrets; give them again: --header 'Authorization: …'" in error
        assert "--endpoint '/v1/chat/completions?sig=…'" in error
        assert """--extra_body '{"api_key": "…", "top_k": 1}'""" in error
        assert "X-Route" not in error
        assert not Path("runs").exists()
        given = ["--header", "authorization: $TOKEN", "--without", "endpoint", *body]
        run(["replay", "recorded", *given])
    (new,) = Path("runs").iterdir()
    options = RunFolder(new).read_document()[0]["options"]
    assert options["header"] == ["authorization: (not written down)", "X-Route: a", "X-Team: $$t"]
    assert options["endpoint"] is None
    assert RunFolder(new).read_manifest().schedule == RunFolder(Path("recorded")).read_manifest().schedule
    assert not [path for path in new.iterdir() if b"canary-of-the-run" in path.read_bytes()]


def test_a_config_file_wins_over_the_recorded_options_too(server: ScriptedServer) -> None:
    _record(server, *_RANDOM, "--isl", "5", "--request_rate", "200")
    Path("bench.toml").write_text("request_rate = 300\n")
    options = _replayed("recorded", "--config", "bench.toml")["options"]
    assert (options["request_rate"], options["num_requests"]) == (300.0, 9)
