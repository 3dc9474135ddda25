"""From options to plans: which way takes which command, and what excludes what."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import LaunchError
from serving.launch.find_tritonserver import FoundTriton
from serving.launch.options import Launcher, LaunchOptions
from serving.launch.plan import plan_launch, plan_script, shell_line
from serving.launch.slurm import SlurmJob

_TRITON = FoundTriton("/triton", "/backends", {"LD_LIBRARY_PATH": "/lib"})
_MODELS = ("ensemble", "tensorrt_llm")


def _options(launcher: Launcher, **changes: object) -> LaunchOptions:
    return replace(LaunchOptions(launcher, "/repo"), **changes)  # type: ignore[arg-type]


def test_tritonserver_is_one_process_without_mpi() -> None:
    plan = plan_launch(_options(Launcher.TRITONSERVER, exit_timeout=44, ready_timeout=5.0), _TRITON, _MODELS)
    assert plan.command[:3] == ("/triton", "--model-repository=/repo", "--backend-directory=/backends")
    assert "--exit-timeout-secs=44" in plan.command
    assert (plan.models, plan.environment, plan.exit_timeout_s, plan.ready_timeout_s) == (_MODELS, _TRITON.environment, 44, 5.0)
    assert not plan.in_container


def test_mpirun_stands_before_even_one_rank() -> None:
    assert plan_launch(_options(Launcher.MPIRUN), _TRITON, _MODELS).command[:4] == ("mpirun", "--allow-run-as-root", "-n", "1")


def test_orchestrator_is_told_by_its_environment() -> None:
    plan = plan_launch(_options(Launcher.MPIRUN, multi_model=True, gpu_count=2), _TRITON, _MODELS)
    assert plan.environment == {
        "LD_LIBRARY_PATH": "/lib",
        "TRTLLM_ORCHESTRATOR": "1",
        "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1",
    }
    assert plan.command.count("-n") == 1
    assert "--cuda-memory-pool-byte-size=1:0" in plan.command


def test_orchestrator_without_spawning_starts_every_rank_and_keeps_tritons_pools() -> None:
    options = _options(Launcher.MPIRUN, multi_model=True, disable_spawn_processes=True, world_size=3)
    plan = plan_launch(options, _TRITON, _MODELS)
    assert plan.environment["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] == "0"
    assert plan.command.count("-n") == 3
    assert not any("memory-pool" in word for word in plan.command)


def test_container_runs_nvidias_server_on_every_address_inside_and_on_the_host_outside() -> None:
    options = _options(Launcher.DOCKER, container_mounts=("/e:/e",), log=True, log_file="/outside.log", container_name="mine")
    plan = plan_launch(options, FoundTriton(""), _MODELS)
    assert plan.command[0] == "docker"
    assert "/opt/tritonserver/bin/tritonserver" in plan.command
    assert "mpirun" not in plan.command
    assert "--http-address=0.0.0.0" in plan.command
    assert "127.0.0.1:8000:8000" in plan.command
    assert [value for option, value in zip(plan.command, plan.command[1:], strict=False) if option == "-v"] == [
        "/repo:/repo",
        "/e:/e",
    ]
    assert "--log-verbose=3" in plan.command
    assert not any("outside.log" in word for word in plan.command)  # it would be a file in the container
    assert plan.addresses.host == "127.0.0.1"
    assert plan.environment == {}
    assert plan.in_container
    assert plan.command[plan.command.index("--name") + 1] == "mine"


def test_container_has_a_name_for_each_grpc_port_unless_it_is_given_one() -> None:
    for port in (8001, 9001):
        command = plan_launch(_options(Launcher.DOCKER, grpc_port=port), FoundTriton(""), _MODELS).command
        assert command[command.index("--name") + 1] == f"inflight-bench-{port}"


def test_container_of_several_ranks_runs_mpirun_and_gets_the_orchestrators_environment() -> None:
    options = _options(Launcher.DOCKER, world_size=2, multi_model=True, disable_spawn_processes=True)
    command = plan_launch(options, FoundTriton(""), _MODELS).command
    assert command[command.index("mpirun") :].count("-n") == 2
    assert "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0" in command


def test_slurm_script_mounts_the_repository_and_what_was_asked() -> None:
    job = SlurmJob(1, 2, container_image="image")
    script = plan_script(_options(Launcher.SLURM, slurm=job, container_mounts=("/e:/e",)))
    assert "--container-mounts=/repo:/repo,/e:/e" in script
    assert "--container-mounts" not in plan_script(_options(Launcher.SLURM, slurm=replace(job, container_image=None)))


def test_slurm_log_is_a_file_only_where_a_container_does_not_swallow_it() -> None:
    options = _options(Launcher.SLURM, log=True, log_file="/here/log")
    assert "--log-file=/here/log" in plan_script(options)
    inside = plan_script(replace(options, slurm=SlurmJob(1, 1, container_image="image")))
    assert "--log-verbose=3" in inside
    assert "--log-file" not in inside


@pytest.mark.parametrize(
    ("launcher", "changes", "said"),
    [
        (Launcher.TRITONSERVER, {"world_size": 2}, "--world_size 2: .*--launcher mpirun"),
        (Launcher.MPIRUN, {"disable_spawn_processes": True}, "--disable_spawn_processes is a way of --multi_model"),
        (Launcher.MPIRUN, {"multi_model": True, "world_size": 2, "gpu_count": 1}, "spawns its own processes.*not 2"),
        (Launcher.SLURM, {"multi_model": True, "slurm": SlurmJob(2, 2), "gpu_count": 1}, "spawns its own processes.*not 4"),
        (Launcher.MPIRUN, {"multi_model": True}, "give --gpu_count"),
        (Launcher.MPIRUN, {"multi_model": True, "gpu_count": 1, "trtllm_llmapi_launch": True}, "--trtllm_llmapi_launch"),
        (
            Launcher.MPIRUN,
            {"multi_model": True, "gpu_count": 1, "multimodal_gpu0_cuda_mem_pool_bytes": 9},
            "--multimodal_gpu0_cuda_mem_pool_bytes",
        ),
        (Launcher.MPIRUN, {"tensorrt_llm_model_name": ("a", "")}, "--tensorrt_llm_model_name: '' is no model name"),
        (Launcher.DOCKER, {"container_mounts": ("/only",)}, "--container_mount /only"),
        (Launcher.DOCKER, {"container_mounts": ("/a:",)}, "--container_mount /a:"),
        (Launcher.SLURM, {"container_mounts": ("/a,b:/c",)}, "--container_mount /a,b:/c: Slurm parts"),
        (Launcher.SLURM, {"slurm": SlurmJob(1, 1, time="1 hour")}, "--slurm_time '1 hour'"),
        (Launcher.SLURM, {"slurm": SlurmJob(1, 1, account="a\n#SBATCH --exclusive")}, "--slurm_account"),
        (Launcher.SLURM, {"slurm": SlurmJob(1, 1, partition="")}, "--slurm_partition ''"),
    ],
)
def test_wishes_that_cannot_be_met_name_their_option(launcher: Launcher, changes: dict[str, object], said: str) -> None:
    options = _options(launcher, **changes)
    with pytest.raises(LaunchError, match=said):
        plan_script(options) if launcher is Launcher.SLURM else plan_launch(options, _TRITON, _MODELS)


_WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


@given(st.lists(_WORD, min_size=1), st.dictionaries(st.from_regex(r"\A[A-Z_]+\Z"), _WORD))
def test_printed_line_is_read_back_by_a_shell_as_it_was(command: list[str], environment: dict[str, str]) -> None:
    words = shlex.split(shell_line(tuple(command), environment))
    assert words == [*(f"{name}={value}" for name, value in environment.items()), *command]
