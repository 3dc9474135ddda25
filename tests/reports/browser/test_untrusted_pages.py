"""Text from outside in the pages of reports and comparisons, as a real browser reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run as bench
from bench_records.record import Record
from reports.run_report import RunReport
from tests.reports.untrusted import TEXTS, run_named, shown, unprintable

OF_PAGES = ("script", "attribute", "end-of-script", "template", "nul", "bidi", "escape", "lines")
EACH = pytest.mark.parametrize("text", [TEXTS[name] for name in OF_PAGES], ids=OF_PAGES)


@pytest.fixture
def hostile(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], failed: Callable[..., Record]
) -> Callable[[str], RunReport]:
    return lambda text: run_named(make_report, failed, steady_run(60), text)


@EACH
def test_a_report_shows_it_and_obeys_nothing(
    tab: Any, hostile: Callable[[str], RunReport], page_of: Callable[..., Path], text: str
) -> None:
    _open(tab, page_of(hostile(text)))
    _check(tab)
    assert " ".join(shown(text).split()) in tab.run("return document.querySelector('h1').innerText")
    assert shown(text).strip() in tab.run("return document.getElementById('t-messages').textContent")
    assert shown(text).strip() in tab.run("return document.getElementById('t-models').textContent")
    legend = tab.run("return document.querySelector(\"[data-picture='server-queue'] .legend\").textContent")
    assert unprintable(legend) == set()
    assert shown(text) in legend


@EACH
def test_a_comparison_shows_it_and_obeys_nothing(
    tab: Any, hostile: Callable[[str], RunReport], tmp_path: Path, text: str
) -> None:
    name = text.replace("/", "\u2215").replace("\x00", "\x01")  # what no file name can hold
    texts = {"a": text, "b": f"{text}b"}
    folders = [hostile(side_text).folder.path.rename(tmp_path / f"{name}{side}") for side, side_text in texts.items()]
    page = tmp_path / "c.html"
    assert bench(["compare", "--allow_different", "--output", str(page), "--", *map(str, folders)]) == 0
    _open(tab, page)
    _check(tab)
    assert f"{shown(name)}b against {shown(name)}a" in tab.run("return document.querySelector('h1').textContent")
    assert f"target.model: {shown(text)} | {shown(text)}b" in tab.run("return document.body.textContent")
    assert f"{shown(name)}b" in tab.run("return document.querySelector(\"[data-picture='percentiles'] .legend\").textContent")


def _open(tab: Any, page: Path) -> None:
    """Open it with an alert that would be seen."""
    tab.open(page)
    tab.wait_for_all_pictures()


def _check(tab: Any) -> None:
    """Only our own scripts ran, nothing was requested, and no character on the page controls what surrounds it."""
    assert tab.errors() == []  # a script that the policy stopped would be one
    assert [url for url in tab.requested() if not url.startswith(("data:", "blob:", "file:"))] == []
    assert tab.run("return document.querySelectorAll('main script, main img, main iframe, main [onerror]').length") == 0
    assert tab.run("return document.querySelectorAll('script').length") == tab.run(
        "return document.querySelectorAll('head > script, body > script').length"
    )
    assert unprintable(tab.run("return document.title + document.body.textContent")) == set()
