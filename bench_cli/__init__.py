"""The command ``bench``, from its arguments to its exit status; ``bench.py`` lists its verbs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from bench_cli.signals import interrupt, interrupt_again
from bench_errors import BenchError, ExitStatus


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: run a verb and exit with its status."""
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's `&` has it ignored
    if handled:
        signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = interrupt_again
    status = run(list(sys.argv[1:] if argv is None else argv))
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the output is complete: a hang at the exit can be ended
    sys.exit(status)


def run(argv: list[str]) -> int:
    """Run a verb and return its exit status; an error whose text is for users becomes one sentence on stderr.

    Imports that take long are inside: a SIGINT during them is handled too.
    """
    try:
        return _run(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:  # None after `2>&-`
            sys.stderr.write("interrupted\n")
        return ExitStatus.INTERRUPTED


def _run(argv: list[str]) -> int:
    import click

    from harness.host.moment import Moment

    start = Moment.now()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it logs each refused certificate, which a sentence of bench names, too
    from bench_cli.bench import bench
    from bench_cli.suggestions import user_text, with_near_names

    try:
        status = bench.main(args=argv or ["--help"], prog_name="bench", standalone_mode=False, obj=start)
        return int(status or ExitStatus.VALID)
    except click.UsageError as error:
        with_near_names(error, argv).show()
        return ExitStatus.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except BrokenPipeError:  # the reader of stdout has closed it
        sys.stderr.close()
        return ExitStatus.FAILED
    except (BenchError, OSError) as error:
        from reports.render.plain_text import printable_lines

        click.echo(f"Error: {printable_lines(user_text(error))}", err=True)
        return error.exit_status if isinstance(error, BenchError) else ExitStatus.FAILED
