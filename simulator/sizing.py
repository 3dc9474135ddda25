"""How many replicas hold a workload, over draws of what is not known of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median_high

Holds = Callable[[int, int], bool]
"""Whether a number of replicas holds the workload in a draw. More replicas are taken to hold what fewer do, where that is not
simulated: a router may deal a schedule worse to one more.
"""


@dataclass(frozen=True)
class Sizing:
    """``least`` is the smallest number of replicas that holds in each draw, None where ``most`` do not.

    ``replicas`` hold with the required confidence, by all draws with them, None where ``most`` do not; ``lowest`` is the
    smallest number that cannot be excluded with it.
    """

    least: tuple[int | None, ...]
    most: int
    replicas: int | None
    lowest: int

    def held(self, replicas: int) -> int:
        """The number of draws in which ``replicas`` hold, or fewer do."""
        return sum(least is not None and least <= replicas for least in self.least)

    def confidence(self, replicas: int) -> float:
        """The probability that they hold in a further draw, by the rule of succession (Laplace): (held + 1) / (draws + 2)."""
        return confidence(self.held(replicas), len(self.least))


def confidence(held: int, draws: int) -> float:
    """The probability that the next draw holds, where ``held`` of ``draws`` did, if nothing else is known (Laplace); or that it
    does not, by the number of those that did not.
    """
    return (held + 1) / (draws + 2)


def draws_needed(required: float) -> int:
    """The fewest draws that can give this confidence."""
    draws = 0
    while confidence(draws, draws) < required:
        draws += 1
    return draws


def size(holds: Holds, draws: int, most: int, required: float) -> Sizing:
    """The number of replicas that holds with the confidence ``required``, at most ``most``; ``draws`` are at least 1."""
    least: list[int | None] = []
    for draw in range(draws):
        known = [found for found in least if found is not None]
        least.append(_least(holds, draw, median_high(known) if known else 1, most))
    sizing = Sizing(tuple(least), most, None, most)
    numbers = sorted({1, *(found for found in least if found is not None)})
    seems = next((number for number in numbers if sizing.confidence(number) >= required), None)
    held = None if seems is None else _confirmed(holds, draws, range(seems, most + 1), required)
    failed = {number: draws - sizing.held(number) for number in numbers}
    lowest = next((number for number, count in failed.items() if confidence(count, draws) < required), most)
    return Sizing(tuple(least), most, held, lowest if held is None else min(lowest, held))


def _confirmed(holds: Holds, draws: int, numbers: Iterable[int], required: float) -> int | None:
    """The first of the ``numbers`` that itself holds in enough draws."""
    held = ((number, sum(holds(number, draw) for draw in range(draws))) for number in numbers)
    return next((number for number, count in held if confidence(count, draws) >= required), None)


def _least(holds: Holds, draw: int, guess: int, most: int) -> int | None:
    """The smallest number that holds: steps that double from ``guess``, then halves."""
    step, number = 1, guess
    if holds(number, draw):
        above = number
        while number > 1:
            number = max(1, number - step)
            if not holds(number, draw):
                return _between(holds, draw, number, above)
            above, step = number, 2 * step
        return above
    while number < most:
        below, number = number, min(most, number + step)
        if holds(number, draw):
            return _between(holds, draw, below, number)
        step *= 2
    return None


def _between(holds: Holds, draw: int, below: int, above: int) -> int:
    """The smallest number that holds, where ``below`` does not and ``above`` does."""
    while above - below > 1:
        middle = (below + above) // 2
        if holds(middle, draw):
            above = middle
        else:
            below = middle
    return above


def highest_factor(holds_at: Callable[[float], bool], low: float, high: float, ratio: float) -> float:
    """The highest factor of the rate that holds, within ``ratio``, between ``low`` and ``high``; these where it is beyond."""
    if not holds_at(low):
        return low
    if holds_at(high):
        return high
    while high / low > ratio:
        middle = (low * high) ** 0.5
        if holds_at(middle):
            low = middle
        else:
            high = middle
    return low
