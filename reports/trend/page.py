"""A trend as one self-contained page that opens without a network."""

from __future__ import annotations

import os
from pathlib import Path

from reports.compare.comparison import is_inconclusive
from reports.compare.page import difference_cards, tone_of
from reports.compare.tables import conditions_table
from reports.glossary import terms
from reports.page.page import Card, Page, Section, Tone
from reports.render.plain_text import printable
from reports.trend.history import Trend
from reports.trend.pictures import trend_pictures
from reports.trend.tables import (
    LinkTarget,
    changes_table,
    counts_text,
    headline,
    left_out_table,
    newer_text,
    runs_table,
    settings_table,
    start_text,
)


def page_in(trend: Trend, folder: Path) -> Page:
    """The page with links relative to ``folder``."""
    here = folder.resolve()
    return trend_page(trend, lambda file: Path(os.path.relpath(file.resolve(), here)))


def trend_page(trend: Trend, link_target: LinkTarget) -> Page:
    """The content of the page, in its order. ``link_target`` returns the path from the page to a file."""
    newest = trend.newest_compared
    settings = tuple(table for table in (settings_table(trend), left_out_table(trend)) if table.rows)
    conditions = () if newest is None or not newest.conditions else (conditions_table(newest.conditions),)
    sections = (
        Section("conditions-section", f"Conditions of the newest {'comparable ' if newer_text(trend) else ''}run", conditions),
        Section("trend", "Over the runs", trend_pictures(trend), pairs=True),
        Section("runs", "Runs", (runs_table(trend, link_target), changes_table(trend))),
        Section("settings", "Differences in the settings", settings),
    )
    return Page(
        title=f"Trend of {counts_text(trend)}",
        lead=printable("" if trend.baseline is None else f"All runs are compared with the baseline {trend.baseline}."),
        facts=_facts(trend),
        verdict=headline(trend),
        tone=_tone(trend),
        aside="",
        cards=_cards(trend),
        sections=tuple(section for section in sections if section.blocks),
        terms=terms(),
        footer="Drag in a picture to zoom, double-click to reset. Arrow keys step through the picture that has the focus. "
        "Click a series to hide it, a column's head to sort. How runs are judged: "
        "docs/explanation/comparison.md of inflight-bench.",
    )


def _tone(trend: Trend) -> Tone:
    newest = trend.newest_compared
    if newest is None:
        return Tone.CAUTION
    if any(result.failed for result in newest.conditions):
        return Tone.BAD
    tone = tone_of(newest.verdict)
    return Tone.CAUTION if is_inconclusive(newest.differences) or (newer_text(trend) and tone is not Tone.BAD) else tone


def _facts(trend: Trend) -> tuple[tuple[str, str], ...]:
    facts = [("Baseline", "none" if trend.baseline is None else f"{trend.baseline} ({_runs(len(trend.baseline_runs))})")]
    if trend.runs:
        facts += [("From (UTC)", start_text(trend.runs[0])), ("To (UTC)", start_text(trend.runs[-1]))]
    return tuple((name, printable(text)) for name, text in facts)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _cards(trend: Trend) -> tuple[Card, ...]:
    """The changes from the baseline to the newest comparable run."""
    newest = trend.newest_compared
    return () if newest is None else difference_cards(newest.differences)
