"""What ``bench size`` does where a measuring verb would measure: simulate its workload with more and fewer replicas."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stderr
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil
from statistics import median

import click
import numpy as np

from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.output_options import CriteriaOptions, OutputOptions
from bench_cli.measurement.prepare import PrepareRequests
from bench_cli.simulate.carry_out import check_options, prepared_traffic
from bench_cli.simulate.deployment import Simulated
from bench_cli.simulate.limits import SimulatedLimits, check_shown, simulated_limits
from bench_cli.simulate.size_text import Draws, SizedTier, shown_factors, size_text
from bench_cli.simulate.traffic import SimulatedTraffic
from bench_errors import ExitStatus
from bench_records.search import PlannedTier
from reports.render.counts import counted
from reports.render.plain_text import printable
from simulator.figures import LatencyFactors, drawn_server, latency_factors
from simulator.hull import beyond, extents_of_deployment
from simulator.simulation import simulate_deployment
from simulator.sizing import Sizing, highest_factor, size
from workloads.schedule.load import Load
from workloads.schedule.schedule import Schedule

_SCHEDULES = 8  # of different seeds, over which the draws are dealt
_RATE_DRAWS = 5  # from which the rates that replicas hold are taken
_SLOWEST, _FASTEST, _RATIO = 0.5, 3.0, 1.02  # of the workload's rate


@dataclass(frozen=True)
class Size:
    """A question to answer for the workload of a measuring verb; ``draws`` may be more than the model has, which are then used
    again with other errors and schedules.
    """

    simulated: Simulated
    tiers: Sequence[PlannedTier]
    confidence: float
    draws: int
    most: int

    def carry_out(self, verb: str, options: MeasureOptions, load: Load, prepare_requests: PrepareRequests) -> int:
        """Size the deployment for each set of limits, print the answers, and return the exit status."""
        for name in options.given("slo", "fail_if"):
            raise click.UsageError(f"--{name} after the verb judges a run, and no run is made here: give --slo before the verb")
        check_options(options, OutputOptions, CriteriaOptions)
        limits = [simulated_limits(tier) for tier in self.tiers]
        traffics = self._traffics(options, load, prepare_requests)
        is_load = traffics[0].is_load
        check_shown(limits, traffics[0].traffic.output_tokens[is_load])
        requests = int(np.count_nonzero(is_load))
        times = counted(self.draws, "time")
        click.echo(f"Simulating {counted(requests, 'request')}, {load}, {times} for each number.", err=True)
        for sentence in _too_few(limits, requests):
            click.echo(sentence, err=True)
        tiers = [self._tier(each, traffics) for each in limits]
        draws = Draws(self.draws, min(self.draws, len(self.simulated.model.draws)), _different(traffics))
        click.echo(size_text(tiers, self.confidence, draws))
        return ExitStatus.VALID if all(tier.sizing.replicas is not None for tier in tiers) else ExitStatus.FAILED

    def _traffics(self, options: MeasureOptions, load: Load, prepare_requests: PrepareRequests) -> tuple[SimulatedTraffic, ...]:
        """The workload with seeds of its own; what is said about it is said once."""
        found = []
        for number in range(min(_SCHEDULES, self.draws)):
            again = replace(options, traffic=replace(options.traffic, seed=options.traffic.seed + number))
            with redirect_stderr(io.StringIO()) if number else nullcontext():
                found.append(prepared_traffic(self.simulated, again, load, prepare_requests)[1])
        return tuple(found)

    def _tier(self, limits: SimulatedLimits, traffics: Sequence[SimulatedTraffic]) -> SizedTier:
        factors = latency_factors(self.simulated.model, self.draws, seed=traffics[0].schedule.seed)

        @cache
        def values(replicas: int, draw: int, faster: float = 1.0) -> tuple[float, ...]:
            return self._values(limits, traffics[draw % len(traffics)], factors[draw], (replicas, draw, faster))

        def holds(replicas: int, draw: int, faster: float = 1.0) -> bool:
            return max(values(replicas, draw, faster)) <= 1.0

        sizing = size(holds, self.draws, self.most, self.confidence)
        number = sizing.replicas or self.most
        reached = {n: [values(n, draw) for draw in range(self.draws)] for n in (number - 1, number) if n >= 1}
        factors_held = self._factors_held(number, sizing, holds, traffics[0])
        rates, outside = {n: median(of) for n, of in factors_held.items()}, self._beyond(number, traffics[0])
        elsewhere = {} if outside else self._beyond_elsewhere(sizing, rates, traffics[0])
        changes = tuple(map(printable, self.simulated.changes))
        held_per_s = _held_per_s(factors_held.get(number, ()), traffics)
        return SizedTier(limits, sizing, reached, (*changes, *outside), rates, held_per_s, elsewhere)

    def _factors_held(
        self, number: int, sizing: Sizing, holds: Callable[[int, int, float], bool], traffic: SimulatedTraffic
    ) -> dict[int, tuple[float, ...]]:
        """How much faster the workload may arrive at these replicas, and at one more, in each of some draws: no less than at
        fewer, which chance may show. Empty where answers decide when.
        """
        if sizing.replicas is None or not isinstance(traffic.schedule, Schedule):
            return {}

        def factors(replicas: int) -> tuple[float, ...]:
            draws = range(min(_RATE_DRAWS, self.draws))
            return tuple(highest_factor(partial(holds, replicas, draw), _SLOWEST, _FASTEST, _RATIO) for draw in draws)

        here, there = factors(number), factors(number + 1)
        return {number: here, number + 1: tuple(map(max, here, there))}

    def _values(
        self, limits: SimulatedLimits, traffic: SimulatedTraffic, factors: LatencyFactors, at: tuple[int, int, float]
    ) -> tuple[float, ...]:
        """What each limit reaches over the limit: above 1 it does not hold."""
        replicas, draw, faster = at
        model = self.simulated.model
        server = drawn_server(model, draw, likely=1.0) if model.draws else model.server
        deployment = replace(self.simulated.deployment, server=server, replicas=replicas)
        answers = simulate_deployment(deployment, traffic.traffic, traffic.clients(faster), draw)
        return limits.reached(*traffic.of_load(answers, faster), factors)

    def _beyond(self, replicas: int, traffic: SimulatedTraffic, faster: float = 1.0) -> tuple[str, ...]:
        deployment = replace(self.simulated.deployment, replicas=replicas)
        answers = simulate_deployment(deployment, traffic.traffic, traffic.clients(faster), 0)
        outside = beyond(self.simulated.model.hull, extents_of_deployment(deployment, traffic.traffic, answers))
        return tuple(map(printable, outside))

    def _beyond_elsewhere(
        self, sizing: Sizing, rates: Mapping[int, float], traffic: SimulatedTraffic
    ) -> dict[str, tuple[str, ...]]:
        """What lies beyond the fitted runs with one replica fewer, where that is not excluded, and at the rate that is held."""
        number, found = sizing.replicas or sizing.most, {}
        if sizing.lowest < number:
            found[f"The load of {counted(number - 1, 'replica')}"] = self._beyond(number - 1, traffic)
        factors = shown_factors(number, rates)
        if factors is not None:
            found[f"The rate that {counted(number, 'replica')} hold{'s' * (number == 1)}"] = self._beyond(
                number, traffic, factors[0]
            )
        return found


def _different(traffics: Sequence[SimulatedTraffic]) -> int:
    """How many of them differ in what a simulation knows. A trace has its own times and lengths, whatever the seed."""
    return len({traffic.shape for traffic in traffics})


def _too_few(sets: Sequence[SimulatedLimits], requests: int) -> list[str]:
    """For each limit that so few requests make one of the slowest alone how many it takes, a sentence each."""
    needed = {str(limit.requirement): ceil(1.0 / limit.allowed) for each in sets for limit in each.limits}
    return [
        f"--slo {name}: of {counted(requests, 'request')} it limits the slowest; give {fewest:,} or more (--num_requests)."
        for name, fewest in needed.items()
        if requests < fewest
    ]


def _held_per_s(factors: Sequence[float], traffics: Sequence[SimulatedTraffic]) -> float | None:
    """The median requests a second that are held, where each draw holds its schedule's rate times its factor: schedules of few
    requests differ in their rates. None where there are no factors, or a schedule has no rate.
    """
    rates = [_rate_per_s(traffic) for traffic in traffics[: len(factors)]]
    known = [factor * rate for factor, rate in zip(factors, rates, strict=True) if rate is not None]
    return median(known) if known and len(known) == len(factors) else None


def _rate_per_s(traffic: SimulatedTraffic) -> float | None:
    """The requests of the load a second; None where answers decide the arrivals."""
    if not isinstance(traffic.schedule, Schedule):
        return None
    offsets_ns = np.array(traffic.schedule.offsets_ns)[traffic.is_load]
    seconds = float(np.ptp(offsets_ns)) / 1e9
    return (offsets_ns.size - 1) / seconds if seconds else None
