"""``bench doctor``: what this machine has and lacks."""

from __future__ import annotations

from itertools import groupby

import click
import cloup

from bench_errors import ExitStatus


@cloup.command(name="doctor", short_help="Say what this machine has and lacks.", epilog="Example: bench doctor")
def command() -> int:
    """Check what the embedded pipeline and the GPU engines need, and name the command that supplies what is missing.

    Exits with 0 when the embedded pipeline can run here, else with 1.
    """
    from serving.launch.doctor import EMBEDDED, check_machine

    checks = list(check_machine())
    for needed_for, group in groupby(checks, key=lambda check: check.needed_for):
        members = list(group)
        ready = all(check.ok for check in members)
        click.echo(f"{needed_for}: {'ready' if ready else 'not ready'}")
        for check in members:
            click.echo(f"  {'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.found}")
            if not check.ok:
                click.echo(f"           → {check.mend}")
    embedded_ready = all(check.ok for check in checks if check.needed_for == EMBEDDED)
    return ExitStatus.VALID if embedded_ready else ExitStatus.FAILED
