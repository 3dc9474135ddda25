"""The top-level command: finds the verb among options, and reads hyphens and underscores alike."""

from __future__ import annotations

from typing import Any

import click
import cloup


def underscored(token: str) -> str:
    """Options, verbs and choices are spelled with underscores; hyphens are accepted."""
    return token.replace("-", "_")


CONTEXT_SETTINGS = {
    "token_normalize_func": underscored,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "show_default": True,
}


class BenchGroup(cloup.Group):
    """A group whose options may stand before the verb, though they are the verb's."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(context_settings=CONTEXT_SETTINGS, params=[_version_option()], **settings)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, underscored(cmd_name))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_verb_first(ctx, args))

    def _with_verb_first(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move options that stand before the verb behind it: ``-i grpc dataset`` becomes ``dataset -i grpc``."""
        for position, token in enumerate(args):
            command = self.get_command(ctx, token)
            if command is not None and _are_options_of(command, ctx, args[:position]):
                return [token, *args[:position], *args[position + 1 :]]
        return args


def _are_options_of(command: click.Command, ctx: click.Context, tokens: list[str]) -> bool:
    """Whether ``tokens`` are whole options, each with its value; then what follows them is the verb."""
    takes_value = {
        underscored(name): not getattr(parameter, "is_flag", False)
        for parameter in command.get_params(click.Context(command, parent=ctx))
        for name in (*parameter.opts, *parameter.secondary_opts)
        if isinstance(parameter, click.Option)
    }
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
    def show(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            click.echo(f"bench {version('inflight-bench')}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show the version and exit."
    )
