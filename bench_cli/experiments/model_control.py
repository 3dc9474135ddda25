"""What ``bench capacity --model`` adds to a search: a fitted model simulates the schedule of each probe, and others like it.

Where arrivals crowd and long requests come together, a probe has more requests beyond a limit than others at the same load. The
model shows how many of them its schedule explains: those that it has beyond the mean over schedules of other seeds
(reports/capacity/control.py).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import click
import numpy as np

from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.prepare import PreparedRun, PrepareRequests
from bench_cli.simulate.carry_out import prepared_traffic
from bench_cli.simulate.deployment import Simulated, read_simulated
from bench_cli.simulate.deployment_options import DeploymentOptions
from bench_cli.simulate.limits import SimulatedLimits, simulated_limits
from bench_cli.simulate.measuring_verb import invoke
from bench_records.search import PlannedProbe, RecordedControl, Search, SearchFolder
from reports.capacity.limits import every_limit
from reports.capacity.reading import load_options, sets_of, steady
from reports.metrics.requests import Requests
from reports.render.plain_text import printable
from reports.run_report import RunReport, read_run
from simulator.answers import Answers
from simulator.arrays import BoolArray, FloatArray, IntArray
from simulator.clients import OpenLoop as OpenLoopClients
from simulator.compiled import can_compile, compiled_answers
from simulator.hull import beyond, extents_of_deployment
from simulator.latencies import Latencies
from simulator.simulation import check_room
from simulator.traffic import Traffic
from workloads.arrivals.processes import Bursts, Exponential, Gamma, Weibull
from workloads.lengths.samples import PairedLengths
from workloads.schedule.load import Load, OpenLoop

_BLOCKS = 8
_SIMULATED = 1_000_000  # requests, over which an expected share is a mean
_FEWEST, _MOST = 300, 1_000  # simulations for it: of 100 its error is five times what a good model leaves of a probe
_STARTING, _STARTING_REQUESTS = 10, 3_000  # simulations, and the requests of each, that show whether a load holds
_STEP, _STEPS, _BISECTIONS = 1.3, 20, 5  # to the load at which the model is at its capacity
_RAMP = 0.1
_NS = 1e-9
_HULL_RATE = "requests a second"
_AS_SURE = "The answer is as sure, but may need more requests."

_Random = Exponential | Gamma | Weibull | Bursts


class Simulation(Protocol):
    """What a search knows of its probes from a model."""

    def first_load(self) -> float | None:
        """The model's own capacity; None where none was found."""
        ...

    def controls(self, search: Search, planned: PlannedProbe) -> tuple[RecordedControl, ...]:
        """What the model has beyond each limit with the schedule of a recorded probe; empty where that cannot be said."""
        ...


@dataclass(frozen=True, eq=False)
class Drawn:
    """A schedule as it is prepared and simulated."""

    prepared: PreparedRun
    traffic: Traffic


@dataclass(frozen=True, eq=False)
class _Workload:
    """Schedules of one load: random ``arrivals``, and the lengths of ``own``, or drawn anew by ``law`` with ``more`` tokens
    before each prompt.
    """

    arrivals: _Random
    own: Traffic
    law: PairedLengths | None
    more: int

    def draw(self, requests: int, seed: int) -> Traffic:
        """The traffic of one seed; of lengths that stay, no more requests than there are."""
        inputs, outputs = self.own.input_tokens[:requests], self.own.output_tokens[:requests]
        if self.law is not None:
            inputs, outputs = _drawn(self.law, self.more, requests, seed)
        at_s: FloatArray = self.arrivals.offsets_ns(len(inputs), seed) * _NS
        return Traffic(at_s, inputs, inputs, outputs)


@dataclass(frozen=True)
class ModelControl:
    """Simulates probes with one fitted server. ``draw`` prepares the schedule of a load, a number of requests and a seed as
    the measuring verb does; ``seed`` is that of the simulations.
    """

    folder: SearchFolder
    simulated: Simulated
    limits: SimulatedLimits
    draw: Callable[[str, int, int], Drawn]
    seed: int

    def first_load(self) -> float | None:
        """By steps from the rate of the fitted runs, then by bisection. What lies beyond these there is said on stderr."""
        known = {extent.what: extent.most for extent in self.simulated.model.hull}
        load = known.get(_HULL_RATE, 1.0)
        workload = _workload(self.draw(f"{load:.6g}", _STARTING_REQUESTS, self.seed))

        def holds(at: float) -> bool:
            there = replace(workload, arrivals=replace(workload.arrivals, rate_per_s=at))
            expected = self._expected(there, _STARTING_REQUESTS, (_RAMP, 1.0), _STARTING)
            return all(share <= limit.allowed for share, limit in zip(expected, self.limits.limits, strict=True))

        found = highest_held(holds, load)
        if found is not None:
            self._say_beyond(replace(workload, arrivals=replace(workload.arrivals, rate_per_s=found)), found)
        return found

    def _say_beyond(self, workload: _Workload, load: float) -> None:
        traffic = workload.draw(_STARTING_REQUESTS, self.seed)
        extents = extents_of_deployment(self.simulated.deployment, traffic, self._answers(traffic, self.seed))
        outside = beyond(self.simulated.model.hull, extents)
        if outside:
            text = f"{load:g} requests/s lies beyond what the model was fitted to: {'; '.join(outside)}. {_AS_SURE}"
            click.echo(printable(text), err=True)

    def controls(self, search: Search, planned: PlannedProbe) -> tuple[RecordedControl, ...]:
        """Empty of a probe with hardly a request in its steady part. Raises RunFolderError."""
        report = read_run(self.folder.run_folder(planned), ())
        kept = steady(report.requests, report.judged.load)
        if np.count_nonzero(kept) < _BLOCKS:
            return ()
        _, load = load_options(search, planned.load)
        own = self.draw(load, planned.requests, planned.seed)
        window = _window(report.requests, kept)
        measured = self._measured(report)
        simulated, shares = self._simulated(own.traffic, window, planned.seed)
        number = min(max(_SIMULATED // planned.requests, _FEWEST), _MOST)
        expected = self._expected(_workload(own), planned.requests, window, number, planned.seed)
        order = report.requests.index[kept]
        return tuple(
            RecordedControl(_blocks(of_run[kept]), _blocks(of_model[order]), float(share), float(mean))
            for of_run, of_model, share, mean in zip(measured, simulated, shares, expected, strict=True)
        )

    def _measured(self, report: RunReport) -> tuple[BoolArray, ...]:
        """Which requests are beyond each limit, shape [requests] each; failed ones are."""
        requests = report.requests
        times = (requests.scheduled_ns * _NS, requests.first_token_ns * _NS, requests.last_token_ns * _NS)
        tokens = np.nan_to_num(requests.output_tokens, nan=1.0).astype(np.int64)
        found = self.limits.beyond(Latencies.of_times(*times, tokens))
        return tuple(np.where(requests.done, each, True) for each in found)

    def _simulated(self, traffic: Traffic, window: tuple[float, float], seed: int) -> tuple[tuple[BoolArray, ...], FloatArray]:
        """Which requests are beyond each limit, and the share of those that are due in the window, shape [limits]. What is
        taken off a probe is this share of the requests that the limit counts in it.
        """
        arrivals_s, answers = traffic.arrivals_s, self._answers(traffic, seed)
        latencies = Latencies.of_times(arrivals_s, answers.first_s, answers.last_s, answers.output_tokens)
        begin, end = (float(arrivals_s[-1]) * share for share in window)
        return self.limits.beyond(latencies), self.limits.shares(latencies, (arrivals_s >= begin) & (arrivals_s <= end))

    def _answers(self, traffic: Traffic, seed: int) -> Answers:
        deployment, clients = self.simulated.deployment, OpenLoopClients(traffic.arrivals_s.tolist())
        check_room(deployment.server.admission, traffic)
        answers = compiled_answers(deployment, traffic, clients, seed, fewest_tokens=0)
        assert answers is not None, "numba is there, and an open loop is sent to one replica"
        return answers

    def _expected(
        self, workload: _Workload, requests: int, window: tuple[float, float], number: int, of_probe: int = 0
    ) -> FloatArray:
        """The mean share beyond each limit over schedules of other seeds than any probe's, shape [limits]."""
        seeds = np.random.default_rng([self.seed, of_probe]).integers(1 << 40, 1 << 50, number).tolist()
        shares: FloatArray = np.mean(
            [self._simulated(workload.draw(requests, seed), window, seed)[1] for seed in seeds], axis=0
        )
        return shares


def highest_held(holds: Callable[[float], bool], load: float) -> float | None:
    """The highest load that holds, about, from ``load`` on; None where none is found."""
    began, further = holds(load), load
    for _ in range(_STEPS):
        load, further = further, further * _STEP if began else further / _STEP
        if holds(further) != began:
            break
    else:
        return None
    low, high = sorted((load, further))
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return float(f"{low:.4g}")


def model_control(
    context: click.Context, folder: SearchFolder, search: Search, arguments: tuple[str, ...], model: Path
) -> ModelControl:
    """The simulation of the probes of ``search`` with the file ``model``. ``context`` is that of its command.

    Raises UsageError for traffic whose schedules are not drawn from a seed, and where nothing compiles the simulation, and
    SimulatorError for a model that does not fit.
    """
    if not can_compile():
        raise click.UsageError(
            "--model simulates millions of requests, which needs numba: pip install 'inflight-bench[simulate]'"
        )
    simulated = read_simulated(DeploymentOptions(model=model, draws=0), 1)
    if simulated.changes:
        edited = f"{simulated.name} was edited: {'; '.join(simulated.changes)}. {_AS_SURE}"
        click.echo(printable(edited), err=True)
    for tier in search.tiers:
        simulated_limits(tier)
    control = ModelControl(
        folder,
        simulated,
        SimulatedLimits(None, every_limit(sets_of(search))),
        lambda load, requests, seed: _prepared(context, simulated, arguments, (load, requests, seed)),
        search.seed,
    )
    _workload(control.draw("1", _BLOCKS, search.seed))
    return control


def _prepared(context: click.Context, simulated: Simulated, arguments: tuple[str, ...], probe: tuple[str, int, int]) -> Drawn:
    """The schedule that a ``probe`` of this load, requests and seed sends; what is said about it was said by the probe."""
    at, requests, seed = probe
    options_of_probe = ("--request_rate", at, "--num_requests", str(requests), "--seed", str(seed))
    found: list[Drawn] = []

    def carry_out(verb: str, options: MeasureOptions, load: Load, prepare_requests: PrepareRequests) -> int:
        prepared, of_schedule = prepared_traffic(simulated, options, load, prepare_requests)
        clients = of_schedule.clients()
        arrivals_s = clients.arrivals_s if isinstance(clients, OpenLoopClients) else []
        found.append(Drawn(prepared, replace(of_schedule.traffic, arrivals_s=np.array(arrivals_s))))
        return 0

    before = context.obj
    try:
        with redirect_stderr(io.StringIO()):
            invoke(context, (*arguments, *options_of_probe), carry_out)
    finally:
        context.obj = before
    return found[0]


def _workload(drawn: Drawn) -> _Workload:
    """Raises UsageError for a load that is no process of a seed."""
    load, workload = drawn.prepared.load, drawn.prepared.workload
    if (
        not isinstance(load, OpenLoop)
        or load.max_concurrency is not None
        or load.duration_s is not None
        or drawn.prepared.mixed.probes
        or not isinstance(load.arrivals, _Random)
    ):
        raise click.UsageError(
            f"--model: a model explains random arrivals at a rate that stays, in an open loop; this is {load}"
        )
    law, own, seed = workload.lengths, drawn.traffic, drawn.prepared.schedule.seed
    more = 0
    if law is not None:  # where prompts are not as long as drawn, their own lengths stay
        inputs, outputs = _drawn(law, 0, len(own), seed)
        more = int(own.input_tokens[0] - inputs[0])
        same = np.array_equal(own.output_tokens, outputs) and np.array_equal(own.input_tokens, inputs + more)
        law = law if same else None
    return _Workload(load.arrivals, own, law, more)


def _drawn(law: PairedLengths, more: int, requests: int, seed: int) -> tuple[IntArray, IntArray]:
    inputs, outputs = law.draw(requests, seed)
    return np.maximum(1, inputs + more), np.maximum(1, outputs)


def _window(requests: Requests, kept: BoolArray) -> tuple[float, float]:
    """Where the requests that count begin and end, as shares of the sending."""
    due_ns = requests.scheduled_ns
    span_ns = max(float(np.ptp(due_ns)), 1.0)
    begin, end = ((float(each) - float(due_ns.min())) / span_ns for each in (due_ns[kept].min(), due_ns[kept].max()))
    return begin, end


def _blocks(beyond: BoolArray) -> tuple[int, ...]:
    """How many requests are beyond the limit in each of equal parts."""
    starts = np.linspace(0, beyond.size, _BLOCKS + 1).astype(np.int64)[:-1]
    counts: list[int] = np.add.reduceat(beyond.astype(np.int64), starts).tolist()
    return tuple(counts)
