"""``bench serve``: deploy the pipeline and keep it up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import cloup

from harness.cli import serve_fill, serve_repo
from harness.cli.exit_status import ExitStatus
from harness.cli.signals import signals_as_interrupt

_FOLDER = click.Path(path_type=Path, file_okay=False)
_PORT = click.IntRange(1, 65535)


@cloup.group(
    name="serve",
    invoke_without_command=True,
    subcommand_metavar="[COMMAND [ARGS]...]",
    short_help="Deploy the pipeline and keep it up.",
    epilog="Example: bench serve --http_port 8000 --grpc_port 8001 --metrics_port 8002",
)
@cloup.option_group(
    "Model",
    cloup.option("--engine_dir", type=_FOLDER, help="Engine folder made by 'bench engine build'. Default: the demo engine."),
    cloup.option("--tokenizer_dir", type=_FOLDER, help="Tokenizer folder. Default: the engine's."),
    cloup.option("--decoupled_mode/--no_decoupled_mode", default=True, help="Deploy decoupled models, which can stream."),
    cloup.option("--triton_max_batch_size", type=click.IntRange(1, 2**31 - 1), default=128, help="Triton's batch size limit."),
    cloup.option("--exclude_input_in_output", is_flag=True, help="Leave the prompt out of unstreamed answers by default."),
    cloup.option("--accumulate_tokens", is_flag=True, help="tensorrt_llm_bls streams the whole text so far each time."),
)
@cloup.option_group(
    "Addresses",
    cloup.option("--http_port", type=_PORT, show_default="a free port", help="HTTP port."),
    cloup.option("--grpc_port", type=_PORT, show_default="a free port", help="gRPC port."),
    cloup.option("--metrics_port", type=_PORT, show_default="a free port", help="Port of /metrics."),
)
@cloup.option_group(
    "Files",
    cloup.option("--model_repo", type=_FOLDER, help="Write the model repository here and keep it. Default: temporary."),
    cloup.option(
        "--log_file", type=click.Path(path_type=Path, dir_okay=False), default=Path("triton_log.txt"), help="Server's log."
    ),
)
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    """Write the model repository, start Triton on loopback, wait until every model is READY, and serve until Ctrl-C."""
    if context.invoked_subcommand is not None:
        return _leave_to(context, context.invoked_subcommand)
    from serving.embedded import DEMO_ENGINE_DIR, deploy
    from serving.repository import RepositorySpec
    from serving.server import choose_addresses

    engine_dir = values["engine_dir"] or DEMO_ENGINE_DIR
    spec = RepositorySpec(
        engine_dir=engine_dir.resolve(),
        tokenizer_dir=(values["tokenizer_dir"] or engine_dir).resolve(),
        decoupled_mode=values["decoupled_mode"],
        triton_max_batch_size=values["triton_max_batch_size"],
        exclude_input_in_output=values["exclude_input_in_output"],
        accumulate_tokens=values["accumulate_tokens"],
    )
    addresses = choose_addresses(values["http_port"], values["grpc_port"], values["metrics_port"])
    click.echo("Starting …", err=True)
    with signals_as_interrupt(), deploy(spec, addresses, values["log_file"], values["model_repo"]) as server:
        click.echo(f"http     {addresses.http}\ngrpc     {addresses.grpc}\nmetrics  {addresses.metrics}/metrics")
        click.echo(f"Ready. Log: {values['log_file']}. Ctrl-C stops.", err=True)
        return _wait(server)


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


command.add_command(serve_repo.command)
command.add_command(serve_fill.command)
