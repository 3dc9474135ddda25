"""The group ``bench``: its verbs by section. Heavy imports are inside the verbs, so that ``--help`` is fast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import cloup

from bench_cli import calibrate, compare, completion, config, doctor, engine, explain, recover, report, trend, worker
from bench_cli.experiments import experiment, sweep
from bench_cli.generate import generate
from bench_cli.measurement import dataset, token_from_histogram, token_norm_dist, trace
from bench_cli.serve import serve
from bench_cli.suggestions import near_names
from bench_cli.workload import workload


def underscored(token: str) -> str:
    """The canonical spelling of an option, verb or choice, which has underscores; hyphens are accepted."""
    return token.replace("-", "_")


_OWN_OPTIONS = ("-h", "--help", "--version")
CONTEXT_SETTINGS = {
    "token_normalize_func": underscored,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "show_default": True,
}


class BenchGroup(cloup.Group):
    """A group that accepts a verb's options before the verb, too."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(context_settings=CONTEXT_SETTINGS, params=[_version_option()], **settings)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, underscored(cmd_name))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_verb_first(ctx, args))

    def _with_verb_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the options before the verb to after it: ``-i grpc dataset`` becomes ``dataset -i grpc``."""
        for position, token in enumerate(args):
            command = self.get_command(ctx, token)
            if command is not None and _are_options_of(command, ctx, args[:position]):
                return [token, *args[:position], *args[position + 1 :]]
        if args and args[0].startswith("-") and args[0] not in _OWN_OPTIONS:
            self._blame(ctx, args)
        return args

    def _blame(self, ctx: click.Context, args: list[str]) -> None:
        """Raise UsageError for the first option before the verb that the verb does not have, or for an unknown verb."""
        verb = next((command for token in args if (command := self.get_command(ctx, token)) is not None), None)
        known = _takes_value(ctx, [verb] if verb is not None else list(self.commands.values()))
        rest = list(args)
        while rest:
            token = rest.pop(0)
            name, is_joined = underscored(token.partition("=")[0]), "=" in token
            if not token.startswith("-"):
                if self.get_command(ctx, token) is None:
                    near = near_names(underscored(token), self.commands)
                    raise click.UsageError(
                        f"No such verb {token!r}." + (f" Did you mean {near[0]!r}?" if near else " 'bench --help' lists them."),
                        ctx,
                    )
                return
            if name not in known:
                of_verb = ctx if verb is None else click.Context(verb, ctx, info_name=verb.name)
                raise click.NoSuchOption(token.partition("=")[0], possibilities=_near_options(token, known), ctx=of_verb)
            if known[name] and not is_joined and rest:
                rest.pop(0)


def _near_options(token: str, known: Iterable[str]) -> list[str]:
    """The long options that are near ``token`` in spelling; ``known`` has underscores for dashes."""
    long_options = [f"--{name[2:]}" for name in known if name.startswith("__")]
    return near_names(f"--{underscored(token.partition('=')[0].lstrip('-'))}", long_options)


def _takes_value(ctx: click.Context, commands: Iterable[click.Command]) -> dict[str, bool]:
    """The options of ``commands``, and whether each takes a value."""
    return {
        underscored(name): not getattr(parameter, "is_flag", False)
        for command in commands
        for parameter in command.get_params(click.Context(command, parent=ctx))
        for name in (*parameter.opts, *parameter.secondary_opts)
        if isinstance(parameter, click.Option)
    }


def _are_options_of(command: click.Command, ctx: click.Context, tokens: list[str]) -> bool:
    """Whether ``tokens`` are complete options, each with its value, so that the verb follows them."""
    takes_value = _takes_value(ctx, [command])
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("-"):
            return False
        if takes_value.get(underscored(token), False):
            if not rest:
                return False
            rest.pop(0)
    return True


def _version_option() -> click.Option:
    def show(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if is_given:
            from importlib.metadata import version

            click.echo(f"bench {version('inflight-bench')}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show the version and exit."
    )


bench = BenchGroup(
    name="bench",
    sections=[
        cloup.Section(
            "Measure",
            [
                dataset.command,
                token_norm_dist.command,
                token_from_histogram.command,
                trace.command,
                experiment.command,
                sweep.command,
                worker.command,
            ],
        ),
        cloup.Section(
            "Read runs", [report.command, compare.command, trend.command, config.command, recover.command, explain.command]
        ),
        cloup.Section("Traffic", [workload.command]),
        cloup.Section("Trust", [calibrate.command]),
        cloup.Section("Deploy and generate", [serve.command, generate.command, engine.command, doctor.command]),
        cloup.Section("Shell", [completion.command]),
    ],
    help="""Deploy a language model the way tensorrtllm_backend does, and measure what the deployment can take.

Without --url, a measuring verb deploys the embedded pipeline (Triton, five models, a CPU engine) on free loopback ports
for the length of the run.

Options may come before or after the verb, with underscores or hyphens.""",
    epilog="""\b
Examples:
  bench dataset --request_rate 10
  bench token_norm_dist --request_rate 10
  bench -i grpc --request_rate 10 token_norm_dist --input_mean 128 --input_stdev 5 --output_mean 20 --output_stdev 2
  bench dataset --url localhost:8001 --model ensemble --dataset prompts.json --tokenizer_dir ./llama
  bench serve --grpc_port 8001
  bench workload show trace.csv --html trace.html
  bench report runs/<run>
  bench compare runs/<before> runs/<after> --output compare.html
  bench recover runs/<run>

\b
Exit status: 0 valid, 1 the target or the run failed, 2 usage, 3 the run is not valid, 130 interrupted.""",
)
