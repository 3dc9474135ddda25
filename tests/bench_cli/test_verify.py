"""``bench verify``: what differs now from a run's server, engine, machine and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.free_port import closed_port
from tests.harness.chat_server import WHOLE, chat_server
from tests.harness.scripted_server import ScriptedServer, scripted_server

_LINE = ["token_norm_dist", "--vocab_size", "100", "--isl", "4", "--osl", "3", "--num_requests", "5", "--warmup_requests", "0"]
_TOKENIZER = ["--tokenizer_dir", str(Path(__file__).parents[2] / "serving" / "demo_engine")]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedServer]:
    """A server that describes itself."""
    with scripted_server(tmp_path_factory.mktemp("described") / "log", setting="256") as running:
        yield running


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _record(server: ScriptedServer, *options: str) -> dict[str, Any]:
    run([*_LINE, "--url", server.address, "--model", "scripted", "--run_dir", "recorded", *options])
    return dict(RunFolder(Path("recorded")).read_document()[0])


def _change(**keys: Any) -> None:
    path = Path("recorded/run.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def test_a_run_records_what_the_server_says_of_itself(described: ScriptedServer) -> None:
    deployment = _record(described)["deployment"]
    assert (deployment["server"], deployment["version"], deployment["extensions"]) == ("script", "1.0", ["model_configuration"])
    parameters = {"engine": "script", "max_num_sequences": "256"}
    assert {name: config["parameters"] for name, config in deployment["models"].items()} == dict.fromkeys(
        ("scripted", "text"), parameters
    )
    shown = Path("recorded/report.html").read_text()
    assert "deployment.models" in shown
    assert "deployment.models.scripted" not in shown


def test_nothing_differs_while_nothing_is_changed(described: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    _record(described)
    capsys.readouterr()
    sent = described.received()
    assert run(["verify", "recorded"]) == ExitStatus.VALID
    shown = capsys.readouterr()
    assert shown.out.startswith("Nothing differs: all ")
    assert shown.out.endswith(" facts are those of recorded.\n")
    assert shown.err == ""
    assert described.received() == sent  # no request


def test_a_changed_setting_of_the_engine_is_named(
    described: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = _record(described)
    _change(environment={**recorded["environment"], "kernel": "5.10.0"})
    capsys.readouterr()
    with scripted_server(tmp_path / "log", setting="8") as other:
        assert run(["verify", "recorded", "--url", other.address]) == ExitStatus.INVALID
    shown = capsys.readouterr().out
    assert " facts differ from recorded.\n" in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith(("model", "machine"))]
    assert rows[:2] == [["model", f"{name}.parameters.max_num_sequences", "256", "8"] for name in ("scripted", "text")]
    assert rows[2][:3] == ["machine", "kernel", "5.10.0"]
    assert len(rows) == 3


def test_what_a_run_or_a_server_does_not_say_is_named(
    server: ScriptedServer, described: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(described)
    capsys.readouterr()
    assert run(["verify", "recorded", "--url", server.address]) == ExitStatus.INVALID  # it has not the parameter
    shown = " ".join(capsys.readouterr().out.split())
    assert "parameters max_num_sequences 256 –" in shown
    missing = "the server's name and version; the configuration of the models"
    assert shown.endswith(f"Not compared, since the run or the server does not say it: {missing}.")
    _change(deployment=None, environment=None)
    assert run(["verify", "recorded"]) == ExitStatus.VALID
    assert f"does not say it: {missing}; this machine; the versions of the software." in capsys.readouterr().out


def test_a_server_of_openais_protocol_has_its_list_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    line = [_LINE[0], *_LINE[3:], *_TOKENIZER, "-i", "openai", "--run_dir", "recorded"]
    with chat_server(lambda _: WHOLE) as chat:
        run([*line, "--url", f"127.0.0.1:{chat.port}", "--header", "Authorization: Bearer a-key-of-the-test"])
        capsys.readouterr()
        sent = len(chat.bodies)
        assert run(["verify", "recorded"]) == ExitStatus.USAGE
        assert "give them again: --header 'Authorization: …'" in " ".join(capsys.readouterr().err.split())
        key = ["--header", "Authorization: Bearer a-key-of-the-test"]
        assert run(["verify", "recorded", *key]) == ExitStatus.VALID
        assert len(chat.bodies) == sent
    with chat_server(lambda _: WHOLE, models=("m", "n")) as chat:
        assert run(["verify", "recorded", *key, "--model", "m", "--url", f"127.0.0.1:{chat.port}"]) == ExitStatus.INVALID
    assert "model n " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        (["recorded", "--url", f"127.0.0.1:{closed_port()}"], ExitStatus.FAILED, "no server answers there"),
        (["recorded", "--model", "other"], ExitStatus.FAILED, "--model other: the server at "),
        (["nowhere"], ExitStatus.USAGE, "nowhere is not a run folder: it has no run.json"),
        (["--url", "a:1", "recorded"], ExitStatus.USAGE, "--url comes after the folder of the run: bench verify RUN --url"),
    ],
)
def test_a_failure_is_one_sentence(
    described: ScriptedServer, capsys: pytest.CaptureFixture[str], line: list[str], status: ExitStatus, message: str
) -> None:
    _record(described)
    capsys.readouterr()
    assert run(["verify", *line]) == status
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_an_option_that_contradicts_a_recorded_one_names_the_remedy(
    described: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _record(described)
    capsys.readouterr()
    assert run(["verify", "recorded", "--max_num_sequences", "8"]) == ExitStatus.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert "it cannot be combined with --url ('bench verify --without OPTION recorded …' leaves a recorded option out)" in error


def test_the_server_of_a_run_that_is_gone_is_named_with_the_option_for_another(capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(lambda _: WHOLE) as chat:
        url = f"127.0.0.1:{chat.port}"
        line = ["token_norm_dist", "-i", "openai", "--url", url, "--isl", "4", "--osl", "5", "--num_requests", "5"]
        run([*line, "--run_dir", "recorded", *_TOKENIZER])
    capsys.readouterr()
    assert run(["verify", "recorded"]) == ExitStatus.FAILED
    assert capsys.readouterr().err.startswith(f"Error: --url http://{url}: no server answers there")


def test_secrets_in_a_configuration_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench_cli.measurement.secrets import without_secrets

    config = {"parameters": {"api_key": "canary", "tokenizer_dir": "/engine", "list": ["a canary-2 b"]}}
    assert without_secrets(config, ("canary-2",)) == {
        "parameters": {"api_key": "(not written down)", "tokenizer_dir": "/engine", "list": ["a (not written down) b"]}
    }
