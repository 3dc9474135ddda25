"""The page of ``bench compare`` in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_cli import run as bench
from bench_records.record import Record
from reports.run_report import RunReport

DESKTOP, PHONE = (1280, 900), (390, 844)
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
_PICTURES = ("arm1-changes", "arm1-quantiles", "percentiles", "distribution")
_TABLE = "arm1-differences"


@pytest.fixture(scope="session")
def comparison_page(
    make_report: Callable[..., RunReport], answered: Callable[..., Record], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """``before`` against ``after``, whose first tokens take a fifth longer; one schedule, 700 requests each."""
    folder = tmp_path_factory.mktemp("compared")
    for name, seed, ttft_ms in (("before", 1, 50.0), ("after", 2, 60.0)):
        first_ms = ttft_ms * np.random.default_rng(seed).lognormal(0.0, 0.2, 700)
        records = [
            answered(k, 10 * k, 10 * k, [(10 * k + first, 1), (10 * k + first + 5, 1), (10 * k + first + 10, 1)])
            for k, first in enumerate(first_ms)
        ]
        target = {"model": f"{name} <b>model</b>", "protocol": "grpc", "streaming": True}
        make_report(records, target=target).folder.path.rename(folder / name)
    page = folder / "c.html"
    runs = (str(folder / name) for name in ("before", "after"))
    assert bench(["compare", *runs, "--output", str(page), "--fail_if", "p50_ttft > +50%", "--allow_single"]) == 0
    return page


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_it_opens_without_an_error_and_asks_for_nothing(
    tab: Any, comparison_page: Path, size: tuple[int, int], theme: str
) -> None:
    tab.open(comparison_page, size, theme)
    tab.wait_for_all_pictures()
    assert tab.errors() == []
    assert [url for url in tab.requested() if not url.startswith(("data:", "blob:"))] == [comparison_page.as_uri()]
    assert tab.run("return [...document.querySelectorAll('figure')].map((figure) => figure.dataset.picture)") == [*_PICTURES]
    assert tab.run("return [...document.querySelectorAll('figure')].every((figure) => 'drawn' in figure.dataset)")
    assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
    assert size == PHONE or tab.wide_tables() == []  # on a phone a table scrolls, and the page does not
    assert "Between these starts, after is worse than before" in tab.run("return document.querySelector('.verdict').innerText")
    assert tab.run("return document.documentElement.dataset.theme") == theme


@SIZES
def test_a_dot_of_a_measure_shows_its_change_and_interval(tab: Any, comparison_page: Path, size: tuple[int, int]) -> None:
    tab.open(comparison_page, size)
    tab.plot("arm1-changes")
    x, y, at, note = tab.run(_FIRST_DOT)
    text = tab.point_at("arm1-changes", x, y, touch=size == PHONE)
    row = {cells[0]: cells for cells in _rows(tab)}["TTFT p50, ms"]
    assert f"TTFT p50 at {at:.4g} %" in text
    assert note == f"95 %: {row[5]}"
    assert note in text
    box = "document.querySelector(\"[data-picture='arm1-changes'] .tip\").getBoundingClientRect()"
    assert tab.run(f"return {box}.left >= 0 && {box}.right <= innerWidth")


@SIZES
def test_curves_of_both_runs_show_their_values(tab: Any, comparison_page: Path, size: tuple[int, int]) -> None:
    tab.open(comparison_page, size)
    shown_text = tab.point_at("distribution", 0.95, 0.5, touch=size == PHONE).splitlines()
    assert shown_text[0].startswith("latency ")
    assert [name for name in shown_text if name in ("before", "after")] == ["before", "after"]
    quantiles = tab.point_at("arm1-quantiles", 0.4, 0.5, touch=size == PHONE)
    assert quantiles.splitlines()[0].startswith("percentile ")
    assert "B − A" in quantiles


@SIZES
def test_the_names_of_measures_stand_apart(tab: Any, comparison_page: Path, size: tuple[int, int]) -> None:
    """On one scale below each other: as many rows as measures, each at least as high as its letters."""
    tab.open(comparison_page, size)
    frame = tab.plot("arm1-changes")
    ticks = tab.run("return window.bench.drawn.get('arm1-changes').picture.y.ticks.length")
    assert ticks == sum(" to " in cells[5] for cells in _rows(tab)) >= 6  # those with an interval
    assert frame["height"] / ticks >= 14
    assert frame["width"] >= 120


def test_the_arrow_keys_walk_from_measure_to_measure(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page).plot("arm1-changes")
    tab.run("document.querySelector(\"[data-picture='arm1-changes'] .plot\").focus()")
    texts = set()
    for _ in range(8):
        tab.cdp("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
        texts.add(tab.text_at_pointer("arm1-changes"))
    assert any("TTFT p50 at" in text for text in texts)
    assert len(texts) >= 3


def test_a_click_on_the_legend_hides_a_run(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page, PHONE)
    for picture, name in (("percentiles", "after"), ("arm1-changes", "worse between these starts")):
        tab.plot(picture)
        button = f"document.querySelector(\"[data-picture='{picture}'] .legend button[data-series='{name}']\")"
        shown = f"""const {{ picture, renderers }} = window.bench.drawn.get('{picture}');
            return picture.marks.map((mark, k) => [mark.name, renderers[k].visible]);"""
        assert all(visible for _, visible in tab.run(shown))
        tab.run(f"{button}.click()")
        assert {mark for mark, visible in tab.run(shown) if not visible} == {name}
        tab.run(f"{button}.dispatchEvent(new MouseEvent('dblclick'))")
        assert {mark for mark, visible in tab.run(shown) if visible} == {name}


def test_a_drag_zooms_one_picture_and_a_double_click_goes_back(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page)
    tab.wait_for_all_pictures()
    whole = tab.run(_RANGES)
    frame = tab.plot("percentiles")
    at = [(frame["left"] + frame["width"] * share, frame["top"] + frame["height"] * share) for share in (0.25, 0.75)]
    begins = "return window.bench.drawn.get('percentiles').plot.x_range.start"
    tab.gesture(lambda: tab.drag(*at), f"{begins} > arguments[0]", whole["percentiles"][0])
    zoomed = tab.run(_RANGES)
    width = whole["percentiles"][1] - whole["percentiles"][0]
    assert zoomed["percentiles"][0] == pytest.approx(whole["percentiles"][0] + 0.25 * width, abs=0.02 * width)
    assert {name for name in whole if zoomed[name] != whole[name]} == {"percentiles"}
    tab.gesture(lambda: tab.double_click(at[0]), f"{begins} === arguments[0]", whole["percentiles"][0])
    assert tab.run(_RANGES) == whole


def test_a_finger_scrolls_the_page_until_a_tool_is_picked(tab: Any, comparison_page: Path) -> None:
    active = "return window.bench.drawn.get('percentiles').plot.toolbar.tools.filter((tool) => tool.active).length"
    for size, tools in ((PHONE, 0), (DESKTOP, 1)):
        tab.open(comparison_page, size).plot("percentiles")
        assert tab.run(active) == tools


def test_a_click_on_a_column_s_head_sorts_by_the_number(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page, PHONE)
    change = f"return [...document.querySelectorAll('#t-{_TABLE} tbody tr')].map((row) => Number(row.cells[4].dataset.value))"
    before = tab.run(change)
    assert len(set(before)) > 5
    head = f"document.querySelectorAll('#t-{_TABLE} th button')[4]"
    tab.run(f"{head}.click()")
    assert tab.run(change) == sorted(before)
    tab.run(f"{head}.click()")
    assert tab.run(change) == sorted(before, reverse=True)
    assert tab.run(f"return document.querySelectorAll('#t-{_TABLE} th')[4].getAttribute('aria-sort')") == "descending"
    shown = [float(cells[4].rstrip(" %p")) for cells in _rows(tab)]
    assert shown == pytest.approx(sorted(before, reverse=True), abs=0.06)


def test_the_table_and_a_picture_copy_as_csv(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page)
    tab.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    tab.run(f"document.querySelector('[data-copies=\"t-{_TABLE}\"]').click()")
    lines = tab.wait(_COPIED, "measure,A,B").splitlines()
    assert lines[0] == "measure,A,B,B − A,change,95 % interval,p (Holm),could have shown,verdict"
    assert len(lines) == 9
    first = lines[1].rsplit(",", 8)
    assert first[0] == '"TTFT p50, ms"'
    a, b, difference, change = map(float, first[1:5])  # numbers, not what is shown of them
    assert difference == pytest.approx(b - a)
    assert change == pytest.approx(100 * (b / a - 1))
    tab.run("document.querySelector('[data-copies-picture=\"distribution\"]').click()")
    lines = tab.wait(_COPIED, "series").splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {"before", "after"}


def test_the_theme_follows_the_system_and_the_reader(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page, PHONE, "dark").plot("percentiles")
    colour = "return window.bench.drawn.get('percentiles').renderers[0].glyph.line_color.value"
    dark = tab.run(colour)
    tab.run("document.getElementById('theme').click()")
    assert tab.run("return document.documentElement.dataset.theme") == "light"
    assert tab.run(colour) != dark
    tab.run("localStorage.clear()")


def test_a_model_s_name_is_text(tab: Any, comparison_page: Path) -> None:
    tab.open(comparison_page)
    assert tab.run("return document.querySelectorAll('main b b, main dd b').length") == 0
    assert "after <b>model</b>" in tab.run("return document.querySelector('.facts').innerText")


def _rows(tab: Any) -> list[list[str]]:
    found: list[list[str]] = tab.run(
        f"return [...document.querySelectorAll('#t-{_TABLE} tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    return found


_COPIED = "return navigator.clipboard.readText().then((text) => text.startsWith(arguments[0]) && text)"
_RANGES = """
const ends = ([name, { plot }]) => [name, [plot.x_range.start, plot.x_range.end]];
return Object.fromEntries([...window.bench.drawn].map(ends));
"""
# The dot of the first measure: its place as shares of the frame, its change, and its text.
_FIRST_DOT = """
const { plot, picture } = window.bench.drawn.get("arm1-changes");
const top = Math.max(...picture.y.ticks.map(([at]) => at));
const share = (range, value) => (value - range.start) / (range.end - range.start);
for (const mark of picture.marks.filter((one) => one.kind === "dots")) {
  const k = mark.y.indexOf(top);
  if (k >= 0) return [share(plot.x_range, mark.x[k]), share(plot.y_range, top), mark.x[k], mark.notes[k]];
}
"""
