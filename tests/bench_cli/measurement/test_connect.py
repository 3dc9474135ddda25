"""Each protocol from the command line: its options, and its entries in the manifest."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import click
import pytest

from bench_cli import run
from bench_cli.measurement.target_options import read_address
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server
from harness.protocols.triton_grpc import TritonGrpc
from harness.protocols.triton_http import TritonHttp
from tests.harness.scripted_server import ScriptedServer
from tests.harness.threaded_http import threaded_http

_NORMAL = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0"]
_TOKENIZER = ["--tokenizer_dir", str(Path(__file__).parents[3] / "serving" / "demo_engine")]


@pytest.fixture(scope="module")
def null() -> Iterator[NullServerAddresses]:
    with null_server(NullServerOptions()) as addresses:
        yield addresses


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


# ---- --url


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("localhost", "http://localhost:8000"),
        ("localhost:9", "http://localhost:9"),
        ("http://localhost:9/", "http://localhost:9"),
        ("http://host", "http://host:8000"),
        ("https://host", "https://host:443"),
        ("https://host:8443", "https://host:8443"),
        ("[::1]:9", "http://[::1]:9"),
        ("http://[::1]", "http://[::1]:8000"),
    ],
)
def test_http_addresses(url: str, origin: str) -> None:
    assert str(read_address(TritonHttp(), url)) == origin


@pytest.mark.parametrize(
    ("addresses", "warned"),
    [
        (["::1", "127.0.0.1", "127.0.0.1"], None),  # one server, by two protocols
        (["::1", "::2", "::3", "127.0.0.1"], 3),
    ],
)
def test_requests_to_a_name_with_several_addresses_are_not_spread_and_that_is_said(
    null: NullServerAddresses,
    addresses: list[str],
    warned: int | None,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve = socket.getaddrinfo

    def resolved(host: Any, port: Any, *arguments: Any, **keywords: Any) -> Any:
        if host != "localhost" or port is not None:  # what connects goes to the server's real address
            return resolve(host, port, *arguments, **keywords)
        families = (socket.AF_INET6 if ":" in text else socket.AF_INET for text in addresses)
        return [(family, socket.SOCK_STREAM, 6, "", (text, 0)) for family, text in zip(families, addresses, strict=True)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    url = f"http://localhost:{null.http.rpartition(':')[2]}"
    _run(tmp_path / "run", "-i", "openai", "--url", url)
    warning = f"--url {url}: localhost has {warned} addresses, and requests are not spread evenly over them"
    assert (warning in capfd.readouterr().err) is (warned is not None)


@pytest.mark.parametrize(
    "url",
    [
        "grpc://host:8001",
        "ftp://host",
        "host:port",
        "host:0",
        "host:99999",
        "",
        "http://",
        "http://host/v1",
        "host:",
        "http://u:p@h",
    ],
)
def test_malformed_http_address(url: str) -> None:
    with pytest.raises(click.BadParameter, match="no HTTP address"):
        read_address(TritonHttp(), url)


def test_grpc_addresses() -> None:
    read = [read_address(TritonGrpc(), url).address for url in ("h", "h:9", "grpc://h:9", "[::1]")]
    assert read == ["h:8001", "h:9", "h:9", "[::1]:8001"]


# ---- combinations of options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-i", "openai", "-m", "ensemble"], "--model: the embedded pipeline has one model for OpenAI's clients"),
        (["--endpoint", "/v1/chat"], "--endpoint goes with -i openai"),
        (["-i", "http", "--extra_body", '{"temperature": 0}'], "--extra_body goes with -i openai"),
        (["--reset_prefix_cache"], "--reset_prefix_cache goes with --url"),
        (["--header", "X: y"], "--header goes with protocols over HTTP"),
        (["--prompt_as", "ids"], "--prompt_as goes with -i openai_completions"),
        (["-i", "openai", "--url", "h", "--prompt_as", "text"], "--prompt_as goes with -i openai_completions"),
        (["-i", "openai_completions", "--url", "h/v1/chat/completions"], "is a path of -i openai; give"),
        (["-i", "openai_completions", "--url", "h", "--extra_body", '{"prompt": "x"}'], "prompt: bench sets that"),
        (["-i", "openai", "--url", "h", "--endpoint", "v1"], "'v1' is no path"),
        (["-i", "openai", "--url", "h", "--extra_body", "{"], "it is not JSON"),
        (["-i", "openai", "--url", "h", "--extra_body", "[]"], "give a JSON object"),
        (["-i", "openai", "--url", "h", "--extra_body", '{"stream": false, "model": "x"}'], "model, stream: bench sets that"),
        (["-i", "openai", "--url", "h", "--extra_body", '{"n": 2}'], "'--extra_body': n is 2: bench measures one answer"),
        (["-i", "openai", "--url", "h", "--extra_body", '{"n": 1, "best_of": 3}'], "'--extra_body': best_of is 3: bench"),
        (["-i", "http", "--url", "h", "--header", "nonsense"], "is no header; give 'Name: value'"),
        (["-i", "http", "--url", "h", "--header", "X: a\r\nY: b"], "is no header"),
        (["-i", "http", "--url", "h", "--header", "X: ä"], "is no header"),
        (["-i", "http", "--url", "h", "--header", "Content-Length: 3"], "Content-Length is between bench and the server"),
        (["-i", "http", "--url", "http://h/v2"], "no HTTP address"),
    ],
)
def test_options_that_do_not_fit_the_protocol(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    assert run(["dataset", *options]) == ExitStatus.USAGE
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert "a\r\nY" not in captured.err


# ---- whole runs


def _run(folder: Path, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest and the rows of a run in which every request succeeds."""
    status = run(["token_norm_dist", *_NORMAL, "--num_requests", "12", "--run_dir", str(folder), *_TOKENIZER, *options])
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)  # a busy machine may send late
    rows = RunFolder(folder).read_requests().to_pylist()
    assert [row["outcome"] for row in rows] == ["done"] * 12
    return RunFolder(folder).read_document()[0], rows


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "ensemble_unary"])
def test_http_and_grpc_record_the_same(null: NullServerAddresses, tmp_path: Path, model: str) -> None:
    runs = [
        _run(tmp_path / protocol, "-i", protocol, "--url", url, "--model", model)
        for protocol, url in (("grpc", null.grpc), ("http", null.http))
    ]
    (of_grpc, grpc_rows), (of_http, http_rows) = runs
    for same in ("output_tokens", "output_tokens_source", "token_counts", "prompt_echoed", "ignore_eos"):
        assert [row[same] for row in grpc_rows] == [row[same] for row in http_rows]
    assert of_grpc["schedule"] == of_http["schedule"]
    assert of_grpc["target"] == of_http["target"] | {"address": null.grpc, "protocol": "grpc"}
    assert of_http["target"]["address"] == f"http://{null.http}"


def test_openai_protocol_selects_the_only_model_and_counts_by_usage(
    null: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, rows = _run(tmp_path / "run", "-i", "openai", "--url", f"http://{null.http}")
    assert (manifest["target"]["model"], manifest["target"]["streaming"]) == ("null", True)
    assert (manifest["target"]["decoupled"], manifest["target"]["model_parameters"]) == (None, {})
    assert [(row["output_tokens"], row["output_tokens_source"], row["token_counts"]) for row in rows] == [
        (5, "server", [1] * 5)
    ] * 12
    assert [len(row["token_times_ns"]) for row in rows] == [5] * 12
    assert not any(row["ignore_eos"] for row in rows)  # not every server supports it, so it is sent on request only
    assert "  TTFT p99 " in capsys.readouterr().err  # on the live line


@pytest.mark.parametrize("form", ["ids", "text"])
@pytest.mark.parametrize("streamed", [True, False])
def test_completions_by_token_ids_and_by_text(null: NullServerAddresses, tmp_path: Path, form: str, streamed: bool) -> None:
    options = ["--prompt_as", form, "--streaming" if streamed else "--no_streaming"]
    manifest, rows = _run(tmp_path / "run", "-i", "openai_completions", "--url", f"http://{null.http}", *options)
    target = manifest["target"]
    assert (target["address"], target["model"]) == (f"http://{null.http}", "null")
    assert (target["streaming"], target["token_ids"]) == (streamed, form == "ids")
    counts = {(row["output_tokens"], row["output_tokens_source"], tuple(row["token_counts"])) for row in rows}
    assert counts == {(5, "server", (1,) * 5 if streamed else (5,))}
    assert [len(row["token_times_ns"]) for row in rows] == [5 if streamed else 1] * 12
    if form == "ids":  # of text the null server counts words
        assert [row["input_tokens"] for row in rows] == [4] * 12


@pytest.mark.parametrize(("protocol", "model"), [("openai", "null"), ("http", "ensemble"), ("grpc", "ensemble")])
def test_text_without_a_tokenizer_is_made_with_the_shipped_one_and_counted_by_the_server_alone(
    null: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, model: str
) -> None:
    url = null.grpc if protocol == "grpc" else null.http
    target = ["-i", protocol, "--url", url, "--model", model]
    run(["token_norm_dist", *_NORMAL, "--num_requests", "32", "--run_dir", str(tmp_path / "run"), *target])
    assert capsys.readouterr().err.count(f"No tokenizer of the model {model} is known") == 1
    manifest = RunFolder(tmp_path / "run").read_document()[0]
    assert manifest["workload"]["text_tokenizer"] == "shipped"
    assert manifest["workload"]["description"].endswith("by the shipped tokenizer")
    assert (manifest["target"]["tokenizer_dir"], manifest["target"]["template_tokens"]) == (None, None)
    rows = RunFolder(tmp_path / "run").read_requests().to_pylist()
    counts = ("outcome", "output_tokens_source", "text_tokens")  # text_tokens: none by a tokenizer that is not the model's
    assert {tuple(row[name] for name in counts) for row in rows} == {("done", "server", None)}
    input_tokens = [row["input_tokens"] for row in rows]
    if protocol == "openai":  # the null server counts words, where 4 tokens were drawn
        assert set(input_tokens) <= {1, 2, 3, 4}
        assert input_tokens != [4] * 32
    else:
        assert input_tokens == [None] * 32  # no server's count, so none


def test_a_tokenizer_of_the_model_is_no_stand_in(null: NullServerAddresses, tmp_path: Path) -> None:
    manifest, _ = _run(tmp_path / "run", "-i", "openai", "--url", null.http)
    assert "text_tokenizer" not in manifest["workload"]
    assert manifest["target"]["tokenizer_dir"] == _TOKENIZER[1]


@pytest.mark.parametrize("option", ["--vocab_size", "--max_input_len"])
def test_options_in_the_models_tokens_need_its_tokenizer(
    null: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    target = ["-i", "openai", "--url", null.http, "--run_dir", str(tmp_path / "run")]
    assert run(["token_norm_dist", *target, option, "100"]) == ExitStatus.USAGE
    assert f"Error: {option} needs the tokenizer of the model null: give --tokenizer_dir" in capsys.readouterr().err


def test_a_benchmarks_own_times_add_up(null: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, _ = _run(tmp_path / "run", "-i", "openai", "--url", null.http)
    times = manifest["times"]
    assert times["run_s"] == manifest["duration_s"]
    assert times["set_up_s"] + times["run_s"] + times["close_target_s"] + times["report_s"] == pytest.approx(times["total_s"])
    assert 0 < times["set_up_s"] < times["total_s"]
    assert 0 < times["set_up_and_run_cpu_s"] <= times["cpu_s"]
    assert times["command_started_at"] < manifest["started_at"] < times["command_ended_at"]
    assert f"in all {times['total_s']:.1f} s, and {times['cpu_s']:.1f} s of CPU." in capsys.readouterr().err


def test_openai_protocol_without_streaming(
    null: NullServerAddresses, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, rows = _run(tmp_path / "run", "-i", "openai", "--url", null.http, "--no_streaming", "--ignore_eos")
    assert manifest["target"]["streaming"] is False
    assert [(row["token_counts"], len(row["token_times_ns"])) for row in rows] == [([5], 1)] * 12
    assert all(row["ignore_eos"] for row in rows)
    live = [line for line in capsys.readouterr().err.splitlines() if "  in flight " in line]
    assert live
    assert all("  E2E p99 " in line and "TTFT" not in line for line in live)


def test_no_secret_is_recorded(null: NullServerAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-q7Zp")
    headers = ["--header", "X-Api-Key: hush-q7Zp", "--header", "X-Route:  blue ", "--header", "Cookie: hush-q7Zp"]
    headers += ["--header", "X-Signature: hush-q7Zp", "--endpoint", "/v1/chat/completions?api-key=hush-q7Zp"]
    extra = ["--extra_body", json.dumps({"temperature": 0, "api_key": "hush-q7Zp"})]
    manifest, _ = _run(tmp_path / "run", "-i", "openai", "--url", null.http, *headers, *extra)
    hidden = "(not written down)"
    assert manifest["options"]["header"] == [
        f"X-Api-Key: {hidden}",
        "X-Route: blue",
        f"Cookie: {hidden}",
        f"X-Signature: {hidden}",
    ]
    assert manifest["options"]["extra_body"] == {"temperature": 0, "api_key": hidden}
    for file in (tmp_path / "run").iterdir():
        assert b"q7Zp" not in file.read_bytes()


@pytest.mark.parametrize(
    ("protocol", "model", "message"),
    [
        ("http", "nosuch", "--model nosuch: the server at http://{http} has no such model"),
        ("http", "ensemble_unary --streaming", "--streaming: the model ensemble_unary is not decoupled"),
    ],
)
def test_model_that_does_not_fit_the_options(
    null: NullServerAddresses, capsys: pytest.CaptureFixture[str], protocol: str, model: str, message: str
) -> None:
    assert run(["dataset", "-i", protocol, "--url", null.http, "--model", *model.split()]) == ExitStatus.FAILED
    assert f"Error: {message.format(http=null.http)}" in capsys.readouterr().err


def test_a_model_without_an_input_is_refused_over_http_before_any_request(capsys: pytest.CaptureFixture[str]) -> None:
    """Triton's front end would make a parameter of the field, which the model ignores."""
    config = {
        "name": "other",
        "input": [{"name": name} for name in ("text_input", "stream", "number_of_tokens")],
        "output": [{"name": "text_output"}],
        "model_transaction_policy": {"decoupled": True},
    }
    posted: list[str] = []

    class Triton(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(config).encode()
            self.send_response(200 if self.path == "/v2/models/other/config" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            posted.append(self.path)
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with threaded_http(Triton) as port:
        assert run(["dataset", "-i", "http", "--url", f"127.0.0.1:{port}", "--model", "other"]) == ExitStatus.FAILED
    assert "Error: --model other: it has no input max_tokens, which every request" in capsys.readouterr().err
    assert posted == []


def test_a_model_without_an_input_is_refused_over_grpc(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "--url", server.address, "--model", "unlimited"]) == ExitStatus.FAILED
    assert "Error: --model unlimited: it has no input max_tokens, which every request" in capsys.readouterr().err


def test_http_on_a_grpc_port(null: NullServerAddresses, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "-i", "http", "--url", null.grpc]) == ExitStatus.FAILED
    assert "is this the server's HTTP port?" in capsys.readouterr().err


@pytest.mark.parametrize("fields", [{"n": 1}, {"n": None, "best_of": 1}, {"best_of": None}])
def test_one_answer_to_a_request_may_be_asked_for(capsys: pytest.CaptureFixture[str], fields: dict[str, int | None]) -> None:
    assert run(["dataset", "--extra_body", json.dumps(fields)]) == ExitStatus.USAGE
    assert "--extra_body goes with -i openai" in capsys.readouterr().err  # the next check


# ---- the deadline of the set-up, certificates, and limits of answers


def test_models_that_trickle_are_waited_for_until_the_deadline_of_the_set_up(capfd: pytest.CaptureFixture[str]) -> None:
    class Trickling(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            with suppress(OSError):
                for _ in range(100):
                    self.wfile.write(b" ")
                    time.sleep(0.05)

    with threaded_http(Trickling) as port:
        target = ["-i", "openai", "--url", f"http://127.0.0.1:{port}", "--model", "m", *_TOKENIZER]
        status = run(["token_norm_dist", *_NORMAL, *target, "--connect_timeout", "0.5"])
    assert status == ExitStatus.FAILED
    assert "--connect_timeout 0.5: the set-up took longer" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "least"), [("header_bytes", 65_536), ("answer_bytes", 65_536), ("message_bytes", 65_536), ("responses", 1)]
)
def test_limits_of_answers_reach_the_client_and_the_manifest(
    null: NullServerAddresses, tmp_path: Path, option: str, least: int
) -> None:
    target = ["-i", "grpc", "--url", null.grpc, "--model", "tensorrt_llm", "--num_requests", "2", "--warmup_requests", "0"]
    run(["token_norm_dist", *_NORMAL, *target, "--vocab_size", "100", f"--max_{option}", str(least), "--run_dir", "run"])
    assert RunFolder(tmp_path / "run").read_document()[0]["options"][f"max_{option}"] == least
    if option == "responses":  # each answer has five
        assert json.loads(RunFolder(tmp_path / "run").summary.read_text())["requests"]["by_kind"] == {"malformed": 2}
