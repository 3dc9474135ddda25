"""Options of a run whose workers are on other hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option
from bench_cli.measurement.client_options import ClientOptions
from bench_cli.measurement.load_options import LoadOptions
from bench_cli.worker import DEFAULT_PORT, import_locust, worker_token
from harness.run.worker_count import MAX_WORKERS

if TYPE_CHECKING:
    from harness.distribution.admission import Token

_WAIT_S = 300.0
_WEB_PORT = 8089  # Locust's
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OF_WORKERS = (
    *("expect_workers", "expect_workers_max_wait", "master_bind_host", "master_bind_port", "worker_token_file"),
    *("accept_any_worker", "web_host", "web_port"),
)


@dataclass(frozen=True)
class DistributionOptions(Concern, title="Distribution"):
    """The workers of a distributed run. ``master_bind_port`` None: Locust's, or any free one for workers of this host alone."""

    distributed: bool = option(
        False, help="Send from several hosts: wait for 'bench worker' there, and deal them the schedule."
    )
    expect_workers: int | None = option(
        None,
        type=click.IntRange(1, MAX_WORKERS * 4),
        metavar="N",
        show_default="--locust_processes",
        help="Workers to wait for.",
    )
    expect_workers_max_wait: float = option(
        _WAIT_S, type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="How long to wait for them."
    )
    locust_processes: int | None = option(
        None,
        type=click.IntRange(1, MAX_WORKERS),
        metavar="N",
        help="Start N workers on this host; without --distributed these are all the workers.",
    )
    master_bind_host: str = option(
        "127.0.0.1",
        metavar="HOST",
        help="Address to listen on for workers. One that is not loopback needs a token. Nothing is encrypted: use a private "
        "network.",
    )
    master_bind_port: int | None = option(
        None,
        type=click.IntRange(1, 65535),
        metavar="PORT",
        show_default="5557; any free one where all workers are here",
        help="Port to listen on.",
    )
    worker_token_file: Path | None = worker_token()
    accept_any_worker: bool = option(False, help="Accept workers without a token, also at an address that other hosts reach.")
    web_ui: bool = option(False, "--web_ui/--headless", help="Show the run live on Locust's web page.")
    web_host: str = option("127.0.0.1", metavar="HOST", help="Address of that page; only the URL that bench prints opens it.")
    web_port: int = option(_WEB_PORT, type=click.IntRange(1, 65535), metavar="PORT", help="Port of that page.")

    @property
    def workers(self) -> int | None:
        """The number of workers; None for a run that is not distributed."""
        return self.expect_workers or self.locust_processes if self.distributed or self.locust_processes else None

    @property
    def are_all_here(self) -> bool:
        """Whether all workers are processes that this command starts."""
        return self.workers == self.locust_processes

    @property
    def token(self) -> Token:
        """The token of the run. Raises TokenError for a malformed one."""
        from harness.distribution.admission import NO_TOKEN, configured_token, new_token

        token = configured_token(self.worker_token_file)
        return new_token() if token == NO_TOKEN and self.are_all_here else token

    @property
    def port(self) -> int:
        """The port to listen at; 0 for any free one."""
        if self.master_bind_port is not None:
            return self.master_bind_port
        return 0 if self.are_all_here else DEFAULT_PORT


def check_distribution_options(
    options: DistributionOptions, client: ClientOptions, load: LoadOptions, urls: Sequence[str]
) -> None:
    """Raises UsageError for options that contradict each other or have no effect, and without Locust."""
    workers = options.workers
    if workers is None:
        if options.distributed:
            raise click.UsageError("--distributed needs --expect_workers N, the number of 'bench worker' processes to wait for")
        for name in (*(["web_ui"] if options.web_ui else []), *options.given(*_OF_WORKERS)):
            raise click.UsageError(f"--{name} goes with --distributed or --locust_processes")
        return
    if not options.web_ui:
        for name in options.given("web_host", "web_port"):
            raise click.UsageError(f"--{name} sets the address of the web page: give --web_ui, too")
    import_locust()
    if not urls and options.master_bind_host not in _LOOPBACK:
        raise click.UsageError("--distributed needs --url: workers on other hosts cannot reach the pipeline that bench deploys")
    _check_token(options)
    if client.workers is not None:
        raise click.UsageError("--workers is for the processes of one host; a distributed run has --expect_workers")
    if client.pin_workers:
        raise click.UsageError("--pin_workers is for the processes of one host; pin 'bench worker' with taskset there")
    if (options.locust_processes or 0) > workers:
        raise click.UsageError(f"--locust_processes {options.locust_processes} is more than --expect_workers {workers}")
    for name, limit in (("--concurrency", load.concurrency), ("--max_concurrency", load.max_concurrency)):
        if limit is not None and workers > limit:
            raise click.UsageError(f"{workers} workers cannot share {name} {limit}; use no more workers than that")


def _check_token(options: DistributionOptions) -> None:
    """Raises UsageError where a program of another host could join as a worker, and TokenError for a malformed token."""
    from harness.distribution.admission import NO_TOKEN, TOKEN_VARIABLE

    is_open = options.master_bind_host not in _LOOPBACK and options.token == NO_TOKEN
    if is_open and not options.accept_any_worker:
        raise click.UsageError(
            f"--master_bind_host {options.master_bind_host}: any program that reaches this address could join as a worker. "
            f"Make a token (openssl rand -hex 16 > worker-token) and give it to this command and to each 'bench worker', "
            f"as --worker_token_file worker-token or by the environment variable {TOKEN_VARIABLE}; or accept that with "
            "--accept_any_worker"
        )
