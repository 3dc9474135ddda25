"""Commands and scripts, compared with upstream's start script and Slurm recipes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.launch.addresses import ServerAddresses
from serving.launch.docker import Container, docker_command, remove_command
from serving.launch.mpirun import mpirun_command, orchestrator_environment
from serving.launch.slurm import SlurmJob, sbatch_script, srun_command
from serving.launch.tritonserver import TritonServer, rank_command

_ADDRESSES = ServerAddresses("127.0.0.1", 8000, 8001, 8002)
_SERVER = TritonServer("/opt/tritonserver/bin/tritonserver", "/repo", _ADDRESSES)


def _ranks(command: tuple[str, ...]) -> list[list[str]]:
    """The programs of an mpirun command, without mpirun's own options."""
    words = list(command[command.index("-n") :])
    return [list(group) for colon, group in groupby(words, lambda word: word == ":") if not colon]


def _shm_prefix(rank: list[str] | tuple[str, ...]) -> str:
    (backend_config,) = [word for word in rank if word.startswith("--backend-config=python,shm-region-prefix-name=")]
    return backend_config.rpartition("=")[2]


# ---- one process


def test_every_argument_of_the_reference_occurs_once() -> None:
    command = rank_command(_SERVER, 0)
    assert command[0] == "/opt/tritonserver/bin/tritonserver"
    assert sorted(command[1:]) == sorted(
        [
            "--model-repository=/repo",
            "--exit-timeout-secs=10",
            "--http-port=8000",
            "--grpc-port=8001",
            "--metrics-port=8002",
            "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.1",
            "--metrics-address=127.0.0.1",
            "--disable-auto-complete-config",
            "--backend-config=python,shm-region-prefix-name=inflight_bench_8001_prefix0_",
        ]
    )


def test_backend_folder_is_passed_only_where_it_is_given() -> None:
    assert "--backend-directory=/backends" in rank_command(replace(_SERVER, backend_dir="/backends"), 0)
    assert not any("--backend-directory" in word for word in rank_command(_SERVER, 0))


def test_only_rank_0_writes_the_verbose_log_and_has_the_multimodal_pool() -> None:
    server = replace(_SERVER, verbose=True, log_file="/log", gpu0_cuda_pool_bytes=300_000_000)
    alone = {"--log-verbose=3", "--log-file=/log", "--cuda-memory-pool-byte-size=0:300000000"}
    assert alone <= set(rank_command(server, 0))
    assert not alone & set(rank_command(server, 1))


def test_verbose_log_without_a_file_goes_to_the_output() -> None:
    command = rank_command(replace(_SERVER, verbose=True), 0)
    assert "--log-verbose=3" in command
    assert not any(word.startswith("--log-file") for word in command)


# ---- mpirun, leader mode


@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_ranks_are_one_process_each_separated_by_colons(world_size: int) -> None:
    command = mpirun_command(_SERVER, world_size)
    assert command[:2] == ("mpirun", "--allow-run-as-root")
    assert command.count(":") == world_size - 1
    assert command[-1] != ":"
    ranks = _ranks(command)
    assert len(ranks) == world_size
    assert all(rank[:3] == ["-n", "1", "/opt/tritonserver/bin/tritonserver"] for rank in ranks)


def test_only_rank_0_serves_every_model() -> None:
    first, *others = _ranks(mpirun_command(replace(_SERVER, loaded_models=("tensorrt_llm", "multimodal_encoders")), 4))
    controls = ["--model-control-mode=explicit", "--load-model=tensorrt_llm", "--load-model=multimodal_encoders"]
    assert not set(controls) & set(first)
    for rank in others:
        assert [word for word in rank if word in controls] == controls


@given(st.integers(1, 64), st.integers(1, 65535))
def test_ranks_and_deployments_share_no_memory(world_size: int, grpc_port: int) -> None:
    prefixes = [_shm_prefix(rank) for rank in _ranks(mpirun_command(_SERVER, world_size))]
    elsewhere = replace(_SERVER, addresses=replace(_ADDRESSES, grpc_port=grpc_port))
    assert len(set(prefixes)) == world_size
    assert [prefix.endswith(f"prefix{rank}_") for rank, prefix in enumerate(prefixes)] == [True] * world_size
    if grpc_port != 8001:
        assert not set(prefixes) & {_shm_prefix(rank) for rank in _ranks(mpirun_command(elsewhere, world_size))}


def test_oversubscribe_is_an_option_of_mpirun() -> None:
    assert mpirun_command(_SERVER, 2, oversubscribe=True)[:3] == ("mpirun", "--allow-run-as-root", "--oversubscribe")
    assert "--oversubscribe" not in mpirun_command(_SERVER, 2)


def test_llmapi_launch_precedes_every_ranks_server() -> None:
    for rank in _ranks(mpirun_command(replace(_SERVER, llmapi_launch=True), 2)):
        assert rank[2:4] == ["trtllm-llmapi-launch", "/opt/tritonserver/bin/tritonserver"]


# ---- orchestrator mode


def test_orchestrators_environment_sets_whether_it_spawns_workers() -> None:
    assert orchestrator_environment(True) == {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1"}
    assert orchestrator_environment(False) == {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "0"}


def test_spawning_orchestrator_leaves_every_gpus_memory_to_its_workers() -> None:
    command = rank_command(replace(_SERVER, spawning_gpus=2), 0)
    at = command.index("--pinned-memory-pool-byte-size=0")
    assert command[at : at + 4] == (
        "--pinned-memory-pool-byte-size=0",
        "--enable-peer-access=false",
        "--cuda-memory-pool-byte-size=0:0",
        "--cuda-memory-pool-byte-size=1:0",
    )
    assert "--enable-peer-access=false" not in rank_command(_SERVER, 0)


# ---- docker


def test_container_has_gpus_memory_mounts_and_environment() -> None:
    container = Container("image:tag", "mine", ("/repo:/repo", "/engines:/engines:ro"), shm_size="4g")
    command = docker_command(container, _ADDRESSES, ["tritonserver", "--x"], {"A": "1"})
    pairs = list(pairwise(command))
    assert command[:3] == ("docker", "run", "--rm")
    assert {("--gpus", "all"), ("--shm-size", "4g"), ("--name", "mine"), ("-e", "A=1")} <= set(pairs)
    assert [value for option, value in pairs if option == "-v"] == ["/repo:/repo", "/engines:/engines:ro"]
    assert command[-3:] == ("image:tag", "tritonserver", "--x")
    assert remove_command("0123abcd") == ("docker", "rm", "--force", "0123abcd")


def test_containers_ports_are_published_on_the_host_alone() -> None:
    command = docker_command(Container("image", "mine"), _ADDRESSES, [], {})
    published = [value for option, value in pairwise(command) if option == "-p"]
    assert published == ["127.0.0.1:8000:8000", "127.0.0.1:8001:8001", "127.0.0.1:8002:8002"]


# ---- slurm

_JOB = SlurmJob(2, 8, "mine", "1:30:00", "team", "gpu", "pmix", "nvcr.io/image", ("/repo:/repo", "/engines:/engines"), "out-%j")


def test_batch_headers_are_those_of_the_job() -> None:
    script = sbatch_script(_JOB, _SERVER, {"TRTLLM_ORCHESTRATOR": "1"})
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    assert [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")] == [
        "--job-name=mine",
        "--nodes=2",
        "--ntasks=16",
        "--ntasks-per-node=8",
        "--time=1:30:00",
        "--account=team",
        "--partition=gpu",
        "--output=out-%j",
    ]
    assert "export TRTLLM_ORCHESTRATOR=1\n" in script


def test_unset_fields_are_left_to_slurm() -> None:
    script = sbatch_script(SlurmJob(1, 1), _SERVER, {})
    for name in ("time", "account", "partition", "output", "container-image", "container-mounts"):
        assert f"--{name}" not in script


def test_srun_has_tasks_nodes_mpi_image_and_mounts() -> None:
    command = srun_command(_JOB, _SERVER)
    assert command[:7] == (
        "srun",
        "--mpi=pmix",
        "--nodes=2",
        "--ntasks=16",
        "--ntasks-per-node=8",
        "--container-image=nvcr.io/image",
        "--container-mounts=/repo:/repo,/engines:/engines",
    )


_FAKE_SRUN = """#!/usr/bin/env python3
import os, subprocess, sys
words = [word for word in sys.argv[1:]]
command = words[words.index("bash"):]
tasks = int(next(word for word in words if word.startswith("--ntasks=")).partition("=")[2])
for rank in range(tasks):
    subprocess.run(command, env={**os.environ, "SLURM_PROCID": str(rank)}, check=True)
"""
_FAKE_TRITON = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps(sys.argv) + "\\n")
"""


def _program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("folder", ["plain", "with blank, 'quote' and $dollar"])
def test_script_run_by_a_shell_starts_each_rank_with_its_own_arguments(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    _program(tmp_path, "srun", _FAKE_SRUN)
    server = replace(_SERVER, executable=str(_program(place, "tritonserver", _FAKE_TRITON)), repository=str(place))
    script = _program(tmp_path, "job", sbatch_script(SlurmJob(1, 3), server, {"NOTE": "it's"}))
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RECORD": str(tmp_path / "record")}
    subprocess.run([script], env=env, check=True, timeout=200)
    ranks = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    assert ranks == [list(rank_command(server, rank)) for rank in range(3)]


def test_llmapi_launch_runs_the_same_command_on_every_rank() -> None:
    script = srun_command(SlurmJob(2, 8), replace(_SERVER, llmapi_launch=True))[-1]
    assert script.startswith("exec trtllm-llmapi-launch /opt/tritonserver/bin/tritonserver --model-repository=/repo")
    assert "--load-model" not in script
    assert shlex.split(script)[-1].endswith("prefix${SLURM_PROCID}_")
