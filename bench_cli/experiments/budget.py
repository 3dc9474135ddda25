"""What the budget of a search holds, as far as that is certain before the first request."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

import click

from bench_cli.experiments.search_plan import (
    OVERHEAD_S,
    REQUESTS_OF_A_USER,
    closed_loop_s,
    closed_loop_timeout_s,
    closed_loop_users,
    needs_closed_loop,
)
from bench_records.search import Search
from reports.capacity.reading import option_names
from reports.capacity.result import LoadUnit
from reports.capacity.search import BLOCKS, FEWEST_REQUESTS
from reports.capacity.words import load_number, time_text

_MINUTE_S = 60.0
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a search that begins, ``seconds``. A closed loop sends for at most ``closed_loop_s`` of them, None where
    the clock does not end it, 0 where there is none; a probe takes ``probe_s`` or more.
    """

    seconds: float
    closed_loop_s: float | None
    probe_s: float

    @property
    def for_probes_s(self) -> float:
        """What remains for the probes at most."""
        return self.seconds - (self.closed_loop_s or 0.0)

    @property
    def holds_a_probe(self) -> bool:
        """Whether the search would make any probe."""
        return self.for_probes_s > self.probe_s

    @property
    def usual_probes_s(self) -> float:
        """What as many probes as a search usually makes take at least."""
        return BLOCKS * self.probe_s

    @property
    def enough_s(self) -> float:
        """A budget that holds as many probes, in whole minutes."""
        return _MINUTE_S * math.ceil((self.usual_probes_s + (self.closed_loop_s or 0.0)) / _MINUTE_S)


def budget_of(search: Search) -> Budget | None:
    """What the budget holds; None without one, and where the search has begun."""
    if search.budget_s is None or search.spent_s:
        return None
    sends_s: float | None = 0.0
    if needs_closed_loop(search) and search.model is None:
        sends_s = None if search.conversations else closed_loop_s(search)
    known = search.first_load if search.unit == LoadUnit.REQUESTS_PER_S else None
    return Budget(search.budget_s, sends_s, OVERHEAD_S + (FEWEST_REQUESTS / known if known else 0.0))


def check_budget(searches: Sequence[Search]) -> str | None:
    """Raises UsageError where the budget of ``searches``, one or one for each setting of a ranking, holds no probe of one.

    Returns a sentence where it hardly holds as many as a search usually makes, else None.
    """
    for search in searches:
        budget = budget_of(search)
        if budget is None or budget.seconds >= budget.enough_s:
            continue
        given, enough = (time_text(seconds * len(searches)) for seconds in (budget.seconds, budget.enough_s))
        share = "" if len(searches) == 1 else f" ({time_text(budget.seconds)} for each of {len(searches)} settings)"
        if not budget.holds_a_probe:
            raise click.UsageError(
                f"--budget {given}{share}: no probe can be made in it, since {_takes(budget)}; give {enough} or more"
            )
        sending = "beside their sending" if budget.probe_s == OVERHEAD_S else "with the fewest requests"
        return (
            f"The budget of {given}{share} is short: about {BLOCKS} probes, as many as a search usually makes, take about "
            f"{time_text(budget.usual_probes_s)} {sending}. {enough} would hold them."
        )
    return None


def _takes(budget: Budget) -> str:
    """What the budget goes to at least."""
    loop = f"the closed loop sends for {time_text(budget.closed_loop_s)}, and " if budget.closed_loop_s else ""
    sending_s = budget.probe_s - OVERHEAD_S
    sending = f", and its {FEWEST_REQUESTS} requests {time_text(sending_s)} at the first load" if sending_s else ""
    return f"{loop}a probe takes about {time_text(OVERHEAD_S)} beside its sending{sending}"


def budget_lines(search: Search) -> list[str]:
    """What goes to what, for the console."""
    budget = budget_of(search)
    if budget is None:
        return []
    goes = [*_before_probes(search, budget), f"at most {time_text(budget.for_probes_s)} remain for probes"]
    of_each = f"about {time_text(OVERHEAD_S)} beside its sending, and has {FEWEST_REQUESTS} requests or more"
    text = (
        f"What the budget of {time_text(budget.seconds)} holds: {'; '.join(goes)}. Each takes {of_each}{_first_fits(budget)}."
    )
    return wrap(text, _WIDTH)


def _before_probes(search: Search, budget: Budget) -> Iterator[str]:
    if "--url" not in option_names(search.arguments):
        yield "the start of the embedded pipeline takes some seconds, unless --url names a server"
    if budget.closed_loop_s is None:
        count = closed_loop_users(search) * REQUESTS_OF_A_USER
        yield f"the closed loop takes as long as {count:,} requests of whole conversations do"
    elif budget.closed_loop_s:
        waits = closed_loop_timeout_s(search)
        each = "as long as their time-out allows" if waits is None else f"at most {time_text(waits)} each"
        yield (
            f"the closed loop sends for at most {time_text(budget.closed_loop_s)}, and waits for the answers to its warm-up "
            f"and for its last ones, {each}"
        )


def _first_fits(budget: Budget) -> str:
    if budget.probe_s > OVERHEAD_S:
        return f", which take {time_text(budget.probe_s - OVERHEAD_S)} at first"
    return f", so that the first fits from {load_number(FEWEST_REQUESTS / (budget.for_probes_s - OVERHEAD_S))} requests/s on"
