"""A measurement of several servers, from the command line to its reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.measurement.measure import measure  # noqa: F401  binds the real stderr, not the capture of one test
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.free_port import closed_port
from tests.harness.chat_server import WHOLE, chat_server
from tests.harness.metrics_server import metrics_server
from tests.harness.scripted_server import ScriptedServer, scripted_server

_WORKLOAD = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]

_TOKENIZER = str(Path(__file__).parents[3] / "serving" / "demo_engine")
_CHAT = ["--tokenizer_dir", _TOKENIZER, "--model", "m"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    folder = tmp_path_factory.mktemp("two")
    with (
        scripted_server(folder / "0", setting="7") as one,
        scripted_server(folder / "1", setting="8") as other,
    ):
        yield one, other


def _measure(urls: list[str], folder: Path, *options: str) -> int:
    given = [word for url in urls for word in ("--url", url)]
    return run(
        ["token_norm_dist", *given, "--model", "scripted", "--run_dir", str(folder), "--num_requests", "40", *_WORKLOAD,
         "--request_rate", "80", *options]
    )  # fmt: skip


def _summary(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())


def test_each_server_has_a_row_in_summary_answer_and_page(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = [server.address for server in two]
    status = _measure(addresses, tmp_path, "--telemetry_period", "0")
    out = capsys.readouterr().out
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)
    targets = _summary(tmp_path)["targets"]
    assert [(row["number"], row["address"]) for row in targets] == list(enumerate(addresses))
    assert [(row["sent"], row["done"], row["failed"], row["output_tokens"]) for row in targets] == [(20, 20, 0, 100.0)] * 2
    assert all(row["ttft_ms"]["p50"] > 0 and row["e2e_ms"]["p99"] > 0 for row in targets)
    page = (tmp_path / "report.html").read_text()
    for address in addresses:
        assert any(line.startswith(address) and " 20 " in line for line in out.splitlines())
        assert address in page
    manifest = RunFolder(tmp_path).read_manifest()
    assert (manifest.target.address, manifest.target.servers, manifest.target.balance) == (
        ", ".join(addresses), 2, "round_robin",
    )  # fmt: skip
    assert [target.address for target in manifest.targets or ()] == addresses
    parameters = [target.model_parameters for target in manifest.targets or ()]
    assert parameters[0] != parameters[1]  # each server's own
    assert RunFolder(tmp_path).read_requests(["target"])["target"].to_pylist().count(1) == 20


@pytest.mark.parametrize(
    ("options", "of"), [(["--model", "mine"], "--model mine"), (["--class", "a:model=mine"], "--class a:weight=1,model=mine")]
)
def test_a_warning_of_a_model_names_the_server_that_does_not_list_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str], of: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server(lambda number: WHOLE, ["m", "mine"]) as listing, chat_server(lambda number: WHOLE, ["m"]) as other:
        urls = [f"127.0.0.1:{listing.port}", f"127.0.0.1:{other.port}"]
        _measure(urls, tmp_path, "-i", "openai", *_CHAT, *options)
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "/v1/models" in line]
    words = f"--url http://127.0.0.1:{other.port}", of, "the server does not list mine in /v1/models, which has m"
    assert all(word in warning for word in words)
    assert str(listing.port) not in warning


def test_a_list_with_commas_is_several_urls_and_a_replay_has_the_same_digest(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    addresses = [server.address for server in two]
    _measure([", ".join(addresses)], tmp_path / "first", "--telemetry_period", "0", "--balance", "least_in_flight")
    first = RunFolder(tmp_path / "first").read_manifest()
    assert [target.address for target in first.targets or ()] == addresses
    capsys.readouterr()
    run(["replay", str(tmp_path / "first"), "--run_dir", str(tmp_path / "second"), "--workers", "2"])
    assert "The schedule is the recorded one" in capsys.readouterr().out
    second = RunFolder(tmp_path / "second").read_manifest()
    assert (second.target.balance, second.options["url"]) == ("least_in_flight", addresses)
    assert run(["verify", str(tmp_path / "first")]) == ExitStatus.VALID
    alone = [str(tmp_path / "first"), "--url", addresses[0]]
    assert run(["verify", *alone]) == ExitStatus.INVALID
    capsys.readouterr()
    swapped = [word for address in reversed(addresses) for word in ("--url", address)]
    assert run(["verify", str(tmp_path / "first"), *swapped]) == ExitStatus.INVALID
    assert "of --url 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("urls", "options", "problem"),
    [
        (["h:1"], ["--balance", "session"], "--balance goes with several --url"),
        (["http://h:1/a,b/v1"], ["-i", "openai", "--balance", "session"], "--balance goes with several --url"),
        ([], ["--model", "ensemble", "--balance", "round_robin"], "--balance goes with several --url"),
        (["h:1", "h:1"], [], "'h:1' is given twice"),
        (["h", "h:8001"], [], "'h' and 'h:8001' are one address"),
        (["h:1", "h:x"], [], "'h:x' is no gRPC address"),
        (["h:1,"], [], "'' is no gRPC address"),
    ],
)
def test_urls_that_contradict_each_other_are_usage_errors(
    urls: list[str], options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(urls, tmp_path, *options) == ExitStatus.USAGE
    assert problem in capsys.readouterr().err


def test_servers_of_unlike_models_and_one_that_refuses_connections_are_named_before_anything_is_sent(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = f"127.0.0.1:{closed_port()}"
    assert _measure([two[0].address, gone], tmp_path / "gone") == ExitStatus.FAILED
    assert f"--url {gone}" in capsys.readouterr().err
    assert not (tmp_path / "gone").exists()


def test_session_affinity_needs_sessions(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure([server.address for server in two], tmp_path, "--balance", "session") == ExitStatus.USAGE
    assert "no request belongs to a session" in capsys.readouterr().err


def test_each_page_of_metrics_is_read_and_gauges_of_servers_are_not_mixed(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def page(running: int, tokens: int) -> Any:
        gauge = f"vllm:num_requests_running {running}\n"
        return lambda number: (200, f"{gauge}vllm:prompt_tokens_total {tokens * (number >= 6)}\n".encode())

    with metrics_server(page(2, 70)) as one, metrics_server(page(4, 30)) as other:
        pages = [f"127.0.0.1:{server.port}" for server in (one, other)]
        given = [word for url in pages for word in ("--metrics_url", url)]
        _measure([server.address for server in two], tmp_path, *given, "--telemetry_period", "0.05")
    capsys.readouterr()
    urls = [f"http://{page}/metrics" for page in pages]
    manifest, summary = RunFolder(tmp_path).read_manifest(), _summary(tmp_path)
    assert manifest.telemetry is not None
    assert [each.url for each in manifest.telemetry.pages or ()] == urls
    assert manifest.telemetry.scrapes == sum(each.scrapes or 0 for each in manifest.telemetry.pages or ())
    table = RunFolder(tmp_path).read_server()
    assert table is not None
    assert set(table["server"].to_pylist()) == set(urls)
    assert summary["server"]["scheduled_requests"] is None
    assert summary["server"]["prompt_tokens"] == 100.0
    each = {server["url"]: server for server in summary["servers"]}
    assert [each[url]["scheduled_requests"]["mean"] for url in urls] == [2.0, 4.0]
    assert [each[url]["prompt_tokens"] for url in urls] == [70.0, 30.0]


def test_a_page_without_metrics_leaves_counts_of_all_unknown(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = lambda number: (200, b"vllm:generation_tokens_total 5\n")  # noqa: E731
    with metrics_server(good) as one, metrics_server(lambda number: (404, b"")) as other:
        given = [word for server in (one, other) for word in ("--metrics_url", f"127.0.0.1:{server.port}")]
        _measure([server.address for server in two], tmp_path, *given)
    assert f"No metrics at http://127.0.0.1:{other.port}/metrics" in capsys.readouterr().err
    summary = _summary(tmp_path)
    assert (summary["server"]["generated_tokens"], len(summary["servers"])) == (None, 1)
    assert [row["counted_by_server"]["output_tokens"] for row in summary["targets"]] == [0.0, None]


def test_two_servers_of_one_host_have_no_usual_place_of_metrics(
    two: tuple[ScriptedServer, ScriptedServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _measure([server.address for server in two], tmp_path)
    assert "is the usual place of the metrics of several --url" in capsys.readouterr().err
    assert RunFolder(tmp_path).read_manifest().telemetry is None
