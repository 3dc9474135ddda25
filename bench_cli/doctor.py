"""``bench doctor``: checks of this machine, with remedies. One verb, one module."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import click
import cloup

from bench_cli.declared import Concern, option, takes
from bench_errors import ExitStatus


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench doctor``."""

    engine_python: str | None = option(
        None, metavar="PYTHON", help="Look for vLLM in the environment of this Python, that of bench serve --engine_python."
    )


@cloup.command(
    name="doctor",
    epilog="""\b
Examples:
  bench doctor
  bench doctor --engine_python vllm-env/bin/python""",
)
@takes(Options)
def command(options: Options) -> int:
    """Check the requirements of the embedded pipeline and the GPU engines, and print a remedy for each one that is missing.
    Shared memory that ended servers left is named with the command that removes it.

    Exits with 0 when the embedded pipeline can run here, otherwise with 1.
    """
    from serving.launch.doctor import EMBEDDED, check_machine

    checks = list(check_machine(options.engine_python))
    for needed_for, group in groupby(checks, key=lambda check: check.needed_for):
        members = list(group)
        ready = all(check.ok for check in members)
        click.echo(f"{needed_for}: {'ready' if ready else 'not ready'}")
        for check in members:
            click.echo(f"  {'ok' if check.ok else check.fault:<7}  {check.name}: {check.found}")
            if not check.ok:
                click.echo(f"           → {check.remedy}")
    embedded_ready = all(check.ok for check in checks if check.needed_for == EMBEDDED)
    return ExitStatus.VALID if embedded_ready else ExitStatus.FAILED
