"""The command ``bench serve``: the real server over a repository on disk, and servers in the background."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest
import tritonclient.grpc
import tritonclient.utils

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.shared_memory import SHARED_MEMORY
from serving.repository.pipeline import MODEL_NAMES, RepositorySpec, write_repository
from tests.end_to_end.crashing_requests import DEEP_JSON, MANY_CHUNKS, send_attack
from tests.end_to_end.test_bench import BENCH, descendants_of
from tests.end_to_end.triton_calls import generate, wait_until_busy
from tests.free_port import free_addresses, free_port
from tests.processes import words_of


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def _generate(http: str) -> str:
    body = json.dumps({"text_input": "What is", "max_tokens": 4, "bad_words": "", "stop_words": ""}).encode()
    request = urllib.request.Request(f"http://{http}/v2/models/ensemble/generate", body)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(json.load(answer)["text_output"])


def test_tritonserver_of_this_machine_serves_a_repository_on_disk(tmp_path: Path, environment: dict[str, str]) -> None:
    repository = write_repository(RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR), tmp_path / "repository")
    free = free_addresses()
    ports = [f"--http_port={free.http_port}", f"--grpc_port={free.grpc_port}", f"--metrics_port={free.metrics_port}"]
    process = subprocess.Popen(
        [*BENCH, "serve", "--launcher", "tritonserver", "--model_repo", str(repository), "--log", *ports],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        addresses = dict(process.stdout.readline().split() for _ in range(3))
        assert addresses["http"] == free.http
        assert _generate(free.http)
        assert _index(free.http) == 403  # administration needs the key on loopback, too
    finally:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert not descendants_of(str(repository))
    log = (tmp_path / "triton_log.txt").read_text(errors="replace")
    assert all(name in log for name in MODEL_NAMES)  # Triton's log file and its output are in one log
    assert repository.is_dir()


def _index(http: str, **headers: str) -> int:
    request = urllib.request.Request(f"http://{http}/v2/repository/index", b"", headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_server_beyond_loopback_survives_what_crashes_triton_and_needs_its_key_for_administration(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The proxy before the real server, whose key is shown once; measuring needs none."""

    def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*BENCH, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)

    port = str(free_port())
    started = bench("serve", "--background", "--log", "--host", "0.0.0.0", "--openai_port", port, "--openai_model", "mine")
    try:
        assert started.returncode == 0, started.stderr
        addresses = dict(line.split() for line in started.stdout.splitlines())
        (key,) = re.findall(
            r"shown only here: (\S+) \(HTTP header triton-admin-key, gRPC triton-grpc-protocol-", started.stderr
        )
        assert [_index(addresses["http"], **headers) for headers in ({}, {"triton-admin-key": key})] == [403, 200]
        client = tritonclient.grpc.InferenceServerClient(addresses["grpc"])
        with pytest.raises(tritonclient.utils.InferenceServerException, match="restricted"):
            client.unload_model("tensorrt_llm")
        assert client.get_model_repository_index({"triton-grpc-protocol-triton-admin-key": key}).models
        assert addresses["openai"] == f"http://0.0.0.0:{port}/v1"
        asked = ("-i", "openai", "--tokenizer", str(DEMO_ENGINE_DIR), "--num_requests", "2")
        assert bench("token_norm_dist", "--url", addresses["openai"], *asked).returncode in (0, 3)
        _check_survival(addresses["http"])
        measured = bench("token_norm_dist", "--url", addresses["grpc"], "--num_requests", "8", "--run_dir", "run")
        assert measured.returncode in (0, 3), measured.stderr  # a busy machine may send late
        assert json.loads((tmp_path / "run" / "run.json").read_text())["server_statistics"] is not None
        assert bench("token_norm_dist", "--url", addresses["http"], "-i", "http", "--num_requests", "2").returncode in (0, 3)
        status = bench("serve", "status")
        assert (status.returncode, addresses["openai"] in status.stdout) == (0, True)
        port = addresses["http"].rpartition(":")[2]
        (proxy,) = (process for process in descendants_of(f'"listen":{port},') if "serving.proxy" in words_of(process))
        proxy.kill()
        ended = _wait_until_ended(bench)
        assert "The proxy ended with status -9, so its server was stopped." in ended
    finally:
        bench("serve", "stop")
    assert not descendants_of(str(tmp_path))
    assert not any(key.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def _check_survival(http: str) -> None:
    """Requests that crash Triton alone, each with a valid one beside it, and those of a web page."""
    with ThreadPoolExecutor(1) as beside:
        for attack in (MANY_CHUNKS, DEEP_JSON):
            valid = beside.submit(_generate, http)
            send_attack(http, attack)
            assert valid.result(120)
    for headers in ({"Origin": "http://evil.example", "Content-Type": "text/plain"}, {"Host": "evil.example"}):
        request = urllib.request.Request(f"http://{http}/v2/models/ensemble/generate", b"{}", headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=120)
        assert refused.value.code == 403
    region = urllib.request.Request(f"http://{http}/v2/systemsharedmemory/region/x/register", b'{"key": "/x", "byte_size": 1}')
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(region, timeout=120)
    assert refused.value.code == 403
    assert _generate(http)


def _wait_until_ended(bench: Callable[..., subprocess.CompletedProcess[str]]) -> str:
    """What ``bench serve status`` says of a server that ends by itself."""
    deadline = time.monotonic() + 120
    while "ended unexpectedly" not in (said := bench("serve", "status").stderr):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return said


def test_paths_and_options_beyond_ascii_reach_the_models(tmp_path: Path) -> None:
    """Python in Triton's stub has ASCII file names, whatever the locale. The options end in the engine's log."""
    engine, log = tmp_path / "Maschine für später", tmp_path / "Schritte für später.csv"
    shutil.copytree(DEMO_ENGINE_DIR, engine)
    options = EngineOptions(step_log=str(log), min_step_time="1ms,prompt_token=20µs")
    with deploy(RepositorySpec(engine, engine, engine_options=options), free_addresses(), tmp_path / "log") as server:
        body = {"text_input": "What is", "max_tokens": 4, "bad_words": "", "stop_words": ""}
        assert [generate(server, model, body)[0] for model in ("ensemble", "tensorrt_llm_bls")] == [200, 200]
    assert log.read_text().count("batch") == 8


@pytest.mark.slow
@pytest.mark.parametrize("attack", [MANY_CHUNKS, DEEP_JSON], ids=["chunks", "depth"])
def test_triton_itself_is_crashed_by_what_the_proxy_stops(tmp_path: Path, attack: tuple[bytes, ...]) -> None:
    """Where this fails, Triton is fixed (CVE-2025-23310, CVE-2025-23311), and the warning can go."""
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR)
    with deploy(spec, choose_addresses(), tmp_path / "log") as server:
        send_attack(server.addresses.http, attack)
        deadline = time.monotonic() + 120
        while server.is_running():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert server.exit_status == 128 + signal.SIGSEGV


@pytest.mark.parametrize(("called", "ended"), [("tensorrt_llm_bls", "tensorrt_llm_bls"), ("ensemble", "tensorrt_llm")])
def test_end_of_a_models_process_ends_its_server_and_the_requests_that_wait(called: str, ended: str, tmp_path: Path) -> None:
    """Triton alone starts no process again, and never answers what the ended one had."""
    body = {"text_input": "What is", "max_tokens": 1500, "bad_words": "", "stop_words": "", "end_id": -1}
    options = EngineOptions(max_tokens_in_paged_kv_cache=32_768)
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=options)
    with (
        deploy(spec, free_addresses(), tmp_path / "log", tmp_path / "repository") as server,
        ThreadPoolExecutor(1) as client,
    ):
        waiting = client.submit(generate, server, called, body)
        wait_until_busy(server)
        (stub,) = descendants_of(str(tmp_path / "repository" / ended / "1"))
        stub.kill()
        with pytest.raises((HTTPException, OSError)):
            waiting.result(120)
        deadline = time.monotonic() + 120
        while server.is_running():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert server.exit_status == 1
        assert f"The process of {ended} ({stub.pid}) ended, so its server was stopped." in server.log_tail()


def test_server_in_the_background_is_listed_used_and_stopped(tmp_path: Path, environment: dict[str, str]) -> None:
    def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*BENCH, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)

    started = bench("serve", "--background", "--name", "mine")
    try:
        assert started.returncode == 0, started.stderr
        addresses = dict(line.split() for line in started.stdout.splitlines())
        listed = bench("serve", "status")
        assert listed.returncode == 0
        row, _, header, *lines = listed.stdout.splitlines()[1:]
        name, _, ready, http, *_, log = row.split()
        assert (name, ready, http) == ("mine", "yes", addresses["http"])
        assert header == f"mine: {log}"
        assert lines == [line for line in Path(log).read_text(errors="replace").splitlines() if line.strip()][-5:]
        assert Path(log).parent == tmp_path / "state" / "inflight-bench" / "servers"
        assert _generate(http)
        again = bench("serve", "--background", "--name", "mine")
        assert again.returncode == 1
        assert "a server of that name runs" in again.stderr
    finally:
        stopped = bench("serve", "stop")
    assert stopped.returncode == 0
    assert stopped.stdout == "mine: stopped\n"
    assert not descendants_of(f"--http-port={addresses['http'].rpartition(':')[2]}")
    assert not list(SHARED_MEMORY.glob(f"inflight_bench_{addresses['grpc'].rpartition(':')[2]}_*"))
    assert "No server runs" in bench("serve", "status").stderr
