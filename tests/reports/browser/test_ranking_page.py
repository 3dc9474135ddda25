"""The page of several settings' capacities in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.capacity.ranking import Ranking, Setting
from reports.capacity.ranking_page import write_ranking
from tests.reports.capacity.searches import BRACKET, LIMITS, capacity, cliff, tiers

DESKTOP, PHONE = (1280, 900), (390, 844)


def _setting(name: str, certified: float, refused: float) -> Setting:
    bracket = replace(BRACKET, curves=BRACKET.curves[:1], certified=certified, refused=refused)
    return Setting(name, capacity(bracket, limits=LIMITS[:1]), name)


_SETTINGS = (
    _setting("max_num_sequences=16", 98.0, 110.0),
    _setting("max_num_sequences=64", 142.0, 164.0),
    Setting("max_num_sequences=256", cliff(), "max_num_sequences=256"),
)
_FOUND = {
    "settings": Ranking(_SETTINGS, 0.95, 900.0),
    "tiers": Ranking(tuple(Setting(f"n={k}", tiers(), f"n={k}") for k in (1, 2)), 0.95, None),
}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("rankings")
    for name, ranking in _FOUND.items():
        for setting in ranking.settings:
            (parent / name / setting.folder).mkdir(parents=True)
    return {name: write_ranking(ranking, parent / name) for name, ranking in _FOUND.items()}


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", _FOUND)
def test_it_opens_without_an_error_and_fits_the_screen(
    tab: Any, pages: dict[str, Path], name: str, size: tuple[int, int], theme: str
) -> None:
    tab.open(pages[name], size, theme)
    tab.wait_for_all_pictures()
    assert tab.errors() == []
    assert tab.run("return [...document.querySelectorAll('figure')].every((figure) => 'drawn' in figure.dataset)")
    assert tab.run("return document.documentElement.scrollWidth") <= size[0]
    if size == DESKTOP:  # on a phone a table scrolls within itself
        assert tab.run("return [...document.querySelectorAll('.scroll')].every((box) => box.scrollWidth <= box.clientWidth)")


def test_a_setting_leads_to_the_page_of_its_search(tab: Any, pages: dict[str, Path]) -> None:
    tab.open(pages["settings"])
    tab.run("[...document.querySelectorAll('a')].find((link) => link.textContent === 'max_num_sequences=64').click()")
    tab.wait("return location.pathname.endsWith('max_num_sequences%3D64/capacity.html')")
    assert tab.errors() == []
