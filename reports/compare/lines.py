"""What differs between the settings of two sides, in lines for people: one for each setting, or for a whole section."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reports.compare.comparable import ABSENT, Disagreement, Weight

_LONG = 60  # characters of the values of one side, of which more are not listed
_SHORT = 20  # characters of a value that shows nothing alone, such as a seed or digest: these are counted
_FEW = 2
_DIGEST = re.compile(r"[0-9a-f]{40,}")
_DIGEST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Line:
    """``what`` is a setting, or a section that one side lacks; ``sides`` are its values, A's and B's. ``common`` says how many
    values both have, where these are only counted, and else "".
    """

    what: str
    weight: Weight
    sides: tuple[str, str]
    common: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: {' | '.join(self.sides)}{self.common}"


@dataclass(frozen=True, slots=True)
class Group:
    """Lines of one weight that have the same advice."""

    weight: Weight
    lines: tuple[Line, ...]
    advice: str


def groups(found: Sequence[Disagreement]) -> tuple[Group, ...]:
    """The lines of the disagreements, in the order of each group's first."""
    by_advice: dict[tuple[Weight, str], list[Line]] = {}
    for line in lines(found):
        by_advice.setdefault((line.weight, line.advice), []).append(line)
    return tuple(Group(weight, tuple(alike), advice) for (weight, advice), alike in by_advice.items())


def lines(found: Sequence[Disagreement]) -> tuple[Line, ...]:
    """One line for each disagreement, but one for all of a section of which one side has nothing; JSON has each."""
    by_section: dict[tuple[str, Weight, str], list[Disagreement]] = {}
    for disagreement in found:
        key = (disagreement.section or disagreement.what, disagreement.weight, disagreement.advice)
        by_section.setdefault(key, []).append(disagreement)
    return tuple(_line(alike[0] if len(alike) == 1 else _as_one(alike)) for alike in by_section.values())


def _as_one(section: Sequence[Disagreement]) -> Disagreement:
    """The section as a disagreement, with the number of its settings that each run has."""
    first = section[0]
    a, b = (
        tuple(_count(sum(value != ABSENT for value in of_run), first.weight) for of_run in zip(*side, strict=True))
        for side in zip(*(disagreement.sides for disagreement in section), strict=True)
    )
    return Disagreement(first.section, first.weight, (a, b), first.advice)


def _count(settings: int, weight: Weight) -> str:
    if not settings:
        return "none" if weight is Weight.REFUSE else "not known"  # what was asked is always known
    return "1 value" if settings == 1 else f"{settings} values"


def _line(disagreement: Disagreement) -> Line:
    a, b = (tuple(map(_shown, side)) for side in disagreement.sides)
    counted = any(not _is_listed(side) and _are_short(side) for side in (a, b))
    common = f", {len({*a} & {*b}) or 'none'} in common" if counted else ""
    return Line(disagreement.what, disagreement.weight, (_side_text(a), _side_text(b)), common, disagreement.advice)


def _shown(value: str) -> str:
    return value[:_DIGEST_SHOWN] if _DIGEST.fullmatch(value) else value


def _side_text(values: Sequence[str]) -> str:
    """The values, each once. Where they would fill a line, their number; of long ones, such as sentences, the first, too."""
    if _is_listed(values):
        return _listed(values)
    different = len(set(values))
    if _are_short(values):
        return f"{different} different"
    return f"{next(value for value in values if value != ABSENT)}; {different - 1} other values"


def _is_listed(values: Sequence[str]) -> bool:
    return len(set(values)) <= _FEW or len(_listed(values)) <= _LONG


def _are_short(values: Sequence[str]) -> bool:
    return max(map(len, values)) <= _SHORT


def _listed(values: Sequence[str]) -> str:
    counts = Counter(values)
    return "; ".join(value if count == 1 else f"{value} (× {count})" for value, count in counts.items())
