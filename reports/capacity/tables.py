"""The tables of a search for capacity, the same in every format."""

from __future__ import annotations

from pathlib import Path

from reports.capacity.answer import searched
from reports.capacity.result import Capacity, LoadUnit, ProbeRun, Tier
from reports.capacity.shares import share_interval
from reports.capacity.words import allowed_text, beyond_text, bracket_text, limits_text, load_number, share_text
from reports.render.plain_text import printable
from reports.render.tables import Cell, Quantity, Table, link_to

OVERLOADED = "overloaded"
_MOST_LIMITS = 4  # in the table for a terminal
_UNFOLDED = 12  # rows of a table of less interest


def tiers_table(capacity: Capacity) -> Table:
    """A row for each tier."""
    is_open = capacity.unit is LoadUnit.REQUESTS_PER_S
    return Table(
        "tiers",
        "Tiers",
        ("tier", "limits", f"{capacity.unit}", *(("users",) if is_open else ()), "goodput/s", "tokens/s", "decides"),
        tuple(
            (
                printable(tier.name or "all limits"),
                limits_text(searched(capacity, tier).required),
                bracket_text(tier.bracket, capacity.unit).removesuffix(f" {capacity.unit}"),
                *((_whole(tier.users),) if is_open else ()),
                None if tier.goodput is None else _load(tier.goodput),
                _whole(tier.output_token_throughput),
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
    return Table(
        "probes",
        "Probes",
        (
            *("probe", str(capacity.unit), "verdict", "requests", "s"),
            *(column for limit in capacity.limits for column in (f"{limit} beyond %", "95 %")),
            *("completed/s", "tokens/s", "validity", "findings"),
        ),
        tuple(
            (
                _linked(run, number),
                _load(run.probe.load),
                verdict_text(run),
                run.probe.requests,
                round(run.seconds),
                *(cell for k in range(len(capacity.limits)) for cell in _share(run, k)),
                run.request_throughput,
                _whole(run.output_token_throughput),
                "valid" if run.valid else "INVALID",
                ", ".join(run.findings),
            )
            for number, run in enumerate(capacity.probes, start=1)
        ),
        f"Beyond: {_limits_note(capacity)}. Requests include the ramp, which the shares leave out. Verdicts are those of all "
        "probes together. A probe links to the report of its run.",
    )


def terminal_table(capacity: Capacity) -> Table:
    """The same in at most 100 columns, by rising load: without intervals, and with the first limits alone."""
    limits = capacity.limits[:_MOST_LIMITS]
    return Table(
        "probes",
        "Probes",
        (str(capacity.unit), "verdict", "requests", "s", *(f"{limit.name} %" for limit in limits), "tokens/s", "findings"),
        tuple(
            (
                _load(run.probe.load),
                str(run.verdict),
                run.probe.requests,
                round(run.seconds),
                *(_share(run, k)[0] for k in range(len(limits))),
                _whole(run.output_token_throughput),
                ", ".join(_remarks(run)),
            )
            for run in sorted(capacity.probes, key=lambda run: run.probe.load)
        ),
        widths=(10, 9, 9, 6, *(11 for _ in limits), 9, max(12, 52 - 13 * len(limits))),
    )


def limits_note(capacity: Capacity) -> str:
    """What the percentages of the table for a terminal are, with the allowed shares."""
    return f"%: {_limits_note(capacity)}."


def commands_table(capacity: Capacity) -> Table:
    """A row for each probe: its run's folder, and the command that repeats it."""
    rows = tuple(
        (number, link_to(run.folder, Path(run.folder, "report.html")) if run.has_page else printable(run.folder), run.command)
        for number, run in enumerate(capacity.probes, start=1)
    )
    return Table("runs", "Runs and how to repeat them", ("probe", "run", "command"), rows, long=len(rows) > _UNFOLDED)


def verdict_text(run: ProbeRun) -> str:
    """The verdict on a probe's load, and whether it was overloaded."""
    return f"{run.verdict}, {OVERLOADED}" if run.probe.overloaded else str(run.verdict)


def _remarks(run: ProbeRun) -> tuple[str, ...]:
    states = ((OVERLOADED, run.probe.overloaded), ("INVALID", not run.valid))
    return (*(text for text, holds in states if holds), *run.findings)


def _limits_note(capacity: Capacity) -> str:
    """Each limit with the requests beyond it, and the share of them that is allowed."""
    allowed = {
        position: share for tier in capacity.tiers for position, share in zip(tier.goal.limits, tier.goal.allowed, strict=True)
    }
    texts = [f"requests {beyond_text(limit)} ({allowed_text(allowed[k])} allowed)" for k, limit in enumerate(capacity.limits)]
    return "; ".join(texts)


def _linked(run: ProbeRun, number: int) -> Cell:
    return link_to(str(number), Path(run.folder, "report.html")) if run.has_page else str(number)


def _load(load: float) -> Quantity:
    return Quantity(load, load_number(load))


def _whole(value: float | None) -> Quantity | None:
    return None if value is None else Quantity(value, f"{value:,.0f}")


def _share(run: ProbeRun, position: int) -> tuple[Cell, Cell]:
    """The share beyond a limit in per cent, with its interval."""
    violations = run.probe.violations[position]
    share, interval = violations.share, share_interval(violations)
    return (
        None if share is None else Quantity(100.0 * share, share_text(share).removesuffix(" %")),
        None if interval is None else " – ".join(share_text(end).removesuffix(" %") for end in interval),
    )
