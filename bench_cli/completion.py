"""``bench completion``: the script with which a shell completes verbs, options and choices."""

from __future__ import annotations

import click
import cloup
from click.shell_completion import get_completion_class

from bench_errors import ExitStatus

_SHELLS = ("bash", "zsh", "fish")


@cloup.command(
    name="completion",
    epilog="""\b
Examples:
  bench completion bash >> ~/.bashrc
  bench completion zsh >> ~/.zshrc
  bench completion fish > ~/.config/fish/completions/bench.fish""",
)
@cloup.argument("shell", type=click.Choice(_SHELLS), help="The shell.")
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script that lets a shell complete bench's verbs, options and choices. Load it from the shell's start file."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "bench", "_BENCH_COMPLETE").source())
    return ExitStatus.VALID
