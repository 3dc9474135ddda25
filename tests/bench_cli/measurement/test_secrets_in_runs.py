"""Secrets in every option that takes one, in real processes against a server that repeats them: they are found nowhere."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import pytest

from bench_cli import run as cli
from bench_errors import ExitStatus
from harness.clients.secret_values import HIDDEN
from harness.distribution.admission import TOKEN_VARIABLE
from tests.bench_cli.measurement.secret_places import Echo, Search, echo_server
from tests.free_port import free_port

_TOKENIZER = str(Path(__file__).parents[3] / "serving" / "demo_engine")
_LOAD = ["--isl", "4", "--osl", "5", "--num_requests", "8", "--warmup_requests", "2", "--concurrency", "2"]
_SECRETS = {
    "--header": "canary-of-the-header",
    "--header, Authorization": "canary-of-authorization",
    "--extra_body": 'canary-"of"-the-body',
    "--endpoint": "canary+of%2Fthe-endpoint",
    "--endpoint, code": "canary-of-the-code",
    "--metrics_url": "canary-of-the-metrics",
    "OPENAI_API_KEY": "canary-of-the-environment",
}


def _bench(
    *arguments: str, cwd: Path, environment: dict[str, str], errors: BinaryIO | int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench_cli", *arguments]
    environment = {**os.environ, "OPENAI_API_KEY": _SECRETS["OPENAI_API_KEY"], **environment}
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=errors)


def _options(echo: Echo, spelled: dict[str, str]) -> dict[str, str | list[str]]:
    """The options of a measurement, with secrets as ``spelled``."""
    address = f"http://127.0.0.1:{echo.port}"
    return {
        "--url": address,
        "--header": [f"X-Signature: {spelled['--header']}", f"Authorization: Bearer {spelled['--header, Authorization']}"],
        "--extra_body": json.dumps({"nvext": {"api_key": spelled["--extra_body"]}}),
        "--endpoint": f"/v1/chat/completions?api-key={spelled['--endpoint']}&code={spelled['--endpoint, code']}",
        "--metrics_url": f"{address}/metrics?token={spelled['--metrics_url']}",
    }


def _words(options: dict[str, str | list[str]]) -> list[str]:
    pairs = [(name, word) for name, value in options.items() for word in ([value] if isinstance(value, str) else value)]
    return [word for pair in pairs for word in pair]


def _references(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Each secret as @FILE or $VARIABLE, and the environment that the latter need."""
    spelled, environment = {}, {}
    for number, (option, secret) in enumerate(_SECRETS.items()):
        if number % 2:
            (folder / f"secret-{number}").write_text(secret + "\n")
            spelled[option] = f"@{folder / f'secret-{number}'}"
        else:
            environment[f"SECRET_{number}"] = secret
            spelled[option] = f"$SECRET_{number}"
    return spelled, environment


def _check_sent(echo: Echo) -> None:
    """Each secret reached the server, which repeated it: without this the search would find nothing in any case."""
    sent = "\n".join(echo.received)
    for option, secret in _SECRETS.items():
        if option != "OPENAI_API_KEY":  # --header has its own Authorization
            assert secret in sent or json.dumps(secret)[1:-1] in sent, option


needs_locust = pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")


def _open_to_others(folder: Path) -> list[str]:
    return [str(path) for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.parametrize("distributed", [False, pytest.param(True, marks=needs_locust)])
def test_secrets_by_reference_are_in_no_file_log_page_memory_or_process_list(tmp_path: Path, distributed: bool) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    spelled, environment = _references(secrets)
    (secrets / "authorization").write_text(f"Bearer {_SECRETS['--header, Authorization']}")
    run, work = tmp_path / "run", tmp_path / "work"
    run.mkdir(mode=0o755)  # a folder that exists is closed, too
    token = "2f1c9a7e-worker-token"
    (secrets / "token").write_text(token)
    environment |= {TOKEN_VARIABLE: token}
    search = Search({**_SECRETS, TOKEN_VARIABLE: token})
    with echo_server() as echo:
        options = _options(echo, spelled)
        options["--header"] = [f"X-Signature: {spelled['--header']}", f"Authorization: @{secrets / 'authorization'}"]
        port, page = str(free_port()), str(free_port())
        awaiting = ["--distributed", "--expect_workers", "1", "--master_bind_port", port, "--web_ui", "--web_port", page]
        apart = awaiting if distributed else ["--workers", "1"]
        line = ["token_norm_dist", "-i", "openai", *_words(options), *_LOAD, "--tokenizer_dir", _TOKENIZER, *apart]
        with (tmp_path / "errors").open("wb") as file:
            processes = [_bench(*line, "--run_dir", str(run), cwd=tmp_path, environment=environment, errors=file)]
        if distributed:
            of_worker = ["--work_dir", str(work), "--worker_token_file", str(secrets / "token")]
            processes.append(_bench("worker", "--master_port", port, *of_worker, cwd=tmp_path, environment={}))
        search.while_alive(processes, [run, work], echo, argv=True, page=distributed)
        for process in processes:
            output, own_errors = process.communicate(timeout=120)
            search.text("output", output)
            search.text("errors", own_errors or b"")
        errors = (tmp_path / "errors").read_bytes()
        search.text("errors", errors)
        assert (run / "report.html").exists(), errors.decode()
        _check_sent(echo)
    search.folder(run)
    search.tables(run)
    assert search.found == set()
    assert {str(run / name) for name in ("journal-0.bin", "run.json", "report.html", "summary.json")} <= search.files
    assert not distributed or (search.has_failures and any("/work/" in file for file in search.files))
    assert b"Warning" not in errors
    assert _open_to_others(run) == []
    before = (run / "report.html").stat().st_ino
    cli(["report", str(run)])
    assert (run / "report.html").stat().st_ino != before
    assert _open_to_others(run) == []
    assert "not written down" in (run / "requests.csv").read_text() + (run / "report.html").read_text()


@pytest.mark.parametrize("place", ["command line", "--config"])
def test_literal_secrets_are_in_no_file_and_no_message(tmp_path: Path, place: str) -> None:
    run, config = tmp_path / "run", tmp_path / "options.toml"
    search = Search(_SECRETS)
    with echo_server() as echo:
        options = _options(echo, dict(_SECRETS))
        config.write_text("".join(f"{name.removeprefix('--')} = {json.dumps(value)}\n" for name, value in options.items()))
        given = _words(options) if place == "command line" else ["--config", str(config)]
        line = ["token_norm_dist", "-i", "openai", *given, *_LOAD, "--tokenizer_dir", _TOKENIZER, "--workers", "1"]
        process = _bench(*line, "--run_dir", str(run), cwd=tmp_path, environment={})
        search.while_alive([process], [run], echo, argv=place == "--config")
        output, errors = process.communicate(timeout=120)
        _check_sent(echo)
    search.text("output", output)
    search.text("errors", errors)
    search.folder(run)
    search.tables(run)
    # "code" is no name of a secret: without a reference bench cannot know that it is one
    assert {option for option, _ in search.found} <= {"--endpoint, code"}
    takers = ("--header", "--extra_body", "--endpoint", "--metrics_url")
    warned = [option for option in takers if f"Warning: {option}" in errors.decode()]
    assert warned == (list(takers) if place == "command line" else [])


@pytest.mark.parametrize(
    "options",
    [
        ["dataset", "--url", "me:canary-word@host:1"],
        ["dataset", "--url", "me:canary/word@host:1"],
        ["dataset", "-i", "http", "--url", "http://me:canary?word@host:1"],
        ["dataset", "-i", "openai", "--url", "https://me:canary/word@host:1"],
        ["dataset", "-i", "openai", "--url", "http://host:1/v1?key=canary-word"],
        ["dataset", "-i", "openai", "--url", "http://host:1/", "--endpoint", "v1?key=canary-word"],
        ["dataset", "--metrics_url", "http://me:canary-word@host:1/m"],
        ["dataset", "--metrics_url", "http://me:canary/word@host:1/m"],
        ["dataset", "--metrics_url", "http://me:canary@word@host:1/m"],
        ["dataset", "--metrics_url", "http://host:1/m?key=canary-word and"],
        ["dataset", "-i", "http", "--url", "h", "--header", "Authorization Bearer canary-word"],
        ["dataset", "-i", "openai", "--url", "h", "--extra_body", '{"api_key": "canary-word",}'],
        ["generate", "-p", "x", "--url", "grpc://me:canary/word@host:1"],
    ],
    ids=" ".join,
)
def test_a_refused_option_does_not_echo_its_secret(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(options) == ExitStatus.USAGE
    output = "".join(capsys.readouterr())
    assert "Error" in output
    assert "canary" not in output
    assert "word" not in output.replace("canary-word", "word").replace("password", "")


def test_a_repeat_refuses_the_values_that_were_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (
        ("--metrics_url", f"http://h:1/metrics?token={HIDDEN}"),
        ("--endpoint", f"/v1/chat/completions?api-key={HIDDEN}"),
        ("--header", f"X-Signature: {HIDDEN}"),
        ("--extra_body", json.dumps({"api_key": HIDDEN})),
    ):
        assert cli(["dataset", "-i", "openai", "--url", "h", option, value]) == ExitStatus.USAGE
        assert "does not contain this value; give it again" in " ".join(capsys.readouterr().err.split())


def test_the_plan_of_an_experiment_has_no_secret_and_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "series"
    search = Search(_SECRETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", _SECRETS["OPENAI_API_KEY"])
    with echo_server() as echo:
        echo.go_on.set()  # nothing is searched meanwhile
        options = _words(_options(echo, dict(_SECRETS)))
        runs = ["token_norm_dist", "-i", "openai", *options, *_LOAD, "--tokenizer_dir", _TOKENIZER, "--workers", "1"]
        for repeats in ("1", "2"):
            cli(["experiment", "--arm", "a=", "--arm", "b=", "--repeats", repeats, "--experiment_dir", str(folder), *runs])
            errors = capsys.readouterr().err
            assert "001-a" in {path.name for path in folder.iterdir()}, errors
            assert "another plan" not in errors
        _check_sent(echo)
    search.folder(folder)
    search.text("errors", errors.encode())
    assert {option for option, _ in search.found} <= {"--endpoint, code"}
    assert len(list(folder.glob("0*"))) == 4
    assert _open_to_others(folder) == []
