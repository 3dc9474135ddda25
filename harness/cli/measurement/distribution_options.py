"""Options of a run whose workers are on other hosts."""

from __future__ import annotations

from dataclasses import dataclass

import click
import cloup

from harness.cli.measurement.client_options import ClientOptions
from harness.cli.measurement.load_options import LoadOptions
from harness.cli.worker import DEFAULT_PORT, import_locust
from harness.run.worker_count import MAX_WORKERS

_WAIT_S = 300.0
_WEB_PORT = 8089  # Locust's
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class DistributionOptions:
    """The workers of a distributed run. ``master_bind_port`` None: Locust's, or any free one for workers of this host alone."""

    distributed: bool
    expect_workers: int | None
    expect_workers_max_wait: float
    locust_processes: int | None
    master_bind_host: str
    master_bind_port: int | None
    web_ui: bool
    web_host: str
    web_port: int

    @property
    def workers(self) -> int | None:
        """The number of workers; None for a run that is not distributed."""
        return self.expect_workers or self.locust_processes if self.distributed or self.locust_processes else None

    @property
    def port(self) -> int:
        """The port to listen at; 0 for any free one."""
        if self.master_bind_port is not None:
            return self.master_bind_port
        return 0 if self.workers == self.locust_processes else DEFAULT_PORT


def check_distribution_options(options: DistributionOptions, client: ClientOptions, load: LoadOptions, url: str | None) -> None:
    """Raises UsageError for options that contradict each other or have no effect, and without Locust."""
    workers = options.workers
    if workers is None:
        if options.distributed:
            raise click.UsageError("--distributed needs --expect_workers N, the number of 'bench worker' processes to wait for")
        for name, is_given in (
            ("--expect_workers", options.expect_workers is not None),
            ("--master_bind_port", options.master_bind_port is not None),
            ("--web_ui", options.web_ui),
        ):
            if is_given:
                raise click.UsageError(f"{name} goes with --distributed or --locust_processes")
        return
    import_locust()
    if url is None and options.master_bind_host not in _LOOPBACK:
        raise click.UsageError("--distributed needs --url: workers on other hosts cannot reach the pipeline that bench deploys")
    if client.workers is not None:
        raise click.UsageError("--workers is for the processes of one host; a distributed run has --expect_workers")
    if client.pin_workers:
        raise click.UsageError("--pin_workers is for the processes of one host; pin 'bench worker' with taskset there")
    if (options.locust_processes or 0) > workers:
        raise click.UsageError(f"--locust_processes {options.locust_processes} is more than --expect_workers {workers}")
    for name, limit in (("--concurrency", load.concurrency), ("--max_concurrency", load.max_concurrency)):
        if limit is not None and workers > limit:
            raise click.UsageError(f"{workers} workers cannot share {name} {limit}; use no more workers than that")


distribution_group = cloup.option_group(
    "Distribution",
    cloup.option(
        "--distributed",
        is_flag=True,
        help="Send from several hosts: wait for 'bench worker' there, and deal them the schedule.",
    ),
    cloup.option(
        "--expect_workers",
        type=click.IntRange(1, MAX_WORKERS * 4),
        metavar="N",
        show_default="--locust_processes",
        help="Workers to wait for.",
    ),
    cloup.option(
        "--expect_workers_max_wait",
        type=click.FloatRange(min=0, min_open=True),
        default=_WAIT_S,
        metavar="SECONDS",
        help="How long to wait for them.",
    ),
    cloup.option(
        "--locust_processes",
        type=click.IntRange(1, MAX_WORKERS),
        metavar="N",
        help="Start so many of the workers on this host; alone, all of them are here.",
    ),
    cloup.option(
        "--master_bind_host",
        default="127.0.0.1",
        metavar="HOST",
        help="Address at which workers are awaited. There is no login: use an address of a private network.",
    ),
    cloup.option(
        "--master_bind_port",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        show_default="5557; any free one where all workers are here",
        help="Its port.",
    ),
    cloup.option("--web_ui/--headless", default=False, help="Show the run live on Locust's web page."),
    cloup.option(
        "--web_host",
        default="127.0.0.1",
        metavar="HOST",
        help="Address of that page; only the URL that bench prints opens it.",
    ),
    cloup.option("--web_port", type=click.IntRange(1, 65535), default=_WEB_PORT, metavar="PORT", help="Its port."),
)
