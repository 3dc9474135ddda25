"""The page of a search for capacity in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.capacity.formats import CAPACITY
from tests.reports.capacity.searches import capacity, cliff, tiers

DESKTOP, PHONE = (1280, 900), (390, 844)
SHARE = "share-1"
_FOUND = {"crossing": capacity(), "cliff": cliff(), "tiers": tiers()}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("searches")
    folders = {name: parent / name for name in _FOUND}
    for folder in folders.values():
        (folder / "probe-142").mkdir(parents=True)
        (folder / "probe-142" / "report.html").write_text("a report", encoding="utf-8")
    return {name: CAPACITY.write_all(found, folders[name]) for name, found in _FOUND.items()}


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", _FOUND)
def test_it_opens_without_an_error_and_fits_the_screen(
    tab: Any, pages: dict[str, Path], name: str, size: tuple[int, int], theme: str
) -> None:
    tab.open(pages[name], size, theme)
    tab.wait_for_all_pictures()
    assert tab.errors() == []
    assert tab.run("return [...document.querySelectorAll('figure')].every((figure) => 'drawn' in figure.dataset)")
    assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
    if size == DESKTOP:  # on a phone a table scrolls within itself
        assert tab.run("return [...document.querySelectorAll('.scroll')].every((box) => box.scrollWidth <= box.clientWidth)")


def test_the_bands_are_ranges_of_the_load_that_their_names_hide(tab: Any, pages: dict[str, Path]) -> None:
    tab.open(pages["crossing"]).plot(SHARE)
    bands = """const { picture, renderers } = window.bench.drawn.get(arguments[0]);
        return picture.marks.flatMap((mark, k) => mark.kind === "band"
          ? [[mark.name, renderers[k].left, renderers[k].right, renderers[k].visible]] : []);"""
    holds, fails = tab.run(bands, SHARE)
    assert holds[0].startswith("holds: up to 142 requests/s")
    assert (round(holds[2], 1), round(fails[1], 1)) == (142.3, 164.6)
    tab.run("document.querySelector(`[data-picture='${arguments[0]}'] .legend button`).click()", SHARE)
    assert [band[3] for band in tab.run(bands, SHARE)] == [False, True]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_probe_shows_its_counts_and_leads_to_its_run(tab: Any, pages: dict[str, Path], size: tuple[int, int]) -> None:
    tab.open(pages["crossing"], size).plot(SHARE)
    where = """const { plot, picture } = window.bench.drawn.get(arguments[0]);
        const dots = picture.marks.find((mark) => mark.kind === "dots" && mark.name === arguments[1]);
        const { x_range: x, y_range: y } = plot;
        return [(dots.x[2] - x.start) / (x.end - x.start), Math.log(dots.y[2] / y.start) / Math.log(y.end / y.start)];"""
    shown = tab.point_at(SHARE, *tab.run(where, SHARE, "probe: holds"), touch=size == PHONE)
    assert "probe-142: 30 of 5,000 beyond" in shown
    tab.run("[...document.querySelectorAll('#t-probes a')][2].click()")
    tab.wait("return document.body.innerText === 'a report'")


def test_loads_that_are_links_sort_as_numbers(tab: Any, tmp_path: Path) -> None:
    tab.open(CAPACITY.write_all(capacity(shares={109.7: 0.02, 84.9: 0.002, 84.21: 0.001}), tmp_path))
    tab.run("document.querySelector('#t-probes th button').click()")
    rows = "return [...document.querySelectorAll('#t-probes tbody tr')].map((row) => row.cells[0].textContent)"
    assert tab.run(rows) == ["84.21", "84.9", "109.7"]
