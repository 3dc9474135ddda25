"""The workers of a distributed run, for the length of a measurement."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from bench_cli.measurement.distribution_options import DistributionOptions
from bench_cli.worker import worker_command
from harness.host.signals import signals_blocked
from harness.run.worker_count import Workers
from reports.render.counts import counted

if TYPE_CHECKING:
    from harness.distribution.admission import Token
    from harness.distribution.remote_pool import RemotePool
    from harness.run.live_statistics import Snapshot

_SHOW_PERIOD_S = 1.0
_END_TIMEOUT_S = 10.0
_TOKEN_BYTES = 24


@contextmanager
def open_pool(options: DistributionOptions) -> Iterator[RemotePool | None]:
    """The requested workers, awaited from now on; None for a run of this host's own. Raises RunError."""
    if options.workers is None:
        yield None
        return
    from harness.distribution.page_guard import LiveAddress
    from harness.distribution.remote_pool import Master, RemotePool

    page_token, token = secrets.token_urlsafe(_TOKEN_BYTES), options.token
    page = LiveAddress(options.web_host, options.web_port, page_token) if options.web_ui else None
    if page is not None:
        page.check()
    wait_s = options.expect_workers_max_wait
    master = Master(options.master_bind_host, options.port, options.workers, wait_s, page, token=token)
    pool = RemotePool(master, lambda text: click.echo(text, err=True))
    with ExitStack() as cleaning:
        cleaning.callback(pool.close)
        port = pool.open()
        if page is not None:
            click.echo(f"Live: {page.url}", err=True)
        if options.locust_processes:
            processes = cleaning.enter_context(_local_workers(options, port, token))
            pool.watch(partial(_ended, processes), partial(_end, processes))
        if (options.locust_processes or 0) < options.workers:
            awaited = options.workers - (options.locust_processes or 0)
            click.echo(
                f"Waiting for {counted(awaited, 'worker')} at {options.master_bind_host}:{port}: "
                f"bench worker --master_host {options.master_bind_host} --master_port {port}{_with_token(token)}",
                err=True,
            )
        yield pool


@contextmanager
def _local_workers(options: DistributionOptions, port: int, token: Token) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Workers on this host. They have no signals of their own: the master stops them."""
    host = options.master_bind_host if options.master_bind_host not in ("*", "0.0.0.0") else "127.0.0.1"  # noqa: S104
    with TemporaryDirectory(prefix="bench-workers-") as folder:
        with signals_blocked():
            processes = [
                subprocess.Popen(
                    worker_command(host, port, Path(folder) / str(number)),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, **token.environment},
                )
                for number in range(options.locust_processes or 0)
            ]
        try:
            yield processes
        finally:
            _end(processes)


def _ended(processes: list[subprocess.Popen[bytes]]) -> str | None:
    """That a worker of this host ended, which none does before the run; None while all live."""
    status = next((status for process in processes if (status := process.poll()) is not None), None)
    if status is None:
        return None
    how = f"by signal {-status}" if status < 0 else f"with status {status}"
    return f"--locust_processes {len(processes)}: a worker on this host ended {how} before the run; 'bench worker' shows why"


def _with_token(token: Token) -> str:
    from harness.distribution.admission import NO_TOKEN, TOKEN_VARIABLE

    return "" if token == NO_TOKEN else f", with the token of this command ({TOKEN_VARIABLE} or --worker_token_file)"


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    deadline_s = time.monotonic() + _END_TIMEOUT_S  # of all
    for process in processes:
        try:
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def distributed_workers(options: DistributionOptions) -> Workers | None:
    """The client's size in a distributed run; None in one of this host's own."""
    if options.workers is None:
        return None
    here = options.locust_processes or 0
    return Workers(options.workers, f"over Locust, {here} of them on this host" if here else "over Locust, on other hosts")


class LivePage:
    """A run on the web page of ``pool``, updated once a second. ``add`` takes its records."""

    def __init__(self, pool: RemotePool, streamed: bool) -> None:
        from harness.distribution.live_histograms import LiveHistograms

        self._pool = pool
        self._histograms = LiveHistograms(streamed)
        self._shown_s = float("-inf")
        self.add = self._histograms.add

    def beside(self, on_progress: Callable[[Snapshot], None]) -> Callable[[Snapshot], None]:
        """``on_progress``, which also updates the page."""

        def show(snapshot: Snapshot) -> None:
            on_progress(snapshot)
            if snapshot.elapsed_s - self._shown_s >= _SHOW_PERIOD_S:
                self._shown_s = snapshot.elapsed_s
                self._pool.show(self._histograms.take(snapshot.in_flight))

        return show


def live_page(pool: RemotePool | None, streamed: bool) -> LivePage | None:
    """The page of ``pool``; None where it has none."""
    return None if pool is None or not pool.has_page else LivePage(pool, streamed)
