"""``bench serve``: deploy the models and keep them running. Its sub-commands manage repositories and background servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import takes
from bench_cli.serve import background, fill, repo
from bench_cli.serve.options import (
    EMBEDDED,
    SLURM,
    ServeOptions,
)
from bench_cli.signals import signals_as_interrupt
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from serving.launch.addresses import ServerAddresses
    from serving.launch.options import LaunchOptions
    from serving.launch.plan import LaunchPlan
    from serving.launch.server import Server
    from serving.repository.pipeline import RepositorySpec


_BEHIND_PROXY = (
    "What stays open is Triton's loopback: every user of this machine, and every web page in its browsers, "
    "can still send requests to it, and crash it."
)
_WITHOUT_PROXY = "There is no proxy, so they can also crash Triton, and so can web pages in their browsers."
_ON_LOOPBACK_OF_ITS_NODE = (
    "The server will listen on loopback: only programs on the first node of the job reach it, such as "
    "'srun --jobid JOB --overlap --nodes 1 --ntasks 1 bench …'. For other nodes add --host 0.0.0.0 --accept_risk."
)


@cloup.group(
    name="serve",
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [ARGS]...]",
    sections=[
        cloup.Section("Model repositories", [repo.command, fill.command]),
        cloup.Section("Servers in the background", [background.status, background.stop]),
    ],
    epilog="""\b
Examples:
  bench serve --http_port 8000 --grpc_port 8001 --metrics_port 8002
  bench serve --background --name mine
  bench serve --openai_port 9000
  bench serve --launcher tritonserver --model_repo ./repo
  bench serve --world_size 4 --model_repo ./repo --dry_run
  bench serve --slurm --model_repo ./repo --slurm_nodes 2 --slurm_tasks_per_node 8 --slurm_time 1:00:00
  bench serve --docker --model_repo ./repo --container_mount ./engines:/engines""",
)
@takes(ServeOptions)
@click.pass_context
def command(context: click.Context, options: ServeOptions) -> int:
    """Start Triton, wait until every model is READY, and serve until Ctrl-C.

    By default, write the repository of the five models and serve it on loopback, on the CPU. With --model_repo and a launcher,
    serve a repository on GPUs. The sub-commands write repositories and manage servers in the background.
    """
    if context.invoked_subcommand is not None:
        return _check_subcommand(context, options, context.invoked_subcommand)
    options.check()
    if options.launcher == SLURM:
        return _serve_slurm(options)
    if options.running.background and not options.how.dry_run:
        from serving.launch.background import check_name

        check_name(options.running.name)  # before anything is created for the server
    return _serve_embedded(options) if options.launcher == EMBEDDED else _serve_repository(options)


def _check_subcommand(context: click.Context, options: ServeOptions, subcommand: str) -> int:
    """Refuse options of the bare command before a sub-command, which would be ignored."""
    for name in options.given(*context.params):
        raise click.UsageError(f"--{name} belongs to a bare 'bench serve'; options of {subcommand!r} follow its name", context)
    return ExitStatus.VALID


def _serve_embedded(options: ServeOptions) -> int:
    from serving.engines import check_installed
    from serving.launch.embedded import embedded_plan, ready_timeout_s, with_engine
    from serving.repository.pipeline import check_spec

    spec = options.pipeline.repository()
    check_spec(spec)
    if not options.how.dry_run:
        check_installed(spec.engine, spec.engine_options)
    public = options.addresses.choose(options.front_end.openai_port)
    repository, temporary_dir = _repository_dir(options)
    try:
        plan = embedded_plan(
            repository,
            _own_addresses(options, public),
            options.running.log_path,
            models=spec.model_names,
            supervision=options.running.supervision(ready_timeout_s(spec.engine)),
            make_backends=not options.how.dry_run,
        )
        planned = replace(with_engine(plan, spec.engine), temporary_dir=temporary_dir)
        whole = _with_front_end(options, _before(options, planned, public), planned.addresses, spec)
    except BaseException:
        if temporary_dir is not None:
            Path(temporary_dir).rmdir()
        raise
    return _run(whole, options, spec)


def _serve_repository(options: ServeOptions) -> int:
    from serving.launch.addresses import choose_addresses, resolve_host
    from serving.launch.find_tritonserver import FoundTriton, find_tritonserver, served_models
    from serving.launch.plan import container_name, plan_launch

    launch = _launch_options(options)
    public = replace(launch.addresses, host=resolve_host(launch.addresses.host))
    name = launch.container.container_name or container_name(public)
    launch = replace(
        launch, addresses=_own_addresses(options, public), container=replace(launch.container, container_name=name)
    )
    models = served_models(Path(launch.model_repo))
    in_container = options.launcher == "docker"
    triton = FoundTriton("") if in_container else find_tritonserver(launch.processes.tritonserver, options.how.dry_run)
    plan = plan_launch(launch, triton, models)
    if not options.how.dry_run:  # raises LaunchError for a port in use
        choose_addresses(public.http_port, public.grpc_port, public.metrics_port, public.host)
    return _run(_before(options, plan, public), options)


def _own_addresses(options: ServeOptions, public: ServerAddresses) -> ServerAddresses:
    """Where Triton itself listens: at ``public``, or on loopback where the proxy listens there."""
    from serving.launch.behind_proxy import loopback_addresses

    return loopback_addresses(public) if options.proxy.is_used(public.host) else public


def _before(options: ServeOptions, plan: LaunchPlan, public: ServerAddresses) -> LaunchPlan:
    """``plan`` with a proxy at ``public``, or as it is without one."""
    from serving.launch.behind_proxy import with_proxy

    return with_proxy(plan, public, options.proxy.bounds()) if options.proxy.is_used(public.host) else plan


def _with_front_end(options: ServeOptions, plan: LaunchPlan, inner: ServerAddresses, spec: RepositorySpec) -> LaunchPlan:
    """``plan``, whose Triton listens at ``inner``, with the OpenAI front end that the options request."""
    from serving.launch.behind_front_end import with_front_end

    if plan.addresses.openai_port is None:
        return plan
    return with_front_end(plan, inner, spec, options.front_end.openai_model, options.proxy.allowed_hosts)


def _serve_slurm(options: ServeOptions) -> int:
    from serving.launch.addresses import is_loopback
    from serving.launch.plan import plan_script
    from serving.launch.run import submit

    launch = _launch_options(options)
    script = plan_script(launch)
    if is_loopback(options.addresses.host):
        click.echo(_ON_LOOPBACK_OF_ITS_NODE, err=True)
    if options.how.dry_run:
        click.echo(script, nl=False)
        return ExitStatus.VALID
    _warn_if_public(options.addresses.host, has_proxy=False)
    path = options.slurm.slurm_script
    path.write_text(script, encoding="utf-8")
    if launch.addresses.restricted_apis:
        click.echo("The job writes the key of Triton's restricted protocols to <job name>-<job id>.key.", err=True)
    click.echo(submit(path) if options.slurm.submit else f"Script: {path}")
    return ExitStatus.VALID


def _launch_options(options: ServeOptions) -> LaunchOptions:
    from serving.launch.options import DEFAULT_READY_TIMEOUT_S, Launcher, LaunchOptions

    if options.pipeline.model_repo is None:
        raise click.UsageError(f"--model_repo: --launcher {options.launcher} serves a repository; give its folder")
    return LaunchOptions(
        launcher=Launcher(options.launcher),
        model_repo=str(options.pipeline.model_repo.resolve()),
        addresses=options.addresses.with_default_ports(),
        log_file=str(options.running.log_path),
        supervision=options.running.supervision(DEFAULT_READY_TIMEOUT_S),
        processes=options.processes.processes(),
        container=options.container.container(),
        slurm=options.slurm_job(),
    )


def _run(plan: LaunchPlan, options: ServeOptions, spec: RepositorySpec | None = None) -> int:
    """Run a plan, or print it in a dry run; ``spec`` is the repository to write first, if any."""
    from serving.launch.admin_key import new_key
    from serving.launch.background import start
    from serving.launch.plan import commands_beside, shell_line
    from serving.launch.run import running

    if options.how.dry_run:
        if spec is not None:
            click.echo("# the repository of the five models is written first, to the folder of --model-repository")
        for name, beside in commands_beside(plan).items():
            click.echo(f"# {name[0].lower()}{name[1:]} runs beside it: {shell_line(beside, {})}")
        click.echo(shell_line(plan.command, plan.environment))
        return ExitStatus.VALID
    _warn_if_public(options.addresses.host, has_proxy=plan.proxy is not None)
    if plan.addresses.restricted_apis:
        plan = replace(plan, admin_key=new_key())
    with signals_as_interrupt():
        if spec is not None:
            _write_repository(spec, plan)
        click.echo("Starting …", err=True)
        if options.running.background:
            server = start(plan, options.running.name)
            _print_addresses(plan)
            click.echo(f"Ready. Log: {plan.log}. Stop it with 'bench serve stop {server.name}'.", err=True)
            return ExitStatus.VALID
        with running(plan) as foreground:
            _print_addresses(plan)
            click.echo(f"Ready. Log: {plan.log}. Press Ctrl-C to stop.", err=True)
            return _wait(foreground)


def _write_repository(spec: RepositorySpec, plan: LaunchPlan) -> None:
    """Write the plan's repository; on failure its temporary folder is removed."""
    from serving.launch.run import remove_temporary_dir
    from serving.repository.pipeline import write_repository

    try:
        write_repository(spec, Path(plan.repository))
    except BaseException:
        remove_temporary_dir(plan)
        raise


def _repository_dir(options: ServeOptions) -> tuple[Path, str | None]:
    """The folder for the embedded repository, and its temporary parent folder, if any. A dry run creates none."""
    import tempfile

    if options.pipeline.model_repo is not None:
        return options.pipeline.model_repo.resolve(), None
    if options.how.dry_run:
        return Path(tempfile.gettempdir()) / "inflight-bench" / "repository", None
    temporary_dir = tempfile.mkdtemp(prefix="inflight-bench-")
    return Path(temporary_dir) / "repository", temporary_dir


def _print_addresses(plan: LaunchPlan) -> None:
    from serving.launch.admin_key import GRPC_KEY_HEADER, KEY_HEADER

    addresses = plan.addresses
    click.echo(f"http     {addresses.http}\ngrpc     {addresses.grpc}\nmetrics  {addresses.metrics}/metrics")
    if plan.front_end is not None:
        click.echo(f"openai   {addresses.openai}")
    if plan.admin_key is not None:
        click.echo(
            f"Key of {', '.join(addresses.restricted_apis)}, shown only here: {plan.admin_key} "
            f"(HTTP header {KEY_HEADER}, gRPC {GRPC_KEY_HEADER})",
            err=True,
        )


def _warn_if_public(host: str, has_proxy: bool) -> None:
    from serving.launch.addresses import is_loopback

    if not is_loopback(host):
        risk = _BEHIND_PROXY if has_proxy else _WITHOUT_PROXY
        click.echo(
            f"Warning: --host {host} is not loopback, and Triton's inference has no authentication: "
            f"anyone with access to these ports can use the models. Administration needs a key. {risk}",
            err=True,
        )


def _wait(server: Server) -> int:
    import time

    try:
        while server.is_running():
            time.sleep(0.2)
    except KeyboardInterrupt:
        click.echo("Stopping …", err=True)
        return ExitStatus.VALID
    click.echo(f"Error: the server ended unexpectedly. {server.log_tail()}", err=True)
    return ExitStatus.FAILED
