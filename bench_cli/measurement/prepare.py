"""Everything that is decided before the first request: the requests, their schedule, and the workers that send them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import click

from bench_cli.measurement.load_options import TrafficOptions
from bench_cli.measurement.target import Target
from bench_records.manifest import Mixture
from harness.run.worker_count import Workers
from reports.render.counts import counted
from workloads.elements.errors import WorkloadError
from workloads.elements.request import PROBE, Request
from workloads.lengths.samples import PairedLengths
from workloads.prompts.drawn import Drawn
from workloads.schedule.load import AnyLoad, ClosedLoop, Load, OpenLoop
from workloads.schedule.schedule import AnySchedule


@dataclass(frozen=True)
class PreparedRequests:
    """The requests drawn, and their origin for the manifest. ``load`` None: that of the options; ``lengths`` None: of no law.

    ``limit_of`` gives the manifest's shares of shared prefixes for the requests that were sent, by their numbers in the order
    of sending; None where they do not depend on it. Prompts begin with ``shared_tokens`` in front of what ``lengths`` draws.
    ``wanted`` is how many requests the duration asks for, of a trace at a given rate; None elsewhere: the load knows it.
    """

    drawn: Drawn
    description: str
    parameters: Mapping[str, object]
    load: AnyLoad | None = None
    lengths: PairedLengths | None = None
    limit_of: Callable[[Sequence[int]], Mapping[str, float | None]] | None = None
    shared_tokens: int = 0
    wanted: int | None = None

    @property
    def requests(self) -> tuple[Request, ...]:
        """In the order of sending."""
        return self.drawn.requests

    @property
    def vocab_size(self) -> int | None:
        """Ids are drawn below it; None where they are the tokenizer's, or none are drawn."""
        size = self.parameters.get("vocab_size")
        return size if isinstance(size, int) else None

    @property
    def dropped_too_long(self) -> int:
        """The number of prompts beyond the limits."""
        return self.drawn.dropped_too_long


@dataclass(frozen=True)
class Mixed:
    """A schedule with its mixture. ``entry`` is the key ``mixture`` of run.json, None where nothing is mixed in."""

    schedule: AnySchedule
    entry: Mixture | None = None

    @cached_property
    def probes(self) -> int:
        """The number of probes, which are no part of the load."""
        return sum(request.traffic_class == PROBE for request in self.schedule.requests)

    def __str__(self) -> str:
        """What is mixed in, for people; "" for nothing."""
        entry = self.entry or Mixture()
        parts = [counted(len(entry.classes), "class", "classes")] if entry.classes else []
        parts += [f"{entry.cancellation.requests:,} to be cancelled"] if entry.cancellation else []
        parts += [f"{counted(self.probes, 'probe')} beside them"] if entry.probe else []
        return ", ".join(parts)


PrepareRequests = Callable[[TrafficOptions, Load, Target], PreparedRequests]


@dataclass(frozen=True)
class PreparedRun:
    """What one run sends, when, to which target, and by which workers."""

    target: Target
    workload: PreparedRequests
    load: AnyLoad
    mixed: Mixed
    workers: Workers

    @property
    def schedule(self) -> AnySchedule:
        """The load's requests, with the probes."""
        return self.mixed.schedule

    @property
    def load_requests(self) -> int:
        """The number of requests without the probes."""
        return len(self.schedule) - self.mixed.probes

    def announcement(self) -> str:
        """The run that is about to start, in one sentence for stderr."""
        cores = f" on cores {', '.join(map(str, self.workers.pinned_cores))}" if self.workers.pinned_cores else ""
        workers = f"{self.workers.count} {'worker' if self.workers.count == 1 else 'workers'}{cores} ({self.workers.reason})"
        count = request_count_text(self.load, self.load_requests)
        mixture = f" ({self.mixed})" if str(self.mixed) else ""
        noun = "request" if self.load_requests == 1 else "requests"
        return f"Sending {count} {noun}{mixture}, {self.load}, by {workers}; Ctrl-C stops and reports."


def make_schedule(workload: PreparedRequests, load: AnyLoad, traffic: TrafficOptions, target: Target) -> AnySchedule:
    """The requests with their send times; dropped and missing prompts are reported on stderr.

    Raises WorkloadError for text prompts where the model takes token ids, and for requests that it cannot serve.
    """
    if workload.dropped_too_long:
        dropped = counted(workload.dropped_too_long, "prompt that is", "prompts that are")
        click.echo(f"Dropped {dropped} too long.", err=True)
    available = len(workload.requests)
    wanted = traffic.num_requests
    if isinstance(load, OpenLoop):  # --duration may end it before
        wanted = load.most_requests(traffic.seed, traffic.num_requests)
    if traffic.num_requests is not None and wanted is not None and available < wanted:
        prompts = counted(available, "prompt, which is", "prompts, which are")
        click.echo(
            f"--num_requests {traffic.num_requests}: there are only {prompts} all sent.{_more_prompts(workload)}", err=True
        )
    if isinstance(load, ClosedLoop) and available < load.concurrency:
        idle = counted(load.concurrency - available, "user sends", "users send")
        click.echo(f"--concurrency {load.concurrency}: with only {counted(available, 'request')}, {idle} none.", err=True)
    schedule = load.schedule(workload.requests, traffic.seed)
    if target.model.takes_token_ids and any(request.input_ids is None for request in schedule.requests):
        raise WorkloadError(
            f"--tokenizer_dir: the model {target.model.name} takes token ids, so prompts must be tokenised here"
        )
    if target.model.refuses_ignore_eos and any(request.ignore_eos for request in schedule.requests):
        raise WorkloadError(
            f"--ignore_eos: the model {target.model.name} has no input for it, so its answers end with their sequence; "
            "measure it with --no_ignore_eos"
        )
    return schedule


def _more_prompts(workload: PreparedRequests) -> str:
    """How a dataset has more prompts, as a sentence; "" where none of its options makes more."""
    if "pieces" in workload.parameters:
        return " --pieces random cuts more of a text." if workload.parameters["pieces"] == "consecutive" else ""
    return " --repeat_dataset sends a dataset again." if "dataset" in workload.parameters and workload.load is None else ""


def request_count_text(load: AnyLoad, prepared: int) -> str:
    """The number of requests that are sent of the ``prepared`` ones, as text."""
    return f"up to {prepared:,}" if load.ends_by_the_clock else f"{prepared:,}"
