"""Two searches for capacity compared: which target holds more load, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from reports.capacity.answer import searched
from reports.capacity.result import Capacity, LoadUnit, Tier
from reports.capacity.words import bracket_text, confidence_text, limits_text
from reports.criteria import Requirement
from reports.errors import NotComparableError
from reports.render.plain_text import printable


class Order(StrEnum):
    """Which of two loads is higher."""

    MORE = "B holds more"
    LESS = "B holds less"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class NamedSearch:
    """A search and the name of its folder."""

    name: str
    capacity: Capacity


@dataclass(frozen=True)
class TierComparison:
    """One set of limits in both searches."""

    a: Tier
    b: Tier

    @property
    def name(self) -> str | None:
        return self.a.name

    @property
    def least_change(self) -> float | None:
        """B's capacity over A's, less 1: at least this. None where B certified nothing, or A refused nothing."""
        certified, refused = self.b.bracket.certified, self.a.bracket.refused
        return None if certified is None or not refused else certified / refused - 1.0

    @property
    def most_change(self) -> float | None:
        """At most this; None where B refused nothing, or A certified nothing."""
        refused, certified = self.b.bracket.refused, self.a.bracket.certified
        return None if refused is None or not certified else refused / certified - 1.0

    @property
    def order(self) -> Order:
        """MORE where all that B's bracket holds is above A's, LESS where it is below."""
        if self.least_change is not None and self.least_change >= 0.0:
            return Order.MORE
        return Order.LESS if self.most_change is not None and self.most_change <= 0.0 else Order.UNDECIDED

    @property
    def confidence(self) -> float:
        """The least probability that both brackets are right (Bonferroni)."""
        return max(0.0, self.a.goal.confidence + self.b.goal.confidence - 1.0)


@dataclass(frozen=True)
class CapacityComparison:
    """Search ``b`` against search ``a``, tier by tier."""

    a: NamedSearch
    b: NamedSearch
    tiers: tuple[TierComparison, ...]

    @property
    def unit(self) -> LoadUnit:
        return self.a.capacity.unit

    @property
    def changed(self) -> bool:
        """Whether the two measured with other options."""
        return self.a.capacity.measured != self.b.capacity.measured


def compare_searches(a: NamedSearch, b: NamedSearch) -> CapacityComparison:
    """Compare ``b`` with ``a``. Raises NotComparableError where they looked for different things."""
    if a.capacity.unit is not b.capacity.unit:
        raise NotComparableError(
            f"{printable(a.name)} was searched in {a.capacity.unit}, {printable(b.name)} in {b.capacity.unit}: search both by "
            "the same load"
        )
    required = [{tier.name: _required(named.capacity, tier) for tier in named.capacity.tiers} for named in (a, b)]
    if required[0] != required[1]:
        texts = [_limits(found) for found in required]
        raise NotComparableError(
            f"{printable(a.name)} and {printable(b.name)} have different limits ({texts[0]} and {texts[1]}): search both with "
            "the same --slo"
        )
    of_b = {tier.name: tier for tier in b.capacity.tiers}
    return CapacityComparison(a, b, tuple(TierComparison(tier, of_b[tier.name]) for tier in a.capacity.tiers))


def verdict(comparison: CapacityComparison) -> str:
    """One sentence for each tier: which holds more, by how much, and how sure that is."""
    sentences = (_sentence(comparison, tier) for tier in comparison.tiers)
    return " ".join(
        sentence if tier.name is None else printable(f"{tier.name}: {sentence}")
        for tier, sentence in zip(comparison.tiers, sentences, strict=True)
    )


def change_text(tier: TierComparison) -> str:
    """The interval of the change: "+3 % to +34 %"; an unknown end is left out. Ends are rounded outwards, as loads are: what is
    shown was shown to hold.
    """
    least = None if tier.least_change is None else _signed(tier.least_change, math.floor)
    most = None if tier.most_change is None else _signed(tier.most_change, math.ceil)
    if least is None:
        return "unknown" if most is None else f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"


def both_confidence(tier: TierComparison) -> str:
    """How sure both brackets together are; of two searches at half the certainty or less nothing is sure together."""
    if tier.confidence > 0.0:
        return confidence_text(tier.confidence)
    a, b = (confidence_text(side.goal.confidence) for side in (tier.a, tier.b))
    return f"{a} and {b} each: too little for both"


def _sentence(comparison: CapacityComparison, tier: TierComparison) -> str:
    unit = comparison.unit
    brackets = f"{bracket_text(tier.b.bracket, unit)} against {bracket_text(tier.a.bracket, unit)}"
    sure = both_confidence(tier)
    limits = limits_text(searched(comparison.a.capacity, tier.a).required)
    a, b = printable(comparison.a.name), printable(comparison.b.name)
    match tier.order:
        case Order.UNDECIDED if tier.least_change is None and tier.most_change is None:
            return f"Undecided: no bracket shows whether {b} or {a} holds more with {limits} ({brackets})."
        case Order.UNDECIDED:
            return (
                f"Undecided: the brackets of {b} and {a} with {limits} overlap ({brackets}), so the change is "
                f"{change_text(tier)} ({sure}); a smaller --precision may decide."
            )
        case _:
            more = "more" if tier.order is Order.MORE else "less"
            return f"{b} holds {more} than {a} with {limits}: {brackets}, a change of {change_text(tier)} ({sure})."


def _signed(change: float, whole: Callable[[float], int]) -> str:
    """A change in per cent, rounded by ``whole`` to the whole, or to a tenth below 10 %."""
    tenths = round(1000.0 * change, 6)
    return f"{whole(tenths / 10.0):+,} %" if abs(tenths) >= 100.0 else f"{whole(tenths) / 10.0:+.1f} %"


def _required(capacity: Capacity, tier: Tier) -> tuple[tuple[Requirement, float], ...]:
    return tuple(zip(searched(capacity, tier).required, tier.goal.allowed, strict=True))


def _limits(tiers: dict[str | None, tuple[tuple[Requirement, float], ...]]) -> str:
    return "; ".join(
        printable(f"{'' if name is None else f'{name}: '}{', '.join(str(limit) for limit, _ in limits)}")
        for name, limits in tiers.items()
    )
