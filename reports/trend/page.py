"""A trend as one self-contained page that opens without a network."""

from __future__ import annotations

import os
from pathlib import Path

from reports.compare.page import difference_cards, tone_of
from reports.page.page import Card, Page, Section, Tone, write_page
from reports.render.plain_text import printable
from reports.trend.history import Trend
from reports.trend.pictures import trend_pictures
from reports.trend.tables import WhereTo, changes_table, counted, headline, left_out_table, runs_table, settings_table, when


def write_html(trend: Trend, path: Path) -> None:
    """Write the page, whose links lead from where it lies to the runs' reports. Raises OSError."""
    here = path.parent.resolve()
    write_page(trend_page(trend, lambda file: Path(os.path.relpath(file.resolve(), here))), path)


def trend_page(trend: Trend, where_to: WhereTo) -> Page:
    """What the page of a trend says, and in which order. ``where_to``: the way from the page to a file."""
    newest = trend.newest_compared
    sections = (
        Section("trend", "Over the runs", trend_pictures(trend), pairs=True),
        Section("runs", "Runs", (runs_table(trend, where_to), changes_table(trend))),
        Section("settings", "What differs", tuple(t for t in (settings_table(trend), left_out_table(trend)) if t.rows)),
    )
    return Page(
        title=f"Trend of {counted(trend)}",
        lead=printable("" if trend.baseline is None else f"Each is held against the baseline {trend.baseline}."),
        facts=_facts(trend),
        verdict=headline(trend),
        tone=Tone.CAUTION if newest is None else tone_of(newest.verdict),
        aside="",
        cards=_cards(trend),
        sections=tuple(section for section in sections if section.blocks),
        footer="Drag in a picture to zoom, double click to go back. Arrow keys walk through a picture that has the focus. A "
        "click on a series hides it, on a column's head sorts. How runs are judged: "
        "docs/explanation/comparison.md of inflight-bench.",
    )


def _facts(trend: Trend) -> tuple[tuple[str, str], ...]:
    facts = [("Baseline", "none" if trend.baseline is None else f"{trend.baseline} ({_runs(len(trend.baseline_runs))})")]
    if trend.runs:
        facts += [("From (UTC)", when(trend.runs[0])), ("To (UTC)", when(trend.runs[-1]))]
    return tuple((name, printable(text)) for name, text in facts)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _cards(trend: Trend) -> tuple[Card, ...]:
    """What changed from the baseline to the newest run that can be compared."""
    newest = trend.newest_compared
    return () if newest is None else difference_cards(newest.differences)
