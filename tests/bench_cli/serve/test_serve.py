"""``bench serve``: dry runs, usage errors, and servers in the background."""

from __future__ import annotations

import os
import shlex
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.serve.options import LAUNCHERS
from bench_cli.serve.serve import command as serve
from bench_errors import ExitStatus
from serving.engines.protocol import EngineOptions, SchedulerPolicy
from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.background import BackgroundServer, ProcessIdentity, state_dir, write_state
from serving.proxy.settings import ProxyBounds, read_settings
from serving.repository.pipeline import RepositorySpec
from tests.free_port import free_addresses


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "repo" / "tensorrt_llm").mkdir(parents=True)
    (tmp_path / "repo" / "tensorrt_llm" / "config.pbtxt").touch()


def _printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert run(["serve", *argv, "--dry_run"]) == ExitStatus.VALID
    return capsys.readouterr().out


def _error(capsys: pytest.CaptureFixture[str], *argv: str, status: ExitStatus = ExitStatus.USAGE) -> str:
    assert run(["serve", *argv]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    (sentence,) = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    return sentence


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


_TRITON = ["--tritonserver", "/opt/tritonserver/bin/tritonserver", "--model_repo", "repo"]


# ---- dry runs


def test_dry_run_of_the_embedded_server_names_the_repository_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = _files(tmp_path)
    out = _printed(capsys, "--model_repo", "mine", "--http_port", "18000")
    assert f"--model-repository={tmp_path}/mine" in shlex.split(out, comments=True)
    assert "--http-port=18000" in out
    assert _files(tmp_path) == before


@pytest.mark.parametrize("option", ["engine_dir", "tokenizer_dir", "draft_engine_dir"])
def test_dry_run_refuses_a_folder_that_does_not_exist(option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = _error(capsys, f"--{option}", "none", "--dry_run", status=ExitStatus.FAILED)
    assert error == f"Error: {option}: {tmp_path}/none is not a folder"


def test_options_of_the_engine_reach_its_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written: list[RepositorySpec] = []

    def record(spec: RepositorySpec, folder: Path) -> None:
        written.append(spec)
        raise LaunchError("not written")

    monkeypatch.setattr("serving.repository.pipeline.write_repository", record)
    words = ["--batch_scheduler_policy", "max_utilization", "--no_enable_kv_cache_reuse", "--max_queue_size", "3"]
    assert run(["serve", *words, "--kv_cache_free_gpu_mem_fraction", "0.25", "--draft_engine_dir", "."]) == ExitStatus.FAILED
    options = EngineOptions(
        batch_scheduler_policy=SchedulerPolicy.MAX_UTILIZATION,
        enable_kv_cache_reuse=False,
        max_queue_size=3,
        kv_cache_free_gpu_mem_fraction=0.25,
    )
    assert [(spec.engine_options, spec.draft_engine_dir) for spec in written] == [(options, tmp_path.resolve())]


def test_repository_is_written_to_the_folder_that_the_server_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders: list[Path] = []

    def record(spec: RepositorySpec, folder: Path) -> None:
        folders.append(folder)
        raise LaunchError("not written")

    monkeypatch.setattr("serving.repository.pipeline.write_repository", record)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert run(["serve", "--model_repo", "mine"]) == ExitStatus.FAILED
    assert run(["serve"]) == ExitStatus.FAILED
    assert folders[0] == tmp_path / "mine"
    assert folders[1].parent.parent == tmp_path / "temporary"
    assert run(["serve", "--openai_port", "18003", "--no_decoupled_mode"]) == ExitStatus.FAILED
    assert not _files(tmp_path / "temporary")  # a failure leaves no temporary folder


def test_upstreams_launch_command_gives_upstreams_mpirun(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = shlex.split(_printed(capsys, "--world_size", "2", *_TRITON, "--tensorrt_llm_model_name", "a,b", "--oversubscribe"))
    shared = [
        *("-n", "1", "/opt/tritonserver/bin/tritonserver", f"--model-repository={tmp_path}/repo", "--exit-timeout-secs=10"),
        *("--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"),
        *("--grpc-port=8001", "--http-port=8000", "--metrics-port=8002"),
    ]
    restriction = "model-repository,shared-memory,trace,logging:triton-admin-key=${TRITON_ADMIN_KEY:?}"
    shared += [f"--http-restricted-api={restriction}", f"--grpc-restricted-protocol={restriction}"]
    prefix = "--backend-config=python,shm-region-prefix-name=inflight_bench_8001_prefix"
    assert words == [
        *("mpirun", "--allow-run-as-root", "--oversubscribe"),
        *(*shared, "--disable-auto-complete-config", f"{prefix}0_"),
        ":",
        *(*shared, "--model-control-mode=explicit", "--load-model=a", "--load-model=b"),
        *("--disable-auto-complete-config", f"{prefix}1_"),
    ]


def test_multi_model_gives_the_orchestrator(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(_printed(capsys, "--multi_model", "--gpu_count", "2", *_TRITON))
    assert words[:3] == ["TRTLLM_ORCHESTRATOR=1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=1", "mpirun"]
    assert "--cuda-memory-pool-byte-size=1:0" in words


def test_no_mpi_gives_the_server_without_mpirun(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(_printed(capsys, "--no_mpi", "--trtllm_llmapi_launch", *_TRITON, "--log"))
    assert words[:2] == ["trtllm-llmapi-launch", "/opt/tritonserver/bin/tritonserver"]
    assert "--log-verbose=3" in words
    assert f"--log-file={Path.cwd()}/triton_log.txt" in words


def test_slurm_gives_the_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = _files(tmp_path)
    out = _printed(
        capsys,
        *("--slurm", "--model_repo", "repo", "--slurm_nodes", "2", "--slurm_tasks_per_node", "8", "--slurm_time", "1:00:00"),
        *("--slurm_account", "team", "--slurm_partition", "gpu", "--container_image", "image", "--container_mount", "/e:/e"),
    )
    headers = ["--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--time=1:00:00", "--account=team", "--partition=gpu"]
    assert [f"#SBATCH {header}" in out.splitlines() for header in headers] == [True] * len(headers)
    assert f"--container-image=image --container-mounts={tmp_path}/repo:{tmp_path}/repo,/e:/e" in out
    assert _files(tmp_path) == before


def test_slurm_writes_the_script_and_submits_it_with_submit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/sh\ngrep -c SBATCH "$1"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    arguments = ["serve", "--slurm", "--model_repo", "repo", "--world_size", "4", "--slurm_script", "job"]
    assert run(arguments) == ExitStatus.VALID
    assert capsys.readouterr().out == "Script: job\n"
    assert run([*arguments, "--submit"]) == ExitStatus.VALID
    assert capsys.readouterr().out == "4\n"  # lines: name, nodes, ntasks, ntasks-per-node
    assert "--ntasks=4" in Path("job").read_text()


@pytest.mark.parametrize("dry_run", [[], ["--dry_run"]])
def test_a_job_of_slurm_that_no_other_node_can_reach_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str], dry_run: list[str]
) -> None:
    arguments = ["serve", "--slurm", "--model_repo", "repo", "--slurm_script", "job", *dry_run]
    assert run(arguments) == ExitStatus.VALID
    assert "only programs on the first node of the job reach it" in capsys.readouterr().err
    assert run([*arguments, "--host", "0.0.0.0", "--accept_risk"]) == ExitStatus.VALID
    assert "first node" not in capsys.readouterr().err


def test_docker_gives_the_containers_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = shlex.split(_printed(capsys, "--docker", "--model_repo", "repo", "--container_image", "image", "--shm_size", "4g"))
    assert words[:3] == ["docker", "run", "--rm"]
    assert words[words.index("-v") + 1] == f"{tmp_path}/repo:{tmp_path}/repo"
    assert words[words.index("image") + 1] == "/opt/tritonserver/bin/tritonserver"
    assert words[words.index("--shm-size") + 1] == "4g"


def test_administration_is_restricted_on_every_host(capsys: pytest.CaptureFixture[str]) -> None:
    restriction = "model-repository,shared-memory,trace,logging:triton-admin-key=${TRITON_ADMIN_KEY:?}"
    for launcher in (["--no_mpi", *_TRITON], ["--docker", "--model_repo", "repo"], ["--slurm", "--model_repo", "repo"], []):
        for host in ("127.0.0.1", "0.0.0.0"):
            printed = _printed(capsys, *launcher, "--host", host, "--accept_risk")
            assert f'"--http-restricted-api={restriction}"' in printed
            assert f'"--grpc-restricted-protocol={restriction}"' in printed
    requested = _printed(capsys, "--restricted_apis", "statistics,trace")
    assert "--http-restricted-api=model-repository,shared-memory,trace,logging,statistics:triton-admin-key=" in requested


@pytest.mark.parametrize("launcher", [[], ["--no_mpi", *_TRITON], ["--world_size", "2", *_TRITON]])
def test_beyond_loopback_the_proxy_listens_and_the_server_on_loopback_alone(
    capsys: pytest.CaptureFixture[str], launcher: list[str]
) -> None:
    free = free_addresses()
    ports = (f"--http_port={free.http_port}", f"--grpc_port={free.grpc_port}", f"--metrics_port={free.metrics_port}")
    bounds = ("--proxy_body_mib", "1", "--proxy_connections", "9", "--proxy_timeout", "3", "--allowed_hosts", "Gpu1.Example")
    first, *_, command = _printed(capsys, *launcher, *ports, "--host", "0.0.0.0", *bounds).splitlines()[-2:]
    settings = read_settings(shlex.split(first.partition("serving.proxy")[2])[0])
    assert (settings.host, settings.server_host) == ("0.0.0.0", "127.0.0.1")
    assert [pair.listen for pair in (settings.http, settings.grpc, settings.metrics)] == [
        *(free.http_port, free.grpc_port, free.metrics_port)
    ]
    assert settings.bounds == ProxyBounds(1 << 20, 9, 3.0, ("gpu1.example",))
    assert command.count("127.0.0.1") == 3 * max(1, command.count("-n 1"))
    assert "0.0.0.0" not in command
    for option, pair in (("http", settings.http), ("grpc", settings.grpc), ("metrics", settings.metrics)):
        assert f"--{option}-port={pair.server}" in command
        assert pair.server != pair.listen


def test_container_beyond_loopback_is_published_on_loopback_and_named_after_the_public_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = shlex.split(_printed(capsys, "--docker", "--model_repo", "repo", "--host", "0.0.0.0"), comments=True)
    published = [value for option, value in pairwise(words) if option == "-p"]
    assert [value.partition(":")[0] for value in published] == ["127.0.0.1"] * 3
    assert not any(":8001:" in value for value in published)
    assert words[words.index("--name") + 1] == "inflight-bench-8001"


def test_there_is_no_proxy_on_loopback_unless_it_is_asked_for_nor_where_it_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "serving.proxy" not in _printed(capsys)
    assert "serving.proxy" in _printed(capsys, "--proxy")
    assert "serving.proxy" not in _printed(capsys, "--host", "0.0.0.0", "--no_proxy", "--accept_risk")


# ---- usage errors


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--slurm", "--docker"], "--launcher is given twice: docker and slurm"),
        (["--launcher", "embedded", "--world_size", "2"], "--world_size: not with --launcher embedded"),
        (["--no_mpi", "--multi_model"], "--multi_model: not with --launcher tritonserver"),
        (["--launcher", "mpirun", "--engine_dir", "x"], "--engine_dir: not with --launcher mpirun; only with embedded"),
        (
            ["--no_mpi", "--upstream_release", "0.11"],
            "--upstream_release: not with --launcher tritonserver; only with embedded",
        ),
        (
            ["--docker", "--out_of_vocabulary_ids", "wrap"],
            "--out_of_vocabulary_ids: not with --launcher docker; only with embedded",
        ),
        (["--launcher", "mpirun", "--slurm_time", "1"], "--slurm_time: not with --launcher mpirun; only with slurm"),
        (["--slurm", "--model_repo", "repo", "--background"], "--background: not with --launcher slurm"),
        (["--world_size", "2"], "--model_repo: --launcher mpirun serves a repository"),
        (
            ["--world_size", "2", "--model_repo", "repo", "--gpu_count", "2"],
            "--gpu_count: only for the workers that --multi_model spawns",
        ),
        (["--slurm", "--model_repo", "repo", "--container_mount", "/e:/e"], "--container_mount: without --container_image"),
        (["--proxy_timeout", "9"], "--proxy_timeout: there is no proxy at --host 127.0.0.1"),
        (["--host", "0.0.0.0", "--no_proxy", "--accept_risk", "--proxy_body_mib", "9"], "--proxy_body_mib: there is no proxy"),
        (["--allowed_hosts", "gpu1.example"], "--allowed_hosts: there is no proxy"),
        (["--name", "mine"], "--name: only a server in the --background"),
        (
            ["--slurm", "--model_repo", "repo", "--world_size", "3", "--slurm_nodes", "2"],
            "--world_size 3: 2 nodes of 2 tasks are 4",
        ),
        (["--http_port", "18000", "status"], "--http_port belongs to a bare 'bench serve'"),
        (["stop", "a", "--all"], "--all"),
        (["--restricted_apis", "trace,health"], "'--restricted_apis': health: use model-repository, "),
        (["--engine", "tensorrt_llm"], "--engine_dir: the demo engine is for OpenVINO"),
        (["--host", "0.0.0.0", "--no_proxy"], "--no_proxy: without the proxy any client can crash Triton 24.10"),
        (["--slurm", "--model_repo", "repo", "--host", "0.0.0.0"], "--host 0.0.0.0: a job of Slurm has no proxy"),
        (["--slurm", "--model_repo", "repo", "--proxy"], "--proxy: not with --launcher slurm"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_contradicting_options_are_a_usage_error(capsys: pytest.CaptureFixture[str], argv: list[str], named: str) -> None:
    assert named in _error(capsys, *argv)


def test_every_option_with_a_launcher_is_an_option_of_serve() -> None:
    from bench_cli.serve.options import _BELONGS_TO

    assert set(_BELONGS_TO) <= {parameter.name for parameter in serve.params}
    assert {launcher for launchers in _BELONGS_TO.values() for launcher in launchers} <= set(LAUNCHERS)


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--launcher", "tritonserver", "--model_repo", "none"], "--model_repo"),
        (["--launcher", "tritonserver", "--model_repo", ".", "--tritonserver", "none"], "contains no model"),
        (["--launcher", "tritonserver", "--model_repo", "repo", "--tritonserver", "none"], "--tritonserver none"),
        (["--no_mpi", "--model_repo", "repo", "--world_size", "2"], "--world_size 2"),
        (["--host", "192.0.2.1"], "--host 192.0.2.1"),
        (["--model_repo", "my repo"], "my repo: its path must be ASCII, without spaces, quotes"),
        (["--model_repo", "für", "--dry_run"], "für: its path must be ASCII, without spaces, quotes"),
        (["--engine", "tensorrt_llm", "--engine_dir", "repo"], "pip install 'inflight-bench[tensorrt-llm]'"),
        (["--docker", "--model_repo", "repo", "--host", "192.0.2.1"], "--host 192.0.2.1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_failed_launch_names_the_option(capsys: pytest.CaptureFixture[str], argv: list[str], named: str) -> None:
    assert named in _error(capsys, *argv, status=ExitStatus.FAILED)


@pytest.mark.parametrize("name", ["my cache", "für"])
def test_a_cache_that_triton_cannot_read_is_refused(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the home of somebody whose name is not ASCII. Triton's Python backend starts its stub from there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    error = _error(capsys, "--dry_run", status=ExitStatus.FAILED)
    assert f"cannot read its own files in {tmp_path}/{name}/" in error
    assert error.endswith("Set XDG_CACHE_HOME to another folder")


def test_host_beyond_loopback_prints_a_warning(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "tritonserver"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    free = free_addresses()
    ports = [f"--http_port={free.http_port}", f"--grpc_port={free.grpc_port}", f"--metrics_port={free.metrics_port}"]
    arguments = ["serve", "--no_mpi", "--model_repo", "repo", "--tritonserver", str(failing), *ports]
    assert run([*arguments, "--host", "0.0.0.0"]) == ExitStatus.FAILED
    warned = capsys.readouterr().err
    assert "Warning: --host 0.0.0.0 is not loopback, and Triton's inference has no authentication" in warned
    assert "What stays open is Triton's loopback" in warned
    assert run([*arguments, "--host", "0.0.0.0", "--no_proxy", "--accept_risk"]) == ExitStatus.FAILED
    assert "There is no proxy, so they can also crash Triton" in capsys.readouterr().err
    assert run(arguments) == ExitStatus.FAILED
    assert "Warning" not in capsys.readouterr().err


# ---- the background


def test_log_of_each_server_in_the_background_has_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        out = _printed(capsys, "--background", "--name", name, "--log")
        assert f"--log-file={tmp_path}/state/inflight-bench/servers/{name}.log" in out
    assert f"--log-file={tmp_path}/mine.log" in _printed(capsys, "--background", "--log", "--log_file", "mine.log")
    assert f"--log-file={tmp_path}/triton_log.txt" in _printed(capsys, "--log")


def test_status_of_a_dead_server_shows_what_its_log_says_of_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_text("E1122 of an earlier server\nE1123 no memory\n" + "I1123 on\n" * 12)
    dead = ProcessIdentity(2**22, 1, "another boot")
    state = BackgroundServer("mine", dead, None, choose_addresses(), str(log), 1.0, ("tritonserver",), None, 27)
    write_state(state, state_dir() / "mine.json")
    assert run(["serve", "status"]) == ExitStatus.FAILED
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == f"mine: process {2**22} ended unexpectedly. See its log, {log}."
    assert shown[1:] == ["First errors:", "E1123 no memory", "…", "Last lines:", *["I1123 on"] * 12]
    assert run(["serve", "status"]) == ExitStatus.VALID  # it was reported


def test_status_and_stop_without_a_server_in_the_background(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "status"]) == ExitStatus.VALID
    assert "No server runs in the background." in capsys.readouterr().err
    assert run(["serve", "stop"]) == ExitStatus.FAILED
    assert run(["serve", "stop", "--all"]) == ExitStatus.VALID
    assert run(["serve", "status", "mine"]) == ExitStatus.FAILED
    assert "No server mine runs in the background." in capsys.readouterr().err


def test_invalid_name_leaves_no_temporary_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _files(tmp_path)
    assert "--name !!: use letters" in _error(capsys, "--background", "--name", "!!", status=ExitStatus.FAILED)
    assert _files(tmp_path) == before
