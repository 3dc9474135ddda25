"""The group ``bench``: its verbs by section. The verbs are imported when they are called, so that ``--help`` is fast."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, cast

import click
import cloup

from bench_cli.suggestions import near_names


def underscored(token: str) -> str:
    """The canonical spelling of an option, verb or choice, which has underscores; hyphens are accepted."""
    return token.replace("-", "_")


_VERBS = {
    "Measure": {
        "dataset": ("bench_cli.measurement.dataset", "Measure with prompts from a dataset."),
        "token_norm_dist": ("bench_cli.measurement.token_norm_dist", "Measure with random tokens of given lengths."),
        "token_from_histogram": ("bench_cli.measurement.token_from_histogram", "Measure with lengths from histograms."),
        "trace": ("bench_cli.measurement.trace", "Replay a trace: times, lengths, prefixes."),
        "replay": ("bench_cli.replay", "Send a recorded run again."),
        "capacity": ("bench_cli.experiments.capacity", "Find how much load a target holds."),
        "experiment": ("bench_cli.experiments.experiment", "Run configurations in turn, then compare them."),
        "sweep": ("bench_cli.experiments.sweep", "Measure over rates, lengths or engines."),
        "worker": ("bench_cli.worker", "Send a part of a distributed run from this host."),
    },
    "What if": {
        "simulate": ("bench_cli.simulate.simulate", "Fit a server to runs, and predict others."),
        "size": ("bench_cli.simulate.size", "Find how many replicas hold a workload."),
    },
    "Read runs": {
        "report": ("bench_cli.report", "Render a run's report again."),
        "compare": ("bench_cli.compare", "Compare runs, with a verdict."),
        "why": ("bench_cli.why", "Explain where a percentile's time went."),
        "trend": ("bench_cli.trend", "Show runs over time, against a baseline."),
        "verify": ("bench_cli.verify", "Show what differs now from a run's server and machine."),
        "config": ("bench_cli.config", "Print a run's options as a file for --config."),
        "recover": ("bench_cli.recover", "Make the records of a run that was cut short."),
        "explain": ("bench_cli.explain", "Explain a metric or a finding."),
    },
    "Traffic": {
        "workload": ("bench_cli.workload.workload", "Import, synthesize, show and write traffic."),
    },
    "Trust": {
        "calibrate": ("bench_cli.calibrate", "Measure this client's own error and capacity."),
    },
    "Deploy and generate": {
        "serve": ("bench_cli.serve.serve", "Deploy the models and keep them running."),
        "generate": ("bench_cli.generate.generate", "Send a request to a deployed model."),
        "engine": ("bench_cli.engine", "Build engines from checkpoints."),
        "doctor": ("bench_cli.doctor", "Check this machine for serving."),
    },
    "Shell": {
        "completion": ("bench_cli.completion", "Print the completion script of a shell."),
    },
}
"""The verbs by section: the module whose ``command`` each is, and its line in ``bench --help``."""
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
        sections = [
            cloup.Section(title, [click.Command(name, short_help=line) for name, (_, line) in verbs.items()])
            for title, verbs in _VERBS.items()
        ]
        super().__init__(context_settings=CONTEXT_SETTINGS, params=[_version_option()], sections=sections, **settings)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, whose module is imported here; ``commands`` has the lines of ``--help`` alone."""
        name = underscored(cmd_name)
        module = next((verbs[name][0] for verbs in _VERBS.values() if name in verbs), None)
        return None if module is None else cast("click.Command", import_module(module).command)

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

    def _all_verbs(self, ctx: click.Context) -> list[click.Command]:
        return [verb for name in self.commands if (verb := self.get_command(ctx, name)) is not None]

    def _blame(self, ctx: click.Context, args: list[str]) -> None:
        """Raise UsageError for the first option before the verb that the verb does not have, or for an unknown verb."""
        verb = next((command for token in args if (command := self.get_command(ctx, token)) is not None), None)
        known = _takes_value(ctx, [verb] if verb is not None else self._all_verbs(ctx))
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
    help="""Deploy a language model the way tensorrtllm_backend does, and measure what the deployment can take.

Without --url, a measuring verb deploys the embedded pipeline (Triton, five models, a CPU engine) on free loopback ports
for the length of the run.

Options may come before or after the verb, with underscores or hyphens. Options of experiment, sweep and capacity come
before the measuring verb, those of the runs after it.""",
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
  bench why runs/<run>
  bench recover runs/<run>

\b
Exit status: 0 valid, 1 the target, a request or a gate (--fail_if) failed, 2 usage, 3 the run is not valid,
130 interrupted. If a request or a gate failed in a run that is not valid, it is 1.""",
)
