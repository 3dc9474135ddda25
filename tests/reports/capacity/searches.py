"""Searches for capacity, made by hand: one for each shape, and for each end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench_records.search import RecordedForecast
from reports.capacity.probe import Probe, Violations
from reports.capacity.result import Capacity, Ended, LoadUnit, ProbeRun, Tier, verdict_of
from reports.capacity.search import Bracket, Curve, Goal, Shape
from reports.criteria import Requirement, parse_slo

N = 5_000


def limit(text: str) -> Requirement:
    found = parse_slo(text)
    assert isinstance(found, Requirement)
    return found


LIMITS = (limit("p99_ttft<=500ms"), limit("p99_tpot<=50ms"))
GOAL = Goal((0, 1), (0.01, 0.01))
SHARES = {100.0: 0.001, 130.0: 0.004, 142.0: 0.006, 151.0: 0.011, 165.0: 0.03}
SLOPE = 6.1
BRACKET = Bracket(
    curves=(Curve(Shape.CROSSING, -35.2, SLOPE, 151.0, 142.0, 165.0, 34.0), Curve(Shape.ALWAYS_HELD)),
    certified=142.3,
    refused=164.6,
    estimate=151.0,
    binding=0,
    shape=Shape.CROSSING,
    more_requests=54_000,
)


def probe_run(
    load: float, shares: Sequence[float], *, n: int = N, overloaded: bool = False, bracket: Bracket = BRACKET
) -> ProbeRun:
    violations = tuple(Violations(n, round(share * n), 1.0 if share == 0 else 4.0) for share in shares)
    return ProbeRun(
        probe=Probe(load, n + 200, violations, gave_up=overloaded),
        folder=f"probe-{load:g}",
        has_page=True,
        valid=True,
        command=f"bench dataset --request_rate {load:g}",
        verdict=verdict_of(load, bracket),
        seconds=n / load,
        request_throughput=load,
        output_token_throughput=20.0 * load,
        goodput=0.99 * load,
        e2e_mean_ms=270.0,
        findings=(),
    )


def capacity(
    bracket: Bracket = BRACKET,
    shares: dict[float, float] | None = None,
    *,
    limits: tuple[Requirement, ...] = LIMITS,
    overloaded: Sequence[float] = (),
    ended: Ended | None = Ended.BUDGET,
    unit: LoadUnit = LoadUnit.REQUESTS_PER_S,
) -> Capacity:
    """A search with one tier; ``shares`` are those beyond the first limit by load, the second is always met."""
    known = SHARES if shares is None else shares
    runs = tuple(
        probe_run(load, (share, 0.0)[: len(limits)], overloaded=load in overloaded, bracket=bracket)
        for load, share in known.items()
    )
    goal = replace(GOAL, limits=tuple(range(len(limits))), allowed=(0.01,) * len(limits))
    has = bracket.certified is not None
    tier = Tier(None, goal, bracket, 38.4 if has else None, 140.9 if has else None, 2_840.0 if has else None)
    return Capacity("dataset --num_requests 5000", unit, limits, (tier,), runs, ended, 900.0)


def flat(*, certified: float | None = 120.0, refused: float | None = None) -> Capacity:
    curve = Curve(Shape.FLAT, None, None, None, None, None, 120.0)
    bracket = Bracket((curve,), certified, refused, 150.0, 0, Shape.FLAT, None)
    shares = {110.0: 0.007, 130.0: 0.008, 145.0: 0.01, 170.0: 0.013}
    return capacity(bracket, shares, limits=(limit("p99_tpot<=30ms"),), ended=Ended.DECIDED_BY_NOTHING)


def cliff(*, certified: float | None = 142.0, refused: float | None = 165.0) -> Capacity:
    bracket = Bracket((Curve(Shape.CLIFF),), certified, refused, None, None, Shape.CLIFF, None)
    return capacity(bracket, {100.0: 0.0, 142.0: 0.0, 165.0: 0.4}, limits=LIMITS[:1], overloaded=[165.0], ended=Ended.PRECISE)


def not_monotone() -> Capacity:
    bracket = Bracket((Curve(Shape.NOT_MONOTONE),), None, None, None, None, Shape.NOT_MONOTONE, None)
    return capacity(bracket, {100.0: 0.002, 120.0: 0.021, 140.0: 0.004}, limits=LIMITS[:1], ended=Ended.DECIDED_BY_NOTHING)


def always_held() -> Capacity:
    bracket = Bracket((Curve(Shape.ALWAYS_HELD),), 400.0, None, None, None, Shape.ALWAYS_HELD, None)
    return capacity(bracket, {100.0: 0.0, 200.0: 0.0, 400.0: 0.0}, limits=LIMITS[:1], ended=Ended.NO_LIMIT)


def never_held(*, refused: float | None = 2.0) -> Capacity:
    bracket = Bracket((Curve(Shape.NEVER_HELD),), None, refused, None, 0, Shape.NEVER_HELD, None)
    return capacity(bracket, {4.0: 1.0, 2.0: 1.0}, limits=(limit("p99_ttft<=5ms"),), ended=Ended.NONE_HOLDS)


def unknown(*, ended: Ended | None = Ended.BUDGET, more: int | None = 81_000) -> Capacity:
    bracket = Bracket((Curve(Shape.UNKNOWN),), None, None, None, None, Shape.UNKNOWN, more)
    found = capacity(bracket, {100.0: 0.002, 160.0: 0.02}, limits=LIMITS[:1], ended=ended)
    return replace(found, budget_s=30.0)


def tiers() -> Capacity:
    found = capacity()
    (first,) = found.tiers
    other = replace(
        BRACKET, curves=BRACKET.curves[1:], certified=165.0, refused=None, estimate=None, binding=None, shape=Shape.ALWAYS_HELD,
        more_requests=None,
    )  # fmt: skip
    chat = replace(first, name="chat", goal=Goal((0,), (0.01,)), bracket=replace(BRACKET, curves=BRACKET.curves[:1]))
    return replace(found, tiers=(chat, replace(first, name="batch", goal=Goal((1,), (0.01,)), bracket=other)))


def forecasts() -> Capacity:
    """Two tiers, with forecasts after the last two probes."""
    made = {"probe-151": RecordedForecast((1.18, None), 40.0), "probe-165": RecordedForecast((1.157, None), 0.0)}
    return replace(tiers(), forecasts=made)


ALL = {
    "crossing": capacity(),
    "flat": flat(),
    "cliff": cliff(),
    "not monotone": not_monotone(),
    "always held": always_held(),
    "never held": never_held(),
    "unknown": unknown(),
    "tiers": tiers(),
    "users": capacity(unit=LoadUnit.USERS),
    "nothing": replace(unknown(), probes=()),
    "forecasts": forecasts(),
    **{f"ended {ended}": capacity(ended=ended) for ended in (*Ended, None)},
}
