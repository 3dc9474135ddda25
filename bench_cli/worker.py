"""``bench worker``: send a part of a distributed run from this host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, takes
from bench_errors import ExitStatus
from reports.render.counts import counted

if TYPE_CHECKING:
    from harness.distribution.admission import Token
    from harness.distribution.agent import WorkerResult

DEFAULT_PORT = 5557  # Locust's


def worker_token() -> Path | None:
    """The field of the option ``--worker_token_file``."""
    return option(
        None,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        show_default="the environment's BENCH_WORKER_TOKEN",
        help="File with the token by which master and workers know each other: the same for both, at least 16 characters.",
    )


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench worker``."""

    master_host: str = option("127.0.0.1", metavar="HOST", help="Host of the measuring command.")
    master_port: int = option(DEFAULT_PORT, type=click.IntRange(1, 65535), metavar="PORT", help="Its --master_bind_port.")
    locust_processes: int = option(1, type=click.IntRange(1, 256), metavar="N", help="Workers to run here, each a process.")
    work_dir: Path | None = option(
        None,
        type=click.Path(path_type=Path, file_okay=False),
        show_default="runs/<time>-worker",
        help="Folder for each run's journals, until its master has them. They stay where it was lost, for 'bench recover'.",
    )
    worker_token_file: Path | None = worker_token()
    keep_running: bool = option(False, help="Wait for the next run when one has ended, until Ctrl-C.")


@cloup.command(
    name="worker",
    epilog="""\b
Examples:
  export BENCH_WORKER_TOKEN=$(cat worker-token)   # the same on the master: openssl rand -hex 16 > worker-token
  bench worker --master_host 10.0.0.1
  bench worker --master_host 10.0.0.1 --locust_processes 8
On the master: bench dataset --distributed --expect_workers 9 --master_bind_host 10.0.0.1 --url ...""",
)
@takes(Options)
def command(options: Options) -> int:
    """Send a part of a distributed run from this host.

    It waits for a measuring command with --distributed at --master_host, gets its part of the schedule, sends it on time, and
    copies what it recorded to the master while it goes. The first Ctrl-C stops sending and waits for what is
    in flight, the second cancels that, the third leaves at once.
    """
    import_locust()
    from bench_cli.private_files import private_files
    from bench_cli.signals import signals_as_interrupt
    from harness.distribution.admission import configured_token

    token = configured_token(options.worker_token_file)
    folder = options.work_dir or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-worker-{os.getpid()}"
    with private_files(), signals_as_interrupt():  # a journal contains answers
        return _work(options, folder, token)


def _work(options: Options, folder: Path, token: Token) -> int:
    host, port = options.master_host, options.master_port
    if options.locust_processes > 1:
        folders = [folder / str(number) for number in range(options.locust_processes)]
        return _run_several([worker_command(host, port, own, options.keep_running) for own in folders], token)
    while True:
        result = _take_part(host, port, token, folder)
        if result.refusal is not None:
            click.echo(f"This worker takes no part: {result.refusal}.", err=True)
        if result.kept is not None:
            click.echo(
                f"The master does not have all that this worker recorded. Its journal is kept in {result.kept}; on the master, "
                f"'bench recover RUN --worker_journals DIR' joins it.",
                err=True,
            )
        elif result.refusal is None and not result.is_whole:
            click.echo("The master was lost before this worker recorded anything.", err=True)
        if not result.is_whole or result.refusal is not None:
            return ExitStatus.FAILED
        click.echo(f"Done: {counted(result.requests, 'request')} sent.", err=True)
        if not options.keep_running:
            return ExitStatus.VALID


def import_locust() -> None:
    """Check that Locust is installed. Raises UsageError."""
    from importlib.util import find_spec

    if find_spec("locust") is None:
        raise click.UsageError("distributed runs need Locust: pip install 'inflight-bench[distributed]'")


def _take_part(host: str, port: int, token: Token, folder: Path) -> WorkerResult:
    from harness.distribution.agent import Agent
    from harness.host.blas_threads import one_blas_thread

    with one_blas_thread():
        agent = Agent(host, port, token, folder, lambda text: click.echo(text, err=True))
        before = {number: signal.signal(number, lambda *_: agent.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            click.echo(f"Waiting for a run at {host}:{port} …", err=True)
            return agent.take_part()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_several(commands: Sequence[list[str]], token: Token) -> int:
    """Run workers as processes, which get the token by their environment; returns the worst of their exit statuses.

    A terminal sends its Ctrl-C to all of them; a SIGTERM is passed on. Either ends all where it comes while they are started.
    """
    processes: list[subprocess.Popen[bytes]] = []
    is_stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopped
        is_stopped = is_stopped or len(processes) < len(commands)
        if number == signal.SIGTERM:
            _terminate(processes)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for command in commands:
            processes.append(subprocess.Popen(command, env={**os.environ, **token.environment}))  # noqa: PERF401  for ``stop``
        if is_stopped:
            _terminate(processes)
        statuses = [process.wait() for process in processes]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return max(status if status >= 0 else 128 - status for status in statuses)


def _terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()


def worker_command(host: str, port: int, folder: Path, keep_running: bool = False) -> list[str]:
    """The command that starts one worker with its files in ``folder``."""
    connection = ["--master_host", host, "--master_port", str(port)]
    keep = ["--keep_running"] if keep_running else []
    return [sys.executable, "-m", "bench_cli", "worker", *connection, "--work_dir", str(folder), *keep]
