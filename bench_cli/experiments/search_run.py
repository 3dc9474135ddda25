"""Making the probes of a search for capacity: its loop, and the processes that measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import click
import numpy as np

from bench_cli.experiments.child_runs import make_quiet_run, put_aside, run_command
from bench_cli.experiments.forecast import forecast
from bench_cli.experiments.search_plan import (
    CLOSED_LOOP_REQUESTS,
    ONLY_SEARCH,
    REQUESTS_OF_A_USER,
    SearchWords,
    Spent,
    announcement,
    closed_loop_s,
    closed_loop_timeout_s,
    closed_loop_users,
    first_users,
    needs_closed_loop,
    next_step,
    progress,
    seconds_of,
)
from bench_errors import BenchError, ExitStatus
from bench_records.run_folder import RunFolder
from bench_records.search import PlannedProbe, Search, SearchFolder
from reports.capacity.limits import every_limit
from reports.capacity.reading import (
    WARM,
    MeasuredProbe,
    capacity_of,
    check_streamed,
    judged_limits,
    load_options,
    probe_options,
    reach_of,
    read_probe,
    read_probes,
    sets_of,
    timeout_options,
    with_controls,
)
from reports.capacity.result import Capacity, Ended, LoadUnit
from reports.capacity.words import load_number
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.run_report import read_run

if TYPE_CHECKING:
    from bench_cli.experiments.model_control import Simulation

_LEAST_OVERHEAD_S = 1.0
_LAST_OVERHEADS = 3  # of which the longest is what the next probe may take
_STARTING = 0.2  # of the time of a closed loop, in which its users start
_MOST_INVALID = 3  # probes one after the other, after which the client, not the target, is what is measured


class TargetGoneError(BenchError):
    """The target cannot be reached any more; the text says why."""


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """What a closed loop had a second: answers, and of the search's load what arrives, requests or conversations. ``reach`` is
    how many times its limits the latencies were, None where that is unknown.
    """

    requests_per_s: float
    load_per_s: float
    reach: float | None = None


class Probes(Protocol):
    """What makes probes. Each raises TargetGoneError, and ClickException where the probe could not be started."""

    def closed_loop(self, search: Search) -> ClosedLoop:
        """What a closed loop of users sends."""

    def probe(self, search: Search, planned: PlannedProbe, *, is_warm: bool) -> MeasuredProbe:
        """Make and read one probe; ``is_warm`` after another run."""


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
        users = closed_loop_users(search)
        option, _ = load_options(replace(search, unit=LoadUnit.USERS.value), users)
        if option == "--users":
            size = ["--num_requests", str(users * REQUESTS_OF_A_USER)]
        else:
            size = ["--num_requests", str(CLOSED_LOOP_REQUESTS), "--duration", f"{closed_loop_s(search):g}"]
            size += ["--ramp_up", f"{_STARTING * closed_loop_s(search):g}"] if search.unit == LoadUnit.USERS else []
        size += timeout_options(closed_loop_timeout_s(search), search.arguments)
        folder = self.folder.first
        self._make([option, str(users), *size, "--seed", str(search.seed), *judged_limits(search)], folder)
        report = read_run(folder)
        check_streamed(report, every_limit(sets_of(search)))
        per_s = report.metrics.rates[REQUEST_THROUGHPUT].value
        if not per_s:
            raise TargetGoneError("no request of the closed loop succeeded")
        held = np.unique(report.requests.session_of).size if search.conversations else report.requests.outcome.size
        return ClosedLoop(per_s, per_s * held / report.requests.outcome.size, reach_of(report, sets_of(search)))

    def probe(self, search: Search, planned: PlannedProbe, *, is_warm: bool) -> MeasuredProbe:
        folder = self.folder.run_folder(planned)
        self._make(probe_options(search, planned), folder, WARM if is_warm and self.before_each is None else ())
        measured = read_probe(self.folder, search, planned)
        if measured.target_gone:
            put_aside(folder.path)
            raise TargetGoneError("the last requests of the probe had no answer")
        return measured

    def _make(self, options: Sequence[str], folder: RunFolder, defaults: Sequence[str] = ()) -> None:
        """Make the run with these ``options``, and with ``defaults`` that the user's arguments may override."""
        log = self.folder.path / "output.log"
        run_command(self.before_each, log)
        verb, *given = self.arguments
        status, message = make_quiet_run([verb, *defaults, *given, *options], folder.path, log, self.environment)
        if status == ExitStatus.INTERRUPTED:
            raise KeyboardInterrupt
        if folder.requests.exists():  # failures, and findings that it is not valid, are part of the result
            _check_recorded(folder)
            return
        if status == ExitStatus.FAILED:
            raise TargetGoneError(message or f"a probe ended with status {status}")
        if status == ExitStatus.USAGE:
            raise click.UsageError(message)
        raise click.ClickException(f"a probe ended with status {status}: {message}")


def _check_recorded(folder: RunFolder) -> None:
    """Raises ClickException where the client stopped sending, which says nothing of the target: the run is made again."""
    problem = folder.read_manifest().problem
    if problem is not None:
        raise click.ClickException(
            f"the client could not write its journal in {folder.path}: {problem}; make room on that disk, then go on"
        )


class RunningSearch:
    """A search as it goes on: its plan, what is measured, and the time, which counts from ``resume`` to ``save``."""

    def __init__(
        self,
        folder: SearchFolder,
        search: Search,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        simulation: Simulation | None = None,
        *,
        words: SearchWords = ONLY_SEARCH,
    ) -> None:
        """Go on with what is recorded; ``say`` gets a line before and after each probe. Raises RunFolderError."""
        self.folder = folder
        self.search = replace(search, ended=None)
        self._say = say
        self._clock = clock
        self._simulation = simulation
        self._words = words
        recorded = [planned for planned in search.probes if folder.is_recorded(planned)]
        self._measured = list(map(self._controlled, recorded, read_probes(folder, search)))
        self._overheads_s: list[float] = []
        self._beside_plan_s: list[float] = []
        self._not_valid = 0  # one after the other
        self.resume()

    def resume(self) -> None:
        """Let the time count from now on; what happened to the target meanwhile is not known."""
        self._is_warm = False
        self._before_s, self._resumed = self.search.spent_s, self._clock()

    def save(self, search: Search) -> None:
        """Write the plan ``search``, with the time so far."""
        self.search = replace(search, spent_s=self._spent_s)
        self.folder.write(self.search)

    def end(self, why: Ended) -> None:
        """Write why the search ended."""
        self.save(replace(self.search, ended=why.value))

    @property
    def capacity(self) -> Capacity:
        """The result so far."""
        return capacity_of(self.search, self._measured)

    @property
    def needs_first_load(self) -> bool:
        """Whether a closed loop is to show where to start."""
        return needs_closed_loop(self.search)

    def find_first_load(self, probes: Probes) -> None:
        """Find the load to start from, where it is not known."""
        if self.search.first_load is None and self._simulation is not None:
            self._say("The model is simulated, to know where to start.")
            self.save(replace(self.search, first_load=self._simulation.first_load()))
            if self.search.first_load is not None:
                self._say(announcement(self.search))
        if not self.needs_first_load:
            return
        search = self.search
        why = "where to start" if search.first_load is None else "how many requests a second they send"
        self._say(f"A closed loop of {closed_loop_users(search)} users, to know {why}.")
        found = probes.closed_loop(search)
        self._is_warm = True
        first_load = search.first_load or _first_load(search, found)
        self.save(replace(search, first_per_s=found.requests_per_s, first_load=first_load))
        self._say(f"It had {load_number(found.requests_per_s)} requests/s. {announcement(self.search)}")

    def next_step(self, reserved_s: float = 0.0) -> PlannedProbe | Ended:
        """The probe that was planned and not recorded, or the next one, or why the search ends; its first load is known.
        ``reserved_s`` of the time left are needed before it.
        """
        spent = self._spent(reserved_s)
        pending = next((planned for planned in self.search.probes if not self.folder.is_recorded(planned)), None)
        if pending is not None and (spent.left_s is None or spent.left_s > 0.0):
            return pending
        return next_step(self.search, self._measured, spent)

    def make(self, probes: Probes, step: PlannedProbe) -> Ended | None:
        """Make and read a probe. Returns why the search ends with it, None where it does not.

        Raises TargetGoneError where the target failed before the first probe.
        """
        if step not in self.search.probes:
            self.save(replace(self.search, probes=(*self.search.probes, step)))
        sending_s = seconds_of(self.search, self._measured, step)
        load = f"{step.load:.4g} {self.search.unit}"
        self._say(f"Probe {len(self._measured) + 1}: {load}, {step.requests:,} requests, about {sending_s:.0f} s.")
        begin = self._clock()
        try:
            measured = probes.probe(self.search, step, is_warm=self._is_warm)
        except TargetGoneError as error:
            if not self._measured:
                raise
            self._say(f"The target stopped answering: {error}{'' if str(error).endswith(('.', '?')) else '.'}")
            return Ended.TARGET_FAILED
        self._is_warm = True
        measured = self._controlled(step, measured)
        self._measured.append(measured)
        took_s = self._clock() - begin
        self._overheads_s.append(took_s - measured.run.seconds)
        self._beside_plan_s.append(took_s - sending_s)
        self._not_valid = 0 if measured.counts else self._not_valid + 1
        ended = Ended.NOT_VALID if self._not_valid >= _MOST_INVALID else None
        if ended is None:
            self._foresee(step)
        self.save(self.search)
        if self._not_valid:
            problem = "" if measured.run.problem is None else f" {measured.run.problem}."
            self._say(f"It is not valid, and decides nothing.{problem} See {self.folder.run_folder(step).html}.")
        self._say(progress(self.capacity, self.search, self._spent().overhead_s, self._words))
        return ended

    def _foresee(self, step: PlannedProbe) -> None:
        """Note what the rest of the search is expected to reach after the probe ``step``."""
        found = forecast(self.search, self._measured, self._spent())
        if found is not None:
            self.search = replace(self.search, forecasts={**self.search.forecasts, step.folder: found})

    def _controlled(self, step: PlannedProbe, measured: MeasuredProbe) -> MeasuredProbe:
        """The probe with what the model has of its schedule, simulated unless it is recorded: a kill may have come between."""
        is_simulated = measured.counts and not measured.run.probe.gave_up and step.folder not in self.search.controls
        if self._simulation is None or not is_simulated:
            return measured
        controls = self._simulation.controls(self.search, step)
        self.search = replace(self.search, controls={**self.search.controls, step.folder: controls})
        return with_controls(measured, self.search, controls)

    @property
    def _spent_s(self) -> float:
        return self._before_s + self._clock() - self._resumed

    def _spent(self, reserved_s: float = 0.0) -> Spent:
        left_s = None if self.search.budget_s is None else self.search.budget_s - self._spent_s - reserved_s
        if not self._overheads_s:
            return Spent(left_s)
        mean_s = max(_LEAST_OVERHEAD_S, sum(self._overheads_s) / len(self._overheads_s))
        return Spent(left_s, mean_s, max(mean_s, *self._beside_plan_s[-_LAST_OVERHEADS:]))


def search_capacity(
    folder: SearchFolder,
    search: Search,
    open_probes: Callable[[], AbstractContextManager[Probes]],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    simulation: Simulation | None = None,
) -> Capacity:
    """Carry out ``search``, or what is left of it, in ``folder``, and return its result; ``say`` gets a line before and after
    each probe. A ``simulation`` shows where to start, and how much of what each probe has its schedule explains.

    Raises KeyboardInterrupt when it was stopped, with what is measured saved, ClickException where the options of the probes
    cannot be used or --before_each fails, with what is measured saved, too, and TargetGoneError where the target failed before
    the first probe.
    """
    now = RunningSearch(folder, search, say, clock, simulation)
    try:
        is_known = now.search.first_load is not None and not now.needs_first_load
        step = now.next_step() if is_known else None
        if not isinstance(step, Ended):
            with open_probes() as probes:
                now.find_first_load(probes)
                step = now.next_step()
                while not isinstance(step, Ended):
                    step = now.make(probes, step) or now.next_step()
    except (KeyboardInterrupt, click.ClickException):
        now.end(Ended.INTERRUPTED)
        raise
    now.end(step)
    return now.capacity


def _first_load(search: Search, found: ClosedLoop) -> float:
    if search.unit == LoadUnit.USERS:
        return first_users(search, found.requests_per_s, found.reach)
    return float(f"{found.load_per_s / 2.0:.4g}")
