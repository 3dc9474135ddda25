"""The runs of experiments, sweeps and searches: one ``bench`` process each, whose options are checked before the first."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypedDict, Unpack

import click

from bench_cli.declared import call_of
from bench_cli.measurement.options import MEASURING_VERBS
from bench_cli.private_files import files_as_private_as
from bench_cli.suggestions import with_near_names
from harness.host.signals import signals_blocked

_OF_FILES = ("dataset", "trace")
_PR_SET_PDEATHSIG = 1
_LAST_BYTES = 1 << 16  # of a log, in which the last message is looked for
_TOKENIZERS_PARALLELISM = "TOKENIZERS_PARALLELISM"
_STOPPING_S = (5.0, 10.0)  # that a run has to end after the first and the second interrupt


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

    def check_given(self, parsed: click.Context, allowed: Collection[str]) -> None:
        """Raises UsageError for an option that the kind sets and that is given elsewhere than among the arguments, as by
        --config; those ``allowed`` are the kind's own.
        """
        for name in call_of(parsed).given - set(allowed):
            self.check_options((f"--{name}",), "the run's options")

    def parsed(self, options: Sequence[str] = ()) -> click.Context | None:
        """The context of the measuring verb with the arguments and further ``options``; None without a command line.

        Raises UsageError for options that the verb does not take, and for those of a target that exclude each other.
        """
        root = self.context.find_root()
        name = self.arguments[0]
        verb = root.command.get_command(self.context, name) if isinstance(root.command, click.Group) else None
        if verb is None:
            return None
        line = [*self.arguments[1:], *options]
        try:
            context = verb.make_context(name, list(line), parent=root)  # which takes words from the list
        except click.UsageError as error:
            message = with_near_names(error, line).format_message()
            if isinstance(error, click.NoSuchOption) and self._is_own(error.option_name):
                message = f"{message} It is an option of {self.context.command_path}: give it before the verb."
            raise click.UsageError(message) from error
        _check_target(context)
        return context

    def _is_own(self, option: str) -> bool:
        return any(option in parameter.opts for parameter in self.context.command.params)

    def read_file(self, options: Sequence[str]) -> None:
        """Read the dataset or trace of a run with further ``options``, and check them against it; nothing is sent.

        Raises what the run itself would raise.
        """
        from bench_cli.measurement.measure import Instead

        context = self.parsed(options) if self.arguments[0].replace("-", "_") in _OF_FILES else None
        if context is not None:
            context.obj = Instead(lambda *_: 0)
            with context:
                context.command.invoke(context)


def _check_target(context: click.Context) -> None:
    """What a run of ``context`` would refuse of its target, so that no run is made before another is refused."""
    from bench_cli.declared import read
    from bench_cli.measurement.embedded_options import EmbeddedOptions, check_embedded_options
    from bench_cli.measurement.target_options import TargetOptions, check_target_options

    target = read(TargetOptions, context.params, call_of(context))
    check_target_options(target)
    check_embedded_options(read(EmbeddedOptions, context.params, call_of(context)), target.url)


def run_command(before_each: str | None, log: Path) -> None:
    """Run the shell command of --before_each; its output goes to the end of ``log``. Raises ClickException where it fails."""
    if before_each is None:
        return
    status, message = _logged(["/bin/sh", "-c", before_each], log)
    if status:
        said = f": {message}" if message else ""
        raise click.ClickException(f"--before_each: {before_each!r} ended with status {status}{said}")


def make_run(arguments: Sequence[str], path: Path, log: Path) -> int:
    """Make the run of these ``arguments`` in the folder ``path``, and return its exit status. Its output goes to the end of
    ``log``, in the folder of all runs, and its messages to this process's own.
    """
    put_aside(path)
    with _appended(log) as output:
        return _run(_command(arguments, path), stdout=output)


def make_quiet_run(arguments: Sequence[str], path: Path, log: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Make a run as ``make_run`` does, with ``environment`` added to this process's own and its messages in ``log``, too.

    Returns its exit status and its last message.
    """
    put_aside(path)
    status, message = _logged(_command(arguments, path), log, environment)
    return status, message.removeprefix("Error: ")


def _logged(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command whose output and messages go to the end of ``log``; its exit status, and the last line that it wrote.

    ``environment`` is added to this process's own.
    """
    with _appended(log) as output:
        begin = output.tell()
        status = _run(command, environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    with log.open("rb") as written:
        written.seek(max(begin, log.stat().st_size - _LAST_BYTES))
        lines = written.read().decode(errors="replace").split("\n")
    return status, next((line.strip() for line in reversed(lines) if line.strip()), "")


class _Files(TypedDict, total=False):
    stdin: int
    stdout: BinaryIO
    stderr: BinaryIO


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None, **files: Unpack[_Files]) -> int:
    """The exit status of a process, once it has ended; where this one is interrupted, the other stops and saves first."""
    process = None
    try:
        with signals_blocked():  # so that an interrupt finds a process to stop
            process = _start(command, environment, **files)
        return process.wait()
    except KeyboardInterrupt:
        if process is not None:
            _stop(process)
        raise
    finally:
        if process is not None:
            process.kill()  # where it has not ended by then
            process.wait()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process, and again after a while or by a second Ctrl-C, at which a run cancels what is in flight."""
    for wait_s in _STOPPING_S:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(wait_s)
            return


def _start(
    command: Sequence[str], environment: Mapping[str, str] | None = None, **files: Unpack[_Files]
) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one, and gets its signals from this one alone, not from a terminal, too: a second
    interrupt has another meaning than the first. ``environment`` is added to this process's own.
    """
    inherited = {**os.environ, **(environment or {})}
    with _fork_without_warning():
        return subprocess.Popen(command, env=inherited, process_group=0, preexec_fn=partial(_end_with, os.getpid()), **files)


@contextmanager
def _fork_without_warning() -> Iterator[None]:
    """Some versions of ``tokenizers`` warn in each fork of a process in which they have used threads, unless this variable is
    set. Here a fork only starts another program, which does not get the variable.
    """
    if _TOKENIZERS_PARALLELISM in os.environ:
        yield
        return
    os.environ[_TOKENIZERS_PARALLELISM] = "false"
    try:
        yield
    finally:
        del os.environ[_TOKENIZERS_PARALLELISM]


def _end_with(parent: int) -> None:
    """In a child: a search that is killed leaves no load behind, which would be added to that of the one that continues it.

    The signals that are blocked while it starts reach it again.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before, so that no signal comes
        os._exit(1)


def _command(arguments: Sequence[str], path: Path) -> list[str]:
    return [sys.executable, "-m", "bench_cli", *arguments, "--run_dir", str(path)]


def _appended(log: Path) -> BinaryIO:
    with files_as_private_as(log.parent):
        return log.open("ab")


def put_aside(path: Path) -> None:
    """Rename the folder of a run that was cut short, so that it is kept."""
    if path.exists() and any(path.iterdir()):
        path.rename(path.with_name(f"{path.name}-cut-{datetime.now():%H%M%S%f}"))
