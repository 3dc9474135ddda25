"""Making the probes of a search for capacity: its loop, and the processes that measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import click
import numpy as np

from bench_cli.experiments.child_runs import make_quiet_run, put_aside, run_command
from bench_cli.experiments.search_plan import (
    CLOSED_LOOP_REQUESTS,
    CLOSED_LOOP_USERS,
    Spent,
    announcement,
    closed_loop_s,
    next_step,
    progress,
    seconds_of,
)
from bench_errors import BenchError, ExitStatus
from bench_records.run_folder import RunFolder
from bench_records.search import PlannedProbe, Search, SearchFolder
from reports.capacity.limits import hopeless
from reports.capacity.reading import MeasuredProbe, capacity_of, load_options, read_probe, read_probes, sets_of, size_options
from reports.capacity.result import Capacity, Ended, LoadUnit
from reports.criteria import parse_slo
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.run_report import read_run

_LEAST_OVERHEAD_S = 1.0
_MOST_INVALID = 3  # probes one after the other, after which the client, not the target, is what is measured


class TargetGoneError(BenchError):
    """The target cannot be reached any more; the text says why."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """What a closed loop had a second: answers, and of the search's load what arrives, requests or conversations."""

    requests_per_s: float
    load_per_s: float


class Probes(Protocol):
    """What makes probes. Each raises TargetGoneError, and ClickException where the probe could not be started."""

    def closed_loop(self, search: Search) -> ClosedLoop:
        """What a closed loop of users sends."""

    def probe(self, search: Search, planned: PlannedProbe) -> MeasuredProbe:
        """Make and read one probe."""


@dataclass(frozen=True)
class ChildProbes:
    """Each probe is a ``bench`` process. ``arguments`` are those of the search with their secrets; ``environment`` names the
    pipeline that all share.
    """

    folder: SearchFolder
    arguments: Sequence[str]
    before_each: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def closed_loop(self, search: Search) -> ClosedLoop:
        users = int(search.first_load or 1) if search.unit == LoadUnit.USERS else CLOSED_LOOP_USERS
        option, _ = load_options(replace(search, unit=LoadUnit.USERS.value), users)
        if option == "--users":  # conversations end by themselves
            size = ["--num_requests", str(CLOSED_LOOP_USERS * 10)]
        else:
            size = ["--num_requests", str(CLOSED_LOOP_REQUESTS), "--duration", f"{closed_loop_s(search):g}"]
        folder = self.folder.first
        self._make([option, str(users), *size, "--seed", str(search.seed), *_limits(search)], folder)
        report = read_run(folder)
        per_s = report.metrics.rates[REQUEST_THROUGHPUT].value
        if not per_s:
            raise TargetGoneError("no request of the closed loop succeeded")
        held = np.unique(report.requests.session_of).size if search.conversations else report.requests.outcome.size
        return ClosedLoop(per_s, per_s * held / report.requests.outcome.size)

    def probe(self, search: Search, planned: PlannedProbe) -> MeasuredProbe:
        folder = self.folder.run_folder(planned)
        stop_if = hopeless(sets_of(search))
        stops = () if stop_if is None else ("--stop_if", stop_if)
        self._make([*load_options(search, planned.load), *size_options(planned), *stops, *_limits(search)], folder)
        measured = read_probe(self.folder, search, planned)
        if measured.target_gone:
            put_aside(folder.path)
            raise TargetGoneError("the last requests of the probe found no server")
        return measured

    def _make(self, options: Sequence[str], folder: RunFolder) -> None:
        log = self.folder.path / "output.log"
        run_command(self.before_each, log)
        status, message = make_quiet_run([*self.arguments, *options], folder.path, log, self.environment)
        if status == ExitStatus.INTERRUPTED:
            raise KeyboardInterrupt
        if folder.requests.exists():  # failures, and findings that it is not valid, are part of the result
            return
        if status == ExitStatus.FAILED:
            raise TargetGoneError(message or f"a probe ended with status {status}")
        if status == ExitStatus.USAGE:
            raise click.UsageError(message)
        raise click.ClickException(f"a probe ended with status {status}: {message}")


def _limits(search: Search) -> list[str]:
    """The limits of the first set, by which the probes' own reports judge, so far as these have an interval of the number."""
    first = search.tiers[0]
    return [word for text in (*first.limits, *first.objectives) if _is_judged(text) for word in ("--slo", text)]


def _is_judged(text: str) -> bool:
    try:
        parse_slo(text)
    except ValueError:
        return False
    return True


@dataclass
class _Progress:
    """The search as it goes on: its plan, what is measured, and the time."""

    folder: SearchFolder
    search: Search
    measured: list[MeasuredProbe]
    clock: Callable[[], float]
    started: float
    before_s: float
    overheads_s: list[float]

    @property
    def spent(self) -> Spent:
        left_s = None if self.search.budget_s is None else self.search.budget_s - self.spent_s
        if not self.overheads_s:
            return Spent(left_s)
        return Spent(left_s, max(_LEAST_OVERHEAD_S, sum(self.overheads_s) / len(self.overheads_s)))

    @property
    def spent_s(self) -> float:
        return self.before_s + self.clock() - self.started

    def save(self, search: Search) -> None:
        """Write the plan ``search``, with the time so far."""
        self.search = replace(search, spent_s=self.spent_s)
        self.folder.write(self.search)


def search_capacity(
    folder: SearchFolder,
    search: Search,
    open_probes: Callable[[], AbstractContextManager[Probes]],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Capacity:
    """Carry out ``search``, or what is left of it, in ``folder``, and return its result; ``say`` gets a line before and after
    each probe.

    Raises KeyboardInterrupt when it was stopped, with what is measured saved, ClickException where the options of the probes
    cannot be used or --before_each fails, with what is measured saved, too, and TargetGoneError where the target failed before
    the first probe.
    """
    now = _Progress(folder, replace(search, ended=None), list(read_probes(folder, search)), clock, clock(), search.spent_s, [])
    try:
        step = None if now.search.first_load is None else _next(now)
        if not isinstance(step, Ended):
            with open_probes() as probes:
                _begin(now, probes, say)
                step = _make_probes(now, probes, say)
    except (KeyboardInterrupt, click.ClickException):
        now.save(replace(now.search, ended=Ended.INTERRUPTED.value))
        raise
    assert step is not None
    now.save(replace(now.search, ended=step.value))
    return capacity_of(now.search, now.measured)


def _begin(now: _Progress, probes: Probes, say: Callable[[str], None]) -> None:
    """Find the load to start from, where it is not known."""
    search = now.search
    if search.first_per_s is None and (search.first_load is None or search.unit == LoadUnit.USERS):
        users = CLOSED_LOOP_USERS if search.first_load is None else search.first_load
        say(f"A closed loop of {users:.0f} users, to know where to start.")
        found = probes.closed_loop(search)
        first_load = search.first_load or _rounded(found.load_per_s / 2.0)
        now.save(replace(search, first_per_s=found.requests_per_s, first_load=first_load))
        say(f"It had {found.requests_per_s:.3g} requests/s. {announcement(now.search)}")


def _make_probes(now: _Progress, probes: Probes, say: Callable[[str], None]) -> Ended:
    invalid = 0  # one after the other
    while invalid < _MOST_INVALID:
        step = _next(now)
        if isinstance(step, Ended):
            return step
        if step not in now.search.probes:
            now.save(replace(now.search, probes=(*now.search.probes, step)))
        sending_s = seconds_of(now.search, now.measured, step)
        say(
            f"Probe {len(now.measured) + 1}: {step.load:.4g} {now.search.unit}, {step.requests:,} requests, about "
            f"{sending_s:.0f} s."
        )
        begin = now.clock()
        try:
            measured = probes.probe(now.search, step)
        except TargetGoneError as error:
            if not now.measured:
                raise
            say(f"The target stopped answering: {error}{'' if str(error).endswith(('.', '?')) else '.'}")
            return Ended.TARGET_FAILED
        now.measured.append(measured)
        now.overheads_s.append(now.clock() - begin - measured.run.seconds)
        now.save(now.search)
        invalid = 0 if measured.counts else invalid + 1
        if invalid:
            say(f"It is not valid, and decides nothing: see {now.folder.run_folder(step).html}.")
        say(progress(capacity_of(now.search, now.measured), now.search, now.spent.overhead_s))
    return Ended.NOT_VALID


def _next(now: _Progress) -> PlannedProbe | Ended:
    """The probe that was planned and not recorded, or the next one."""
    pending = next((planned for planned in now.search.probes if not now.folder.is_recorded(planned)), None)
    if pending is not None and (now.spent.left_s is None or now.spent.left_s > 0.0):
        return pending
    return next_step(now.search, now.measured, now.spent)


def _rounded(load: float) -> float:
    return float(f"{load:.4g}")
