"""The capacities of several settings, ranked, as one self-contained page, and the formats of a ranking."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from reports.capacity.formats import CAPACITY
from reports.capacity.pictures import Side, sides_picture
from reports.capacity.ranking import Place, Ranking, confidence_note, places, ranking_answer, ranking_cost
from reports.capacity.ranking_formats import (
    csv_rows,
    full_document,
    pairs_table,
    ranking_document,
    ranking_table,
    setting_answers,
    settings_table,
    terminal_document,
)
from reports.capacity.words import bracket_text, confidence_text, time_text
from reports.glossary import terms
from reports.page.formats import Formats
from reports.page.page import Block, Card, Note, Page, Section, Tone
from reports.render.picture import Axis, Colour, Dots, Mark, Picture, Shape, Spans, Stroke, Trail
from reports.render.plain_text import printable

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.RED)
_CARDS = 4
_BEYOND_ENDS = 1.1  # times the loads that are known: the edges
_LESS = "; a setting holds less than the best where its range ends before the dashed line"


def write_ranking(ranking: Ranking, folder: Path) -> Path:
    """Write ``ranking.json``, ``.csv``, ``.md`` and ``.html`` into ``folder``, and the documents of each search into its own;
    returns the page's path. Raises OSError.
    """
    for setting in ranking.settings:
        CAPACITY.write_all(setting.capacity, folder / setting.folder)
    return RANKING.write_all(ranking, folder)


def ranking_page(ranking: Ranking) -> Page:
    """The content of the page, in its order. Its links lead to the searches beside it."""
    tiers = range(len(ranking.tiers))
    return Page(
        title=f"Capacity of {len(ranking.settings)} settings",
        lead=printable(", ".join(setting.name for setting in ranking.settings)),
        facts=_facts(ranking),
        verdict=ranking_answer(ranking),
        tone=_tone(ranking),
        aside="",
        cards=tuple(_cards(ranking)),
        sections=(
            Section("ranking", "Ranking", tuple(_ranking(ranking))),
            Section("settings", "Settings", _settings(ranking)),
            Section("curves", "Requests beyond the limit", tuple(_curves(ranking)), pairs=True),
            Section("pairs", "Differences", tuple(pairs_table(ranking, number) for number in tiers)),
        ),
        footer="Drag in a picture to zoom, double-click to reset. Click a series to hide it. How capacity is found, and how "
        "settings are ranked: docs/explanation/capacity.md of inflight-bench.",
        terms=terms(),
    )


def ranking_pictures(ranking: Ranking) -> tuple[Picture, ...]:
    """The brackets of each tier, then the curves of each limit."""
    brackets = (_brackets(ranking, number) for number in range(len(ranking.tiers)))
    return (*(picture for picture in brackets if picture is not None), *_curves(ranking))


def _ranking(ranking: Ranking) -> Iterator[Block]:
    for number in range(len(ranking.tiers)):
        yield ranking_table(ranking, number)
        picture = _brackets(ranking, number)
        if picture is not None:
            yield picture
    yield Note(confidence_note(ranking))


def _settings(ranking: Ranking) -> tuple[Block, ...]:
    return (*map(Note, setting_answers(ranking)), settings_table(ranking), Note(ranking_cost(ranking)))


def _brackets(ranking: Ranking, number: int) -> Picture | None:
    """The bracket of each setting, the best at the top; None where no end of any is known."""
    ranked, tier = places(ranking, number), ranking.tiers[number]
    known = [place for place in ranked if _known_ends(place)]
    if not known:
        return None
    loads = [end for place in known for end in _known_ends(place)]
    edges = (min(loads) / _BEYOND_ENDS, max(loads) * _BEYOND_ENDS)
    rows = {place.setting.name: float(len(ranked) - k) for k, place in enumerate(ranked)}
    may_be_best = [place for place in known if place.rank[0] == 1]
    others = [place for place in known if place.rank[0] > 1]
    best = ranked[0].tier.bracket.certified
    marks: list[Mark] = [] if best is None else [_upright("certified load of the best", best, len(ranked))]
    marks += [
        *_spans("may hold the most", may_be_best, rows, edges, Colour.GREEN),
        *_spans("holds less than the best", others, rows, edges, Colour.BLUE),
    ]
    return Picture(
        f"brackets-{number + 1}",
        "Load that is held" if tier.name is None else printable(f"Load that is held ({tier.name})"),
        f"From the load that is certified to the one that is refused{'' if best is None else _LESS}. Where an end is unknown, "
        "the range goes on beyond the other one, where the dot is.",
        Axis("load", ranking.unit.value),
        Axis("setting", ticks=tuple((rows[place.setting.name], printable(place.setting.name)) for place in reversed(ranked))),
        tuple(marks),
    )


def _upright(name: str, load: float, rows: int) -> Trail:
    """A line at ``load`` through all rows."""
    return Trail(name, np.full(2, load), np.array([0.5, rows + 0.5]), Colour.GREY, Stroke.DASHED)


def _spans(
    name: str, of: Sequence[Place], rows: dict[str, float], edges: tuple[float, float], colour: Colour
) -> Iterator[Mark]:
    if not of:
        return
    y = np.array([rows[place.setting.name] for place in of])
    brackets = [place.tier.bracket for place in of]
    low = np.array([edges[0] if bracket.certified is None else bracket.certified for bracket in brackets])
    high = np.array([edges[1] if bracket.refused is None else bracket.refused for bracket in brackets])
    yield Spans(name, y, low, high, colour)
    x = np.array([math.exp(float(np.mean(np.log(_known_ends(place))))) for place in of])
    unit = of[0].setting.capacity.unit
    notes = tuple(printable(f"{place.setting.name}: {bracket_text(place.tier.bracket, unit)}") for place in of)
    yield Dots(name, x, y, colour, Shape.POINT, notes)


def _known_ends(place: Place) -> tuple[float, ...]:
    """The certified and the refused load, as far as they are known."""
    return tuple(end for end in (place.tier.bracket.certified, place.tier.bracket.refused) if end)


def _curves(ranking: Ranking) -> Iterator[Picture]:
    """The probes and curves of the best settings, for each limit of each tier."""
    for number in range(len(ranking.tiers)):
        ranked = places(ranking, number)[: len(_COLOURS)]
        sides = [
            Side(printable(place.setting.name), colour, place.setting.capacity, place.tier)
            for place, colour in zip(ranked, _COLOURS, strict=False)
        ]
        for place, position in enumerate(ranked[0].tier.goal.limits):
            yield sides_picture(sides, place, f"share-{number + 1}-{position + 1}")


def _tone(ranking: Ranking) -> Tone:
    """GOOD where each tier has one best setting, BAD where nothing is certified in any."""
    best = [places(ranking, number)[0] for number in range(len(ranking.tiers))]
    if all(place.tier.bracket.certified is None for place in best):
        return Tone.BAD
    return Tone.GOOD if all(place.rank == (1, 1) for place in best) else Tone.CAUTION


def _cards(ranking: Ranking) -> Iterator[Card]:
    """What the best settings of the first tier hold."""
    unit, sure = ranking.unit, confidence_text(ranking.confidence)
    for place in places(ranking, 0)[:_CARDS]:
        bracket = bracket_text(place.tier.bracket, unit).removesuffix(f" {unit}")
        first, last = place.rank
        rank = f"rank {first}" if first == last else f"rank {first} to {last}"
        yield Card(printable(place.setting.name), bracket, unit.value, f"{rank}, {sure}")


def _facts(ranking: Ranking) -> tuple[tuple[str, str], ...]:
    budget = "unlimited" if ranking.budget_s is None else time_text(ranking.budget_s)
    return (
        ("Limits", ", ".join(map(str, ranking.settings[0].capacity.limits))),
        ("Confidence of all brackets together", confidence_text(ranking.confidence)),
        ("Probes", str(ranking.probes)),
        ("Requests", f"{ranking.requests:,}"),
        ("Time, budget", f"{time_text(ranking.spent_s)}, {budget}"),
    )


RANKING = Formats[Ranking](
    "ranking", terminal_document, full_document, ranking_document, csv_rows, lambda ranking, _: ranking_page(ranking)
)
