"""``bench serve``: deploy the models and keep them up. Its sub-commands look after what it started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.engine_options import engine_options, given
from harness.cli.serve import fill as serve_fill
from harness.cli.serve import repo as serve_repo
from harness.cli.serve import status as serve_status
from harness.cli.serve import stop as serve_stop
from harness.cli.serve.options import EMBEDDED, check_belonging, choose_launcher, serve_options
from harness.cli.signals import signals_as_interrupt

if TYPE_CHECKING:
    from serving.launch.options import LaunchOptions
    from serving.launch.plan import LaunchPlan
    from serving.repository.pipeline import RepositorySpec


@cloup.group(
    name="serve",
    short_help="Deploy the models and keep them up.",
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [ARGS]...]",
    sections=[
        cloup.Section("Model repositories", [serve_repo.command, serve_fill.command]),
        cloup.Section("Servers in the background", [serve_status.command, serve_stop.command]),
    ],
    epilog="""\b
Examples:
  bench serve --http_port 8000 --grpc_port 8001 --metrics_port 8002
  bench serve --background --name mine
  bench serve --launcher tritonserver --model_repo ./repo
  bench serve --world_size 4 --model_repo ./repo --dry_run
  bench serve --slurm --model_repo ./repo --slurm_nodes 2 --slurm_tasks_per_node 8 --slurm_time 1:00:00
  bench serve --docker --model_repo ./repo --container_mount ./engines:/engines""",
)
@serve_options
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    """Bring up Triton, wait until every model is READY, and serve until Ctrl-C.

    Alone it writes the repository of the five models and serves it on loopback, on the CPU. With --model_repo and a launcher it
    serves a repository on GPUs. The sub-commands look after servers in the background.
    """
    if context.invoked_subcommand is not None:
        return _leave_to(context, context.invoked_subcommand)
    launcher = choose_launcher(values)
    check_belonging(launcher)
    if launcher == "slurm":
        return _serve_slurm(values)
    if given("name") and not values["background"]:
        raise click.UsageError("--name: only a server in the --background has a name")
    if values["background"] and not values["dry_run"]:
        from serving.launch.background import check_name

        check_name(values["name"])  # before anything is made for the server
    return _serve_embedded(values) if launcher == EMBEDDED else _serve_repository(launcher, values)


def _serve_embedded(values: dict[str, Any]) -> int:
    from serving.engines import check_installed
    from serving.engines.openvino.folder import DEMO_ENGINE_DIR
    from serving.launch.addresses import choose_addresses
    from serving.launch.embedded import READY_TIMEOUT_S, embedded_plan
    from serving.repository.pipeline import RepositorySpec

    if values["engine"] != "openvino" and values["engine_dir"] is None:
        raise click.UsageError(f"--engine_dir: the demo engine is OpenVINO's; name a folder for --engine {values['engine']}")
    if not values["dry_run"]:
        check_installed(values["engine"])
    engine_dir = values["engine_dir"] or DEMO_ENGINE_DIR
    spec = RepositorySpec(
        engine_dir=engine_dir.resolve(),
        tokenizer_dir=(values["tokenizer_dir"] or engine_dir).resolve(),
        engine=values["engine"],
        decoupled_mode=values["decoupled_mode"],
        triton_max_batch_size=values["triton_max_batch_size"],
        exclude_input_in_output=values["exclude_input_in_output"],
        accumulate_tokens=values["accumulate_tokens"],
        max_stream_interval=values["max_stream_interval"],
        draft_engine_dir=values["draft_engine_dir"].resolve() if values["draft_engine_dir"] else None,
        engine_options=engine_options(values),
    )
    addresses = choose_addresses(values["http_port"], values["grpc_port"], values["metrics_port"], values["host"])
    repository, temporary = _repository_dir(values)
    plan = embedded_plan(
        repository,
        addresses,
        _log(values),
        models=spec.model_names,
        exit_timeout_s=values["exit_timeout"],
        ready_timeout_s=values["ready_timeout"] or READY_TIMEOUT_S,
        verbose=values["log"],
        make_backends=not values["dry_run"],
    )
    return _run(replace(plan, temporary_dir=temporary), values, spec)


def _serve_repository(launcher: str, values: dict[str, Any]) -> int:
    from serving.launch.addresses import choose_addresses
    from serving.launch.find_tritonserver import FoundTriton, find_tritonserver, served_models
    from serving.launch.plan import plan_launch

    options = _launch_options(launcher, values)
    models = served_models(Path(options.model_repo))
    in_container = launcher == "docker"
    found = FoundTriton("") if in_container else find_tritonserver(options.tritonserver, values["dry_run"])
    plan = plan_launch(options, found, models)
    if not values["dry_run"]:
        choose_addresses(options.http_port, options.grpc_port, options.metrics_port, options.host)  # or says what is in use
    return _run(plan, values, None)


def _serve_slurm(values: dict[str, Any]) -> int:
    from serving.launch.plan import plan_script
    from serving.launch.run import submit

    script = plan_script(_launch_options("slurm", values))
    if values["dry_run"]:
        click.echo(script, nl=False)
        return ExitStatus.VALID
    _warn_of_open_host(values["host"])
    path: Path = values["slurm_script"]
    path.write_text(script, encoding="utf-8")
    click.echo(submit(path) if values["submit"] else f"Script: {path}")
    return ExitStatus.VALID


def _launch_options(launcher: str, values: dict[str, Any]) -> LaunchOptions:
    from serving.launch.addresses import resolve_host
    from serving.launch.find_tritonserver import count_gpus
    from serving.launch.options import DEFAULT_CONTAINER_IMAGE, Launcher, LaunchOptions

    if values["model_repo"] is None:
        raise click.UsageError(f"--model_repo: --launcher {launcher} serves a repository; name its folder")
    spawns = values["multi_model"] and not values["disable_spawn_processes"]
    return LaunchOptions(
        launcher=Launcher(launcher),
        model_repo=str(values["model_repo"].resolve()),
        host=values["host"] if launcher == "slurm" else resolve_host(values["host"]),
        http_port=values["http_port"] or 8000,
        grpc_port=values["grpc_port"] or 8001,
        metrics_port=values["metrics_port"] or 8002,
        tritonserver=values["tritonserver"],
        world_size=values["world_size"],
        tensorrt_llm_model_name=tuple(values["tensorrt_llm_model_name"].split(",")),
        multi_model=values["multi_model"],
        disable_spawn_processes=values["disable_spawn_processes"],
        gpu_count=values["gpu_count"] or (count_gpus() if spawns else 0),
        multimodal_gpu0_cuda_mem_pool_bytes=values["multimodal_gpu0_cuda_mem_pool_bytes"],
        oversubscribe=values["oversubscribe"],
        trtllm_llmapi_launch=values["trtllm_llmapi_launch"],
        exit_timeout=values["exit_timeout"],
        ready_timeout=values["ready_timeout"] or 600.0,
        log=values["log"],
        log_file=str(_log(values)),
        container_image=values["container_image"] or DEFAULT_CONTAINER_IMAGE,
        container_name=values["container_name"],
        container_mounts=values["container_mount"],
        shm_size=values["shm_size"],
        slurm=_slurm_job(values),
    )


def _slurm_job(values: dict[str, Any]) -> Any:
    from serving.launch.slurm import SlurmJob

    nodes, world_size = values["slurm_nodes"], values["world_size"]
    tasks_per_node = values["slurm_tasks_per_node"] or -(-world_size // nodes)
    if given("world_size") and nodes * tasks_per_node != world_size:
        raise click.UsageError(
            f"--world_size {world_size}: {nodes} nodes of {tasks_per_node} tasks are {nodes * tasks_per_node}"
        )
    return SlurmJob(
        nodes=nodes,
        tasks_per_node=tasks_per_node,
        job_name=values["slurm_job_name"],
        time=values["slurm_time"],
        account=values["slurm_account"],
        partition=values["slurm_partition"],
        mpi=values["slurm_mpi"],
        container_image=values["container_image"],
        output=str(values["log_file"]) if given("log_file") else None,
    )


def _run(plan: LaunchPlan, values: dict[str, Any], spec: RepositorySpec | None) -> int:
    """Run a plan, or print it; ``spec`` is the repository that must be written first."""
    from serving.launch.background import start
    from serving.launch.plan import shell_line
    from serving.launch.run import running

    if values["dry_run"]:
        if spec is not None:
            click.echo("# the repository of the five models is written first, to the folder of --model-repository")
        click.echo(shell_line(plan.command, plan.environment))
        return ExitStatus.VALID
    _warn_of_open_host(values["host"])
    with signals_as_interrupt():
        _write_repository(plan, spec)
        click.echo("Starting …", err=True)
        if values["background"]:
            server = start(plan, values["name"])
            _print_addresses(plan)
            click.echo(f"Ready. Log: {values['log_file']}. 'bench serve stop {server.name}' stops it.", err=True)
            return ExitStatus.VALID
        with running(plan) as foreground:
            _print_addresses(plan)
            click.echo(f"Ready. Log: {values['log_file']}. Ctrl-C stops.", err=True)
            return _wait(foreground)


def _write_repository(plan: LaunchPlan, spec: RepositorySpec | None) -> None:
    """Write the repository where the plan's server will look for it; a temporary folder does not outlive a failure."""
    import shutil

    from serving.repository.pipeline import write_repository

    if spec is None:
        return
    folder = next(word.partition("=")[2] for word in plan.command if word.startswith("--model-repository="))
    try:
        write_repository(spec, Path(folder))
    except BaseException:
        if plan.temporary_dir is not None:
            shutil.rmtree(plan.temporary_dir, ignore_errors=True)
        raise


def _repository_dir(values: dict[str, Any]) -> tuple[Path, str | None]:
    """Where the embedded repository goes, and the temporary folder that holds it, if any. A dry run makes none."""
    import tempfile

    if values["model_repo"] is not None:
        return values["model_repo"].resolve(), None
    if values["dry_run"]:
        return Path(tempfile.gettempdir()) / "inflight-bench" / "repository", None
    temporary = tempfile.mkdtemp(prefix="inflight-bench-")
    return Path(temporary) / "repository", temporary


def _log(values: dict[str, Any]) -> Path:
    """The log, as given; in the background by its full path, since who asks later may stand elsewhere."""
    log: Path = values["log_file"]
    return log.resolve() if values["background"] or values["log"] else log


def _print_addresses(plan: LaunchPlan) -> None:
    addresses = plan.addresses
    click.echo(f"http     {addresses.http}\ngrpc     {addresses.grpc}\nmetrics  {addresses.metrics}/metrics")


def _warn_of_open_host(host: str) -> None:
    from serving.launch.addresses import is_loopback

    if not is_loopback(host):
        click.echo(
            f"Warning: --host {host} is not loopback, and Triton has no login: "
            "whoever reaches these ports can use the models and unload them.",
            err=True,
        )


def _leave_to(context: click.Context, subcommand: str) -> int:
    """The sub-command does the work; options of the bare command before it would be ignored, so they are refused."""
    for name in context.params:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} belongs to a bare 'bench serve'; options of {subcommand!r} stand behind it", context
            )
    return ExitStatus.VALID


def _wait(server: Any) -> int:
    import time

    try:
        while server.is_running():
            time.sleep(0.2)
    except KeyboardInterrupt:
        click.echo("Stopping …", err=True)
        return ExitStatus.VALID
    click.echo(f"Error: the server ended by itself. {server.log_tail()}", err=True)
    return ExitStatus.FAILED
