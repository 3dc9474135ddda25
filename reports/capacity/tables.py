"""The tables of a search for capacity, the same in every format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reports.capacity.answer import searched
from reports.capacity.result import Capacity, LoadUnit, ProbeRun, Tier
from reports.capacity.shares import share_interval
from reports.capacity.words import (
    allowed_text,
    beyond_text,
    bracket_text,
    column_names,
    counted_text,
    limits_text,
    load_number,
    share_text,
)
from reports.criteria import Requirement
from reports.render.plain_text import printable
from reports.render.tables import Cell, Quantity, Table, link_to

OVERLOADED = "overloaded"
_MOST_LIMITS, _MOST_FINDINGS = 4, 2  # in the table for a terminal
_UNFOLDED = 12  # rows of a table of less interest


def tiers_table(capacity: Capacity) -> Table:
    """A row for each tier."""
    is_open = capacity.unit is not LoadUnit.USERS
    return Table(
        "tiers",
        "Tiers",
        ("tier", "limits", f"{capacity.unit}", *(("users",) if is_open else ()), "goodput/s", "tokens/s", "decides"),
        tuple(
            (
                printable(tier.name or "all limits"),
                limits_text(searched(capacity, tier).required),
                bracket_text(tier.bracket, capacity.unit).removesuffix(f" {capacity.unit}"),
                *((load_cell(tier.users),) if is_open else ()),
                load_cell(tier.goodput),
                load_cell(tier.output_token_throughput),
                _deciding(capacity, tier),
            )
            for tier in capacity.tiers
        ),
        "Loads: the highest that is certified to the lowest that is refused. Users are those at once at the certified load, by "
        "Little's law; goodput and tokens/s are those there.",
        widths=(14, 30, 14, *((7,) if is_open else ()), 9, 9, 10),
    )


def _deciding(capacity: Capacity, tier: Tier) -> str:
    return "" if tier.bracket.binding is None else searched(capacity, tier).required[tier.bracket.binding].name


def probes_table(capacity: Capacity) -> Table:
    """A row for each probe, in the order of their runs: its load, verdict, the share beyond each limit, and its findings."""
    remarks = [_remarks(run) for run in capacity.probes]
    has_remarks = any(remarks)
    return Table(
        "probes",
        "Probes",
        (
            *(str(capacity.unit), "verdict", "requests", "s", *(f"{name} beyond, %" for name in column_names(capacity.limits))),
            *("tokens/s", *(("findings",) if has_remarks else ())),
        ),
        tuple(
            (
                _linked(run),
                str(run.verdict),
                run.probe.requests,
                round(run.seconds),
                *(_share_with_interval(run, k) for k in range(len(capacity.limits))),
                load_cell(run.output_token_throughput),
                *((", ".join(texts),) if has_remarks else ()),
            )
            for run, texts in zip(capacity.probes, remarks, strict=True)
        ),
        f"Beyond: {_limits_note(capacity)}, with the 95 % interval of this probe alone. Requests include the ramp, which the "
        f"shares leave out. A verdict is that of all probes together{_on_first_tier(capacity)}. A load links to the report of "
        "its run.",
    )


def terminal_table(capacity: Capacity) -> Table:
    """The same in at most 100 columns, by rising load: without intervals, and with the first limits alone."""
    limits = capacity.limits[:_MOST_LIMITS]
    return Table(
        "probes",
        "Probes",
        (str(capacity.unit), "verdict", "requests", "s", *_limit_columns(capacity, limits), "tokens/s", "findings"),
        tuple(
            (
                _load(run.probe.load),
                str(run.verdict),
                run.probe.requests,
                round(run.seconds),
                *(_share(run, k) for k in range(len(limits))),
                load_cell(run.output_token_throughput),
                _shortened(_remarks(run)),
            )
            for run in sorted(capacity.probes, key=lambda run: run.probe.load)
        ),
        widths=(10, 9, 9, 6, *(11 for _ in limits), 9, max(12, 52 - 13 * len(limits))),
    )


def _limit_columns(capacity: Capacity, limits: Sequence[Requirement]) -> Iterator[str]:
    """Narrow names of the columns of ``limits``; those of one name are distinguished below it."""
    for limit, name in zip(limits, column_names(capacity.limits), strict=False):
        yield " ".join(filter(None, (limit.name, name.removeprefix(limit.name), "%")))


def limits_note(capacity: Capacity) -> str:
    """What the percentages of the table for a terminal are, with the allowed shares, and which set its verdicts are on."""
    on_tier = _on_first_tier(capacity)
    return f"%: {_limits_note(capacity)}.{on_tier and f' Verdicts are those{on_tier}.'}"


def _on_first_tier(capacity: Capacity) -> str:
    """Which set of limits a verdict is on; "" where there is one alone."""
    return f" on the limits of {printable(capacity.tiers[0].name or '')}" if len(capacity.tiers) > 1 else ""


def commands_table(capacity: Capacity) -> Table:
    """A row for each probe: its run's folder, and the command that repeats it."""
    rows = tuple(
        (
            link_to(printable(run.folder), Path(run.folder, "report.html")) if run.has_page else printable(run.folder),
            printable(run.command),
        )
        for run in capacity.probes
    )
    return Table("runs", "Runs and how to repeat them", ("run", "command"), rows, long=len(rows) > _UNFOLDED)


def _remarks(run: ProbeRun) -> tuple[str, ...]:
    """Its states that matter beside its numbers, and its findings."""
    states = ((OVERLOADED, run.probe.overloaded), ("INVALID", not run.valid))
    return (*(text for text, holds in states if holds), *run.findings)


def _limits_note(capacity: Capacity) -> str:
    """Each limit with the requests beyond it, and the share of them that is allowed."""
    allowed = {
        position: share for tier in capacity.tiers for position, share in zip(tier.goal.limits, tier.goal.allowed, strict=True)
    }
    texts = [
        f"{counted_text(limit)} {beyond_text(limit)} ({allowed_text(allowed[k])} allowed)"
        for k, limit in enumerate(capacity.limits)
    ]
    return "; ".join(texts)


def _shortened(texts: tuple[str, ...]) -> str:
    """The first of them, and how many more there are."""
    more = len(texts) - _MOST_FINDINGS
    return ", ".join(texts[:_MOST_FINDINGS]) + (f", {more} more" if more > 0 else "")


def _linked(run: ProbeRun) -> Cell:
    return link_to(f"{run.probe.load:.6g}", Path(run.folder, "report.html")) if run.has_page else _load(run.probe.load)


def _load(load: float) -> Quantity:
    """As exact as it was sent."""
    return Quantity(load, f"{load:,.4g}" if load < 1_000 else f"{load:,.0f}")


def load_cell(value: float | None) -> Quantity | None:
    """A load, or another number of a tier, to three digits."""
    return None if value is None else Quantity(value, load_number(value))


def _share(run: ProbeRun, position: int) -> Quantity | None:
    """The share beyond a limit in per cent."""
    share = run.probe.violations[position].share
    return None if share is None else Quantity(100.0 * share, _number(share))


def _share_with_interval(run: ProbeRun, position: int) -> Quantity | None:
    """The same with its interval, where that is known."""
    share, interval = _share(run, position), share_interval(run.probe.violations[position])
    if share is None or interval is None:
        return share
    return Quantity(share.value, f"{share.text} ({' – '.join(map(_number, interval))})")


def _number(share: float) -> str:
    return share_text(share).removesuffix(" %")
