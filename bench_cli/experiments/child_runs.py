"""The runs of experiments, sweeps and searches: one ``bench`` process each, whose options are checked before the first."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from bench_cli.private_files import files_as_private_as
from bench_cli.suggestions import with_near_names

MEASURING_VERBS = ("dataset", "token_norm_dist", "token_from_histogram", "trace")


@dataclass(frozen=True)
class RunOptions:
    """What the runs of a ``kind``, "experiment", "sweep" or "capacity", take: ``arguments`` are their measuring verb and the
    options of each. ``set_by_kind`` are the options that the kind itself sets, each with what to write instead; ``context`` is
    that of its command, with all verbs.
    """

    kind: str
    arguments: tuple[str, ...]
    set_by_kind: Mapping[str, str]
    context: click.Context

    def check_arguments(self) -> None:
        """Raises UsageError unless the arguments are a measuring verb and options that are left to the runs."""
        if not self.arguments or self.arguments[0].replace("-", "_") not in MEASURING_VERBS:
            raise click.UsageError(f"after the options comes what to run: {' or '.join(MEASURING_VERBS)}, and its options")
        self.check_options(self.arguments[1:], "the run's options")

    def check_options(self, options: Sequence[str], where: str) -> None:
        """Raises UsageError for an option that the kind sets for every run."""
        for option in options:
            name = option.split("=", 1)[0].replace("-", "_").replace("__", "--", 1)
            if name in self.set_by_kind:
                raise click.UsageError(
                    f"{name} cannot be one of {where}: the {self.kind} sets it for every run; {self.set_by_kind[name]}"
                )

    def parsed(self, options: Sequence[str] = ()) -> click.Context | None:
        """The context of the measuring verb with the arguments and further ``options``; None without a command line.

        Raises UsageError for options that the verb does not take.
        """
        root = self.context.find_root()
        name = self.arguments[0]
        verb = root.command.get_command(self.context, name) if isinstance(root.command, click.Group) else None
        if verb is None:
            return None
        try:
            return verb.make_context(name, [*self.arguments[1:], *options], parent=root)
        except click.UsageError as error:
            raise click.UsageError(with_near_names(error).format_message()) from error


def run_command(before_each: str | None) -> None:
    """Run the command of --before_each. Raises ClickException where it fails."""
    if before_each is not None and (status := subprocess.run(shlex.split(before_each), check=False).returncode):
        raise click.ClickException(f"--before_each: {before_each!r} ended with status {status}")


def make_run(arguments: Sequence[str], path: Path, log: Path, environment: Mapping[str, str] | None = None) -> int:
    """Make the run of these ``arguments`` in the folder ``path``, and return its exit status. Its output goes to the end of
    ``log``, in the folder of all runs; ``environment`` is added to this process's own.
    """
    put_aside(path)
    command = [sys.executable, "-m", "bench_cli", *arguments, "--run_dir", str(path)]
    with files_as_private_as(log.parent):
        opened = log.open("ab")
    with opened as output:
        return subprocess.run(command, stdout=output, check=False, env={**os.environ, **(environment or {})}).returncode


def put_aside(path: Path) -> None:
    """Rename the folder of a run that was cut short, so that it is kept."""
    if path.exists() and any(path.iterdir()):
        path.rename(path.with_name(f"{path.name}-cut-{datetime.now():%H%M%S%f}"))
