"""``bench doctor``: checks of this machine, with remedies. One verb, one module."""

from __future__ import annotations

from itertools import groupby

import click
import cloup

from bench_errors import ExitStatus


@cloup.command(name="doctor", epilog="Example: bench doctor")
def command() -> int:
    """Check the requirements of the embedded pipeline and the GPU engines, and print a remedy for each one that is missing.
    Shared memory that ended servers left is named with the command that removes it.

    Exits with 0 when the embedded pipeline can run here, otherwise with 1.
    """
    from serving.launch.doctor import EMBEDDED, check_machine

    checks = list(check_machine())
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
