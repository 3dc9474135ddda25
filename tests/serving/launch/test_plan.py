"""Launch plans: the command of each launcher, and the refused combinations of options."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import LaunchError
from serving.launch.find_tritonserver import FoundTriton
from serving.launch.options import DEFAULT_ADDRESSES, ContainerOptions, Launcher, LaunchOptions, ProcessOptions, Supervision
from serving.launch.plan import plan_launch, plan_script, shell_line
from serving.launch.slurm import SlurmJob

_TRITON = FoundTriton("/triton", "/backends", {"LD_LIBRARY_PATH": "/lib"})
_MODELS = ("ensemble", "tensorrt_llm")


def _options(launcher: Launcher, **changes: object) -> LaunchOptions:
    return replace(LaunchOptions(launcher, "/repo"), **changes)  # type: ignore[arg-type]


def _processes(launcher: Launcher, **changes: object) -> LaunchOptions:
    return _options(launcher, processes=ProcessOptions(**changes))  # type: ignore[arg-type]


def test_tritonserver_is_one_process_without_mpi() -> None:
    supervision = Supervision(ready_timeout_s=5.0, exit_timeout_s=44)
    plan = plan_launch(_options(Launcher.TRITONSERVER, supervision=supervision), _TRITON, _MODELS)
    assert plan.command[:3] == ("/triton", "--model-repository=/repo", "--backend-directory=/backends")
    assert "--exit-timeout-secs=44" in plan.command
    assert (plan.models, plan.environment, plan.supervision) == (_MODELS, _TRITON.environment, supervision)
    assert plan.repository == "/repo"
    assert not plan.in_container


def test_a_single_rank_runs_under_mpirun_too() -> None:
    assert plan_launch(_options(Launcher.MPIRUN), _TRITON, _MODELS).command[:4] == ("mpirun", "--allow-run-as-root", "-n", "1")


def test_orchestrator_mode_is_set_in_the_environment() -> None:
    plan = plan_launch(_processes(Launcher.MPIRUN, multi_model=True, gpu_count=2), _TRITON, _MODELS)
    assert plan.environment == {
        "LD_LIBRARY_PATH": "/lib",
        "TRTLLM_ORCHESTRATOR": "1",
        "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1",
    }
    assert plan.command.count("-n") == 1
    assert "--cuda-memory-pool-byte-size=1:0" in plan.command


def test_orchestrator_without_spawning_starts_every_rank_and_keeps_tritons_pools() -> None:
    options = _processes(Launcher.MPIRUN, multi_model=True, disable_spawn_processes=True, world_size=3)
    plan = plan_launch(options, _TRITON, _MODELS)
    assert plan.environment["TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES"] == "0"
    assert plan.command.count("-n") == 3
    assert not any("memory-pool" in word for word in plan.command)


def test_container_runs_nvidias_server_on_every_address_inside_and_on_the_host_outside() -> None:
    options = _options(
        Launcher.DOCKER,
        container=ContainerOptions(container_mount=("/e:/e",), container_name="mine"),
        supervision=Supervision(verbose=True),
        log_file="/outside.log",
    )
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


def test_default_container_name_has_the_grpc_port() -> None:
    for port in (8001, 9001):
        addresses = replace(DEFAULT_ADDRESSES, grpc_port=port)
        command = plan_launch(_options(Launcher.DOCKER, addresses=addresses), FoundTriton(""), _MODELS).command
        assert command[command.index("--name") + 1] == f"inflight-bench-{port}"


def test_container_of_several_ranks_runs_mpirun_and_gets_the_orchestrators_environment() -> None:
    options = _processes(Launcher.DOCKER, world_size=2, multi_model=True, disable_spawn_processes=True)
    command = plan_launch(options, FoundTriton(""), _MODELS).command
    assert command[command.index("mpirun") :].count("-n") == 2
    assert "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES=0" in command


def test_slurm_script_mounts_the_repository_and_the_given_folders() -> None:
    container = ContainerOptions(container_image="image", container_mount=("/e:/e",))
    options = _options(Launcher.SLURM, slurm=SlurmJob(1, 2), container=container)
    assert "--container-mounts=/repo:/repo,/e:/e" in plan_script(options)
    assert "--container-mounts" not in plan_script(replace(options, container=replace(container, container_image=None)))


def test_slurm_job_logs_to_a_file_only_outside_a_container() -> None:
    options = _options(Launcher.SLURM, supervision=Supervision(verbose=True), log_file="/here/log")
    assert "--log-file=/here/log" in plan_script(options)
    inside = plan_script(replace(options, container=ContainerOptions(container_image="image")))
    assert "--log-verbose=3" in inside
    assert "--log-file" not in inside


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (_processes(Launcher.TRITONSERVER, world_size=2), "--world_size 2: .*--launcher mpirun"),
        (_processes(Launcher.MPIRUN, disable_spawn_processes=True), "--disable_spawn_processes requires --multi_model"),
        (_processes(Launcher.MPIRUN, multi_model=True, world_size=2, gpu_count=1), "spawns its own processes.*not 2"),
        (
            replace(_processes(Launcher.SLURM, multi_model=True, gpu_count=1), slurm=SlurmJob(2, 2)),
            "spawns its own processes.*not 4",
        ),
        (_processes(Launcher.MPIRUN, multi_model=True), "set --gpu_count"),
        (_processes(Launcher.MPIRUN, multi_model=True, gpu_count=1, trtllm_llmapi_launch=True), "--trtllm_llmapi_launch"),
        (
            _processes(Launcher.MPIRUN, multi_model=True, gpu_count=1, multimodal_gpu0_cuda_mem_pool_bytes=9),
            "--multimodal_gpu0_cuda_mem_pool_bytes",
        ),
        (_processes(Launcher.MPIRUN, tensorrt_llm_model_name=("a", "")), "--tensorrt_llm_model_name: '' is not a model name"),
        (_options(Launcher.DOCKER, container=ContainerOptions(container_mount=("/only",))), "--container_mount /only"),
        (_options(Launcher.DOCKER, container=ContainerOptions(container_mount=("/a:",))), "--container_mount /a:"),
        (
            _options(Launcher.SLURM, container=ContainerOptions(container_mount=("/a,b:/c",))),
            "--container_mount /a,b:/c: Slurm separates",
        ),
        (_options(Launcher.SLURM, slurm=SlurmJob(1, 1, time="1 hour")), "--slurm_time '1 hour'"),
        (_options(Launcher.SLURM, slurm=SlurmJob(1, 1, account="a\n#SBATCH --exclusive")), "--slurm_account"),
        (_options(Launcher.SLURM, slurm=SlurmJob(1, 1, partition="")), "--slurm_partition ''"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_combinations_name_their_option(options: LaunchOptions, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        plan_script(options) if options.launcher is Launcher.SLURM else plan_launch(options, _TRITON, _MODELS)


_WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


@given(st.lists(_WORD, min_size=1), st.dictionaries(st.from_regex(r"\A[A-Z_]+\Z"), _WORD))
def test_a_shell_parses_the_printed_line_back_into_its_words(command: list[str], environment: dict[str, str]) -> None:
    words = shlex.split(shell_line(tuple(command), environment))
    assert words == [*(f"{name}={value}" for name, value in environment.items()), *command]
