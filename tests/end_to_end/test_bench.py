"""The command ``bench`` against the real server."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from tests.faults.bench_program import Program, Ran, run_bench
from tests.free_port import free_addresses
from tests.processes import words_of

NORMAL = ["token_norm_dist", "--input_mean", "32", "--input_stdev", "5", "--output_mean", "8", "--output_stdev", "2"]
BENCH = [str(Path(sys.executable).parent / "bench")]


def program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command in a child process, for tests of its exit and of what it leaves behind."""
    return subprocess.run([*BENCH, *arguments], cwd=cwd, capture_output=True, text=True, timeout=200)


def bench(*arguments: str, cwd: Path) -> Ran:
    """The command in this process, in ``cwd``, so that its imports happen once for all tests."""
    with contextlib.chdir(cwd):
        return run_bench(*arguments)


def assert_all_done(result: Ran | subprocess.CompletedProcess[str], run: Path) -> None:
    """All requests succeeded. On a busy machine the client may send late, and the run is then rightly invalid (3)."""
    assert result.returncode in (0, 3), result.stderr
    found = summary(run)
    assert found["requests"]["failed"] == 0
    assert {f["code"] for f in found["findings"] if f["severity"] == "invalid"} <= {
        "schedule_slip", "achieved_below_offered", "client_saturated",
    }  # fmt: skip
    assert (result.returncode == 0) == (found["validity"] == "valid")


def summary(run: Path) -> dict:  # type: ignore[type-arg]
    return json.loads((run / "summary.json").read_text())


def manifest(run: Path) -> dict:  # type: ignore[type-arg]
    return json.loads((run / "run.json").read_text())


def descendants_of(command_part: str) -> list[psutil.Process]:
    """Processes whose command line contains ``command_part``, a path of one test's server only."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.AccessDenied):
            if any(command_part in part for part in words_of(process)):
                found.append(process)
    return found


def wait_until(condition: object, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may kill."""
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR)
    with deploy(spec, free_addresses(), tmp_path / "server.log", tmp_path / "repository") as server:
        yield server


def test_embedded_run_leaves_a_complete_run_folder_and_no_process(tmp_path: Path) -> None:
    traffic = ["--request_rate", "20", "--num_requests", "10", "--warmup_requests", "1"]
    result = program("dataset", *traffic, "--run_dir", "run", cwd=tmp_path)
    run = tmp_path / "run"
    assert_all_done(result, run)
    assert sorted(path.name for path in run.iterdir()) == [
        "client.parquet", "report.html", "report.md", "requests.csv", "requests.parquet", "run.json", "server.log",
        "server.parquet", "summary.json",
    ]  # fmt: skip
    assert result.stdout.startswith(("This run is valid.\n", "THIS RUN IS NOT VALID: "))  # on a busy machine
    assert "Requests/Sec" not in result.stdout  # upstream's table needs --full
    assert result.stdout.rstrip().endswith("Report: run/report.html")
    found = summary(run)
    assert found["requests"] == {
        "prepared": 10,
        "scheduled": 10,
        "done": 10,
        "failed": 0,
        "withdrawn": 0,
        "not_sent": 0,
        "by_kind": {},
    }
    assert found["metrics"]["ttft_ms"]["scheduled"]["n"] == 10
    port = manifest(run)["target"]["address"].rpartition(":")[2]
    assert not descendants_of(f"--grpc-port={port}")
    assert not descendants_of(f"inflight_bench_{port}_")


def test_options_before_the_verb_with_hyphens_give_the_schedule_of_those_after_it(
    decoupled_server: Server, tmp_path: Path
) -> None:
    arguments = ["-i", "grpc", "--request-rate=40", "--num_requests", "20", "token-norm-dist", *NORMAL[1:]]
    target = ["--url", decoupled_server.addresses.grpc, "--warmup_requests", "1", "--run_dir", "run"]
    result = bench(*arguments, *target, cwd=tmp_path)
    assert_all_done(result, tmp_path / "run")
    assert (
        manifest(tmp_path / "run")["schedule"]["digest"] == "116f68990567e964bca197581ddc4d56c1291833cb88c950a666e73361e1968f"
    )


def test_schedule_and_outcome_are_independent_of_the_number_of_workers(decoupled_server: Server, tmp_path: Path) -> None:
    digests = set()
    for workers in ("1", "4"):
        target = ["--url", decoupled_server.addresses.grpc, "--workers", workers, "--run_dir", f"run{workers}"]
        traffic = ["--num_requests", "20", "--request_rate", "40", "--warmup_requests", "1", "--seed", "5"]
        result = bench(*NORMAL, *traffic, *target, cwd=tmp_path)
        assert_all_done(result, tmp_path / f"run{workers}")
        digests.add(manifest(tmp_path / f"run{workers}")["schedule"]["digest"])
        assert summary(tmp_path / f"run{workers}")["requests"]["done"] == 20
    assert len(digests) == 1


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "tensorrt_llm_bls"])
def test_times_of_the_server_explain_a_latency_by_phases(
    decoupled_server: Server, tmp_path: Path, model: str, protocol: str
) -> None:
    """All on one host: every phase has a source, so nothing is unattributed."""
    addresses = decoupled_server.addresses
    target = ["-i", protocol, "--url", {"grpc": addresses.grpc, "http": addresses.http}[protocol], "--model", model]
    traffic = ["--num_requests", "20", "--request_rate", "40", "--warmup_requests", "1", "--server_timings"]
    result = bench(*NORMAL, *traffic, *target, "--run_dir", "run", cwd=tmp_path)
    assert_all_done(result, tmp_path / "run")
    explained = json.loads(bench("why", "run", "--format", "json", cwd=tmp_path).stdout)
    for latency in explained["runs"][0]["latencies"]:
        assert latency["clock_error_ms"] == 0.0
        last = latency["percentiles"][-1]
        phases = {phase["phase"]: phase["mean_ms"]["value"] for phase in last["phases"]}
        assert (last["timed"], last["contradicted"]) == (20, 0)
        assert phases["unattributed"] == 0.0
        assert min(phases["front_end"], phases["prefill"], phases["return"]) > 0.0
        assert sum(phases.values()) == pytest.approx(last["mean_ms"])


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "tensorrt_llm_bls"])
@pytest.mark.parametrize("mode", ["decoupled_server", "plain_server"])
def test_real_conversations_succeed(
    request: pytest.FixtureRequest, shared_data: Path, tmp_path: Path, model: str, mode: str
) -> None:
    server: Server = request.getfixturevalue(mode)
    dataset = ["dataset", "--dataset", str(shared_data / "fastchat_dummy_conversation.json"), "--num_requests", "20"]
    traffic = ["--request_rate", "40", "--warmup_requests", "1"]
    target = ["--model", model, "--url", server.addresses.grpc, "--run_dir", "run"]
    result = bench(*dataset, *traffic, *target, cwd=tmp_path)
    assert_all_done(result, tmp_path / "run")
    found = summary(tmp_path / "run")
    assert found["requests"]["done"] == 20
    assert (found["metrics"]["ttft_ms"] is not None) == (mode == "decoupled_server")


def test_output_token_counts_are_equal_over_all_routes(decoupled_server: Server, plain_server: Server, tmp_path: Path) -> None:
    """Core ids and the server's count, streamed and unstreamed: equal greedy outputs have equal numbers of tokens."""
    counts = set()
    for number, (server, model) in enumerate(
        [(decoupled_server, "tensorrt_llm"), (plain_server, "tensorrt_llm"), (decoupled_server, "ensemble")]
    ):
        target = ["--url", server.addresses.grpc, "--model", model, "--warmup_requests", "1", "--run_dir", f"run{number}"]
        assert_all_done(bench("dataset", "--num_requests", "10", *target, cwd=tmp_path), tmp_path / f"run{number}")
        rows = (tmp_path / f"run{number}" / "requests.csv").read_text().splitlines()[1:]
        counts.add(tuple(row.split(",")[7:10] for row in rows).__repr__())
    assert len(counts) == 1


def test_death_of_the_server_during_a_run_is_reported(own_server: Server, tmp_path: Path) -> None:
    target = ["--url", own_server.addresses.grpc, "--request_timeout", "20", "--run_dir", "run"]
    process = subprocess.Popen(
        [*BENCH, *NORMAL, "--num_requests", "150", "--request_rate", "30", *target],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    Program(process, tmp_path / "run", mark="").wait_for_exchanges(11)
    [triton] = [p for p in descendants_of(f"--grpc-port={own_server.addresses.grpc_port}") if p.name() == "tritonserver"]
    triton.send_signal(signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1, stderr
    assert "Traceback" not in stderr
    requests = summary(tmp_path / "run")["requests"]
    assert requests["scheduled"] == 150
    assert requests["done"] > 10
    assert requests["failed"] == 150 - requests["done"] > 10
    assert set(requests["by_kind"]) <= {"connect", "stream_cut"}
    assert "This run is valid." not in stdout
    assert (tmp_path / "run" / "report.html").exists()


def test_single_ctrl_c_drains_and_reports(decoupled_server: Server, tmp_path: Path) -> None:
    target = ["--url", decoupled_server.addresses.grpc, "--run_dir", "run"]
    process = subprocess.Popen(
        [*BENCH, *NORMAL, "--num_requests", "1000", "--request_rate", "20", *target],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    Program(process, tmp_path / "run", mark="").wait_for_exchanges(11)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    requests = summary(tmp_path / "run")["requests"]
    assert requests["done"] > 10
    assert (requests["not_sent"], requests["by_kind"]) == (1000 - requests["done"], {})
    assert "Stopped early: the numbers cover a shorter run" in stdout
    sent = requests["done"]
    assert f"Stopped: {sent} sent, 0 failed, {1000 - sent} not sent.\n" in stderr


def test_killing_bench_ends_its_server(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*BENCH, "dataset", "--request_rate", "2", "--run_dir", "run"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: (tmp_path / "run" / "journal-0.bin").exists())
    port = manifest(tmp_path / "run")["target"]["address"].rpartition(":")[2]
    assert descendants_of(f"--grpc-port={port}")
    process.kill()
    process.wait()
    wait_until(lambda: not descendants_of(f"--grpc-port={port}") and not descendants_of(f"inflight_bench_{port}_"))


def test_serve_prints_addresses_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*BENCH, "serve"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    addresses = dict(process.stdout.readline().split() for _ in range(3))
    assert set(addresses) == {"http", "grpc", "metrics"}
    result = bench(
        *NORMAL, "--num_requests", "5", "--warmup_requests", "1", "--url", addresses["grpc"], "--run_dir", "run", cwd=tmp_path
    )
    assert_all_done(result, tmp_path / "run")
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert not descendants_of(f"--grpc-port={addresses['grpc'].rpartition(':')[2]}")


def test_serve_rejects_a_port_in_use(decoupled_server: Server, tmp_path: Path) -> None:
    result = program("serve", "--http_port", str(decoupled_server.addresses.http_port), cwd=tmp_path)
    assert result.returncode == 1
    assert "--http_port" in result.stderr
    assert "in use" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_failed_start_of_serve_shows_the_servers_log(tmp_path: Path) -> None:
    broken = tmp_path / "engine"
    broken.mkdir()
    for file in DEMO_ENGINE_DIR.iterdir():
        (broken / file.name).write_bytes(file.read_bytes() if file.suffix != ".bin" else b"")
    result = program("serve", "--engine_dir", str(broken), cwd=tmp_path)
    assert result.returncode == 1
    assert "See its log, triton_log.txt." in result.stderr
    assert "OpenVINO cannot load the engine" in result.stderr


def test_unknown_model_error_is_one_line(decoupled_server: Server, tmp_path: Path) -> None:
    target = ["--url", decoupled_server.addresses.grpc, "--model", "gpt", "--run_dir", "run"]
    result = bench("dataset", *target, cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("Error: --model gpt: the server at")
    assert len(result.stderr.splitlines()) == 1


def test_bench_report_renders_a_run_again(decoupled_server: Server, tmp_path: Path) -> None:
    target = ["--url", decoupled_server.addresses.grpc, "--run_dir", "run"]
    first = bench(*NORMAL, "--num_requests", "10", *target, cwd=tmp_path)
    before = (tmp_path / "run" / "summary.json").read_bytes()
    (tmp_path / "run" / "summary.json").unlink()
    again = bench("report", "run", cwd=tmp_path)
    assert again.stdout == first.stdout
    assert (tmp_path / "run" / "summary.json").read_bytes() == before
