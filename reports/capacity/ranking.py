"""The capacities of several settings ranked: which of them holds more load than which, and how sure all of that is together.

Each setting has a search of its own, at ``confidence_of_each``: all brackets are then right together with the confidence of the
ranking (Bonferroni). Where they are, a setting that is certified at a load at which another one is refused holds more, so each
difference that is shown is right, however many pairs there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports.capacity.answer import early_ends, named, searched
from reports.capacity.comparison import NamedSearch, Order, TierComparison, change_text
from reports.capacity.result import Capacity, Ended, LoadUnit, Tier
from reports.capacity.words import (
    bracket_text,
    certified_number,
    confidence_text,
    limits_text,
    load_number,
    refused_number,
    time_text,
)
from reports.render.plain_text import printable

_MOST_NAMES = 4  # in a sentence


@dataclass(frozen=True)
class Setting(NamedSearch):
    """A setting: its name, for example "max_num_tokens=512", and its search, in ``folder`` within that of the ranking."""

    folder: str


@dataclass(frozen=True)
class Ranking:
    """The searches of at least two settings, in the order in which these were given, for the same limits and load.

    In each tier the brackets of all settings are right together with probability ``confidence``. ``budget_s`` is that of all
    searches together, None: unlimited.
    """

    settings: tuple[Setting, ...]
    confidence: float
    budget_s: float | None

    @property
    def unit(self) -> LoadUnit:
        return self.settings[0].capacity.unit

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """The tiers of the first setting; every setting has the same, with brackets of its own."""
        return self.settings[0].capacity.tiers

    @property
    def requests(self) -> int:
        """Requests of all probes of all settings."""
        return sum(setting.capacity.requests for setting in self.settings)

    @property
    def probes(self) -> int:
        return sum(len(setting.capacity.probes) for setting in self.settings)

    @property
    def spent_s(self) -> float:
        """The time of all searches."""
        return sum(spent_s(setting.capacity) for setting in self.settings)


@dataclass(frozen=True)
class Place:
    """A setting's place in one tier: its ``rank`` is at least the first of the two, 1 for the best, and at most the second.

    It is shown to hold more than each of ``above``, and less than each of ``below``.
    """

    setting: Setting
    tier: Tier
    rank: tuple[int, int]
    above: tuple[Setting, ...]
    below: tuple[Setting, ...]


def spent_s(capacity: Capacity) -> float:
    """The time of a search, with what was between the probes where that is known."""
    return capacity.seconds if capacity.spent_s is None else capacity.spent_s


def confidence_of_each(confidence: float, settings: int) -> float:
    """The confidence of each of this many searches, with which all are right together with probability ``confidence``."""
    return 1.0 - (1.0 - confidence) / settings


def places(ranking: Ranking, number: int) -> tuple[Place, ...]:
    """The settings in the tier of this ``number``, the best first: by the load that is certified, then by the one that is
    refused. The first is shown to hold more than every setting of which that is shown of any.
    """
    tiers = [(setting, setting.capacity.tiers[number]) for setting in ranking.settings]
    return tuple(
        _place(setting, tier, [each for each in tiers if each[0] is not setting])
        for setting, tier in sorted(tiers, key=lambda each: _order(each[1]), reverse=True)
    )


def pairs(ranked: Sequence[Place]) -> tuple[tuple[Place, Place, TierComparison], ...]:
    """Each pair of settings, and the lower one (A) compared with the higher one (B)."""
    return tuple(
        (lower, higher, TierComparison(lower.tier, higher.tier)) for k, higher in enumerate(ranked) for lower in ranked[k + 1 :]
    )


def ranking_answer(ranking: Ranking) -> str:
    """The first line of every format: one sentence for each tier, and which searches ended early."""
    sentences = [named(tier, _sentence(ranking, number)) for number, tier in enumerate(ranking.tiers)]
    ends = [printable(f"{setting.name}: {text}") for setting in ranking.settings for text in early_ends(setting.capacity)]
    return " ".join([*sentences, *ends])


def ranking_cost(ranking: Ranking) -> str:
    """What was spent, and why no more."""
    ends = {setting.capacity.ended for setting in ranking.settings}
    count = f"{len(ranking.settings)} settings, {ranking.probes} {'probe' if ranking.probes == 1 else 'probes'}"
    spent = f"{count}, {ranking.requests:,} requests, {time_text(ranking.spent_s)}"
    if None in ends or Ended.INTERRUPTED in ends:
        how = "was stopped" if Ended.INTERRUPTED in ends else "has not ended"
        return f"{spent}: the search {how}; bench capacity --experiment_dir with this folder continues it."
    if Ended.TARGET_FAILED in ends:
        return f"{spent}: the target of a setting stopped answering; bench capacity --experiment_dir with this folder goes on."
    if Ended.BUDGET in ends and ranking.budget_s is not None:
        return f"{spent}: the budget of {time_text(ranking.budget_s)} is spent; a longer one goes on in the same folder."
    if ends == {Ended.PRECISE}:
        return f"{spent}: every bracket is as narrow as requested."
    if Ended.NOT_VALID in ends:
        return f"{spent}: the last probes of a setting cannot be believed."
    return f"{spent}: no further probe decides more."


def confidence_note(ranking: Ranking) -> str:
    """How the confidence is kept."""
    of_each = confidence_text(ranking.tiers[0].goal.confidence)
    return (
        f"The search of each setting has a confidence of {of_each}, so that all brackets are right together at "
        f"{confidence_text(ranking.confidence)}, and with them each difference that is shown."
    )


def rank_text(place: Place) -> str:
    """ "1", or "1 to 2" where it is not decided."""
    first, last = place.rank
    return str(first) if first == last else f"{first} to {last}"


def _place(setting: Setting, tier: Tier, others: Sequence[tuple[Setting, Tier]]) -> Place:
    orders = [(other, TierComparison(of_other, tier).order) for other, of_other in others]
    above = tuple(other for other, order in orders if order is Order.MORE)
    below = tuple(other for other, order in orders if order is Order.LESS)
    return Place(setting, tier, (1 + len(below), 1 + len(others) - len(above)), above, below)


def _order(tier: Tier) -> tuple[float, float]:
    """Larger for a better setting. A setting that is shown to hold more is certified at a load at which the other is refused,
    so it comes first.
    """
    certified, refused = tier.bracket.certified, tier.bracket.refused
    return (0.0 if certified is None else certified, math.inf if refused is None else refused)


def _sentence(ranking: Ranking, number: int) -> str:
    """What the best setting holds more than, and from which it is not shown to differ."""
    best, *others = places(ranking, number)
    limits = limits_text(searched(best.setting.capacity, best.tier).required)
    sure, unit = f"({confidence_text(ranking.confidence)})", ranking.unit
    less = [place for place in others if place.setting in best.above]
    alike = [place for place in others if place.setting not in best.above]
    if not less:
        shown = _and([f"{_name(place)} {_ends(place, unit)}" for place in (best, *alike)][:_MOST_NAMES])
        left_out = f"; {len(others) + 1 - _MOST_NAMES} more" if len(others) + 1 > _MOST_NAMES else ""
        return f"No setting is shown to hold more than another with {limits} {sure}, in {unit}: {shown}{left_out}."
    against = _several_ends(less, unit)
    shown = f"{_name(best)} holds more than {_names(less)} with {limits} {sure}: {_ends(best, unit)} against {against} {unit}"
    if len(others) == 1:
        return f"{shown}, a change of {change_text(TierComparison(less[0].tier, best.tier))}."
    if not alike:
        return f"{shown}."
    differ = "is not shown to differ" if len(alike) == 1 else "are not shown to differ"
    return f"{shown}; {_names(alike)} {differ}: {_several_ends(alike, unit)}."


def _name(place: Place) -> str:
    return printable(place.setting.name)


def _names(of: Sequence[Place]) -> str:
    return f"{len(of)} others" if len(of) > _MOST_NAMES else _and([_name(place) for place in of])


def _several_ends(of: Sequence[Place], unit: LoadUnit) -> str:
    """The bracket of each; of many that of the best."""
    return f"at best {_ends(of[0], unit)}" if len(of) > _MOST_NAMES else _and([_ends(place, unit) for place in of])


def _ends(place: Place, unit: LoadUnit) -> str:
    """A bracket in a sentence, without its unit."""
    bracket = place.tier.bracket
    if bracket.certified is None:
        return "unknown" if bracket.refused is None else f"less than {load_number(refused_number(bracket.refused, unit))}"
    if bracket.refused is None:
        return f"{load_number(certified_number(bracket.certified, unit))} or more"
    return bracket_text(bracket, unit).removesuffix(f" {unit}")


def _and(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
