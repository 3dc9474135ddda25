"""The capacities of several settings, ranked, as a document, as JSON and as rows of CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from reports.capacity.answer import answer, searched
from reports.capacity.comparison import Order, TierComparison, change_text
from reports.capacity.ranking import (
    Place,
    Ranking,
    Setting,
    confidence_note,
    pairs,
    places,
    rank_text,
    ranking_answer,
    ranking_cost,
    spent_s,
)
from reports.capacity.result import LoadUnit, Tier
from reports.capacity.search import Shape
from reports.capacity.tables import load_cell
from reports.capacity.words import bracket_text
from reports.render.document import Block, Document, Heading, Paragraph
from reports.render.plain_text import printable, spreadsheet_text
from reports.render.tables import Table, link_to

SCHEMA = 1
_COLUMNS = (
    *("setting", "folder", "tier", "unit", "rank_best", "rank_worst", "certified", "refused", "estimate"),
    *("users", "goodput", "output_token_throughput", "requests"),
)


def terminal_document(ranking: Ranking) -> Document:
    """The document for a terminal, in at most 100 columns."""
    return (*_opening(ranking), *_tables(ranking), *_closing(ranking))


def full_document(ranking: Ranking) -> Document:
    """The document for a pull request, with the differences and the settings."""
    title = Heading(f"Capacity of {len(ranking.settings)} settings")
    differences = (pairs_table(ranking, number) for number in range(len(ranking.tiers)))
    tables = (*_tables(ranking), *differences, settings_table(ranking))
    return (title, *_opening(ranking), *tables, *_closing(ranking))


def ranking_table(ranking: Ranking, number: int) -> Table:
    """A row for each setting in the tier of this ``number``, the best first."""
    unit, tier = ranking.unit, ranking.tiers[number]
    is_open = unit is not LoadUnit.USERS
    ranked = places(ranking, number)
    row_of = {place.setting.name: row for row, place in enumerate(ranked, start=1)}
    return Table(
        f"ranking-{number + 1}",
        "Ranking" if tier.name is None else printable(f"Ranking: {tier.name}"),
        ("", "setting", f"{unit}", "estimate", "rank", "more than", *(("users",) if is_open else ()), "goodput/s", "tokens/s"),
        tuple(
            (
                row,
                link_to(printable(place.setting.name), Path(place.setting.folder, "capacity.html")),
                bracket_text(place.tier.bracket, unit).removesuffix(f" {unit}"),
                load_cell(place.tier.bracket.estimate),
                rank_text(place),
                _rows_text(sorted(row_of[other.name] for other in place.above)),
                *((load_cell(place.tier.users),) if is_open else ()),
                load_cell(place.tier.goodput),
                load_cell(place.tier.output_token_throughput),
            )
            for row, place in enumerate(ranked, start=1)
        ),
        "Loads: the highest that is certified to the lowest that is refused. Estimate: the likeliest load between them. Rank: "
        "the places that the setting may have. More than: the rows of the settings that it is shown to hold more than. The "
        "other numbers are those at the certified load.",
        widths=(3, 26, 14, 9, 7, 10, *((6,) if is_open else ()), 9, 8),
    )


def pairs_table(ranking: Ranking, number: int) -> Table:
    """A row for each pair of settings: by how much the one that is placed higher holds more."""
    tier = ranking.tiers[number]
    rows = tuple(
        (printable(higher.setting.name), printable(lower.setting.name), change_text(of_both), _shown(of_both))
        for lower, higher, of_both in pairs(places(ranking, number))
    )
    return Table(
        f"pairs-{number + 1}",
        "Differences" if tier.name is None else printable(f"Differences: {tier.name}"),
        ("setting", "against", "change", "verdict"),
        rows,
        "The change of the load that is held. All are right together at the confidence of the ranking.",
        long=len(rows) > len(ranking.settings),
    )


def settings_table(ranking: Ranking) -> Table:
    """A row for each setting, in the order in which they were given: what its search took, and what it measured."""
    return Table(
        "settings",
        "Settings",
        ("setting", "probes", "requests", "s", "command"),
        tuple(
            (
                link_to(printable(setting.name), Path(setting.folder, "capacity.html")),
                len(setting.capacity.probes),
                setting.capacity.requests,
                round(spent_s(setting.capacity)),
                printable(f"bench {setting.capacity.measured}"),
            )
            for setting in ranking.settings
        ),
        "A setting links to the page of its search, with every probe.",
    )


def ranking_document(ranking: Ranking) -> dict[str, object]:
    """The JSON document; an unknown value is null."""
    return {
        "schema": SCHEMA,
        "answer": ranking_answer(ranking),
        "cost": ranking_cost(ranking),
        "unit": ranking.unit.value,
        "confidence": ranking.confidence,
        "budget_s": ranking.budget_s,
        "requests": ranking.requests,
        "spent_s": ranking.spent_s,
        "settings": [_setting(setting) for setting in ranking.settings],
        "tiers": [_tier(ranking, number) for number in range(len(ranking.tiers))],
    }


def csv_rows(ranking: Ranking) -> Iterator[Sequence[object]]:
    """The rows of the CSV file: the names of the columns, then one for each tier and setting, the best first."""
    yield _COLUMNS
    for number in range(len(ranking.tiers)):
        yield from (_row(ranking, place) for place in places(ranking, number))


def setting_answers(ranking: Ranking, shown: Callable[[Tier], bool] = lambda tier: True) -> tuple[str, ...]:
    """The answer of each setting's own search, at the confidence of that search, where some tier is to be ``shown``."""
    return tuple(
        printable(f"{setting.name}: {answer(setting.capacity)}")
        for setting in ranking.settings
        if any(map(shown, setting.capacity.tiers))
    )


def _row(ranking: Ranking, place: Place) -> list[object]:
    setting, tier = place.setting, place.tier
    return [
        spreadsheet_text(setting.name),
        spreadsheet_text(setting.folder),
        None if tier.name is None else spreadsheet_text(tier.name),
        ranking.unit.value,
        *place.rank,
        *tier.numbers.values(),
        setting.capacity.requests,
    ]


def _opening(ranking: Ranking) -> tuple[Block, ...]:
    return (Paragraph(ranking_answer(ranking), is_answer=True),)


def _tables(ranking: Ranking) -> Document:
    """A table for each tier, under its name where there are several."""
    return tuple(
        block
        for number, tier in enumerate(ranking.tiers)
        for block in (
            *((Paragraph(printable(f"{tier.name}:")),) if tier.name is not None else ()),
            ranking_table(ranking, number),
        )
    )


def _closing(ranking: Ranking) -> tuple[Block, ...]:
    note = Paragraph(ranking_table(ranking, 0).note)
    remarks = (Paragraph(text) for text in setting_answers(ranking, lambda tier: not _is_plain(tier)))
    return (note, *remarks, Paragraph(f"{ranking_cost(ranking)} {confidence_note(ranking)}"))


def _is_plain(tier: Tier) -> bool:
    """Whether the table says all that the answer does."""
    return tier.bracket.shape is Shape.CROSSING and tier.bracket.ratio is not None


def _setting(setting: Setting) -> dict[str, object]:
    capacity = setting.capacity
    return {
        "name": setting.name,
        "folder": setting.folder,
        "measured": capacity.measured,
        "answer": answer(capacity),
        "ended": None if capacity.ended is None else capacity.ended.name.lower(),
        "probes": len(capacity.probes),
        "requests": capacity.requests,
        "spent_s": spent_s(capacity),
    }


def _tier(ranking: Ranking, number: int) -> dict[str, object]:
    tier, ranked = ranking.tiers[number], places(ranking, number)
    return {
        "name": tier.name,
        "limits": [str(limit) for limit in searched(ranking.settings[0].capacity, tier).required],
        "confidence_of_each": tier.goal.confidence,
        "ranking": [
            {
                "setting": place.setting.name,
                "rank": list(place.rank),
                **place.tier.numbers,
                "holds_more_than": [other.name for other in place.above],
            }
            for place in ranked
        ],
        "pairs": [
            {
                "higher": higher.setting.name,
                "lower": lower.setting.name,
                "shown": of_both.order is Order.MORE,
                "least_change": of_both.least_change,
                "most_change": of_both.most_change,
            }
            for lower, higher, of_both in pairs(ranked)
        ],
    }


def _rows_text(rows: list[int]) -> str:
    """Numbers of rows: "2, 4 to 6"."""
    runs: list[list[int]] = []
    for row in rows:
        if runs and row == runs[-1][-1] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _shown(of_both: TierComparison) -> str:
    return "holds more" if of_both.order is Order.MORE else "undecided"
