"""Text from outside in the pages of reports and comparisons, as a real browser reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run as bench
from bench_records.record import Record
from bench_records.run_folder import RunFolder
from reports.run_report import read_run
from tests.reports.untrusted import TEXTS, run_named, shown, unprintable

OF_PAGES = ("script", "attribute", "end-of-script", "template", "nul", "bidi", "escape", "lines")
EACH = pytest.mark.parametrize("text", [TEXTS[name] for name in OF_PAGES], ids=OF_PAGES)


@pytest.fixture
def hostile(
    make_run: Callable[..., RunFolder], steady_run: Callable[..., list[Record]], failed: Callable[..., Record]
) -> Callable[[str], RunFolder]:
    return lambda text: run_named(make_run, failed, steady_run(60), text)


@EACH
def test_a_report_shows_it_and_obeys_nothing(
    tab: Any, hostile: Callable[[str], RunFolder], page_of: Callable[..., Path], text: str
) -> None:
    _open(tab, page_of(read_run(hostile(text))))
    _check(tab)
    assert " ".join(shown(text).split()) in tab.run("return document.querySelector('h1').innerText")
    assert shown(text).strip() in tab.run("return document.getElementById('t-messages').textContent")
    assert shown(text).strip() in tab.run("return document.getElementById('t-models').textContent")
    legend = tab.run("return document.querySelector(\"[data-picture='server-queue'] .legend\").textContent")
    assert unprintable(legend) == set()
    assert shown(text) in legend


@pytest.mark.parametrize(("a", "b"), zip(OF_PAGES[::2], OF_PAGES[1::2], strict=True))
def test_a_comparison_shows_them_and_obeys_nothing(
    tab: Any, hostile: Callable[[str], RunFolder], tmp_path: Path, a: str, b: str
) -> None:
    names = [TEXTS[side].replace("/", "\u2215").replace("\x00", "\x01") for side in (a, b)]  # what no file name can hold
    folders = [hostile(TEXTS[side]).path.rename(tmp_path / name) for side, name in zip((a, b), names, strict=True)]
    page = tmp_path / "c.html"
    assert bench(["compare", "--allow_different", "--output", str(page), "--", *map(str, folders)]) == 0
    _open(tab, page)
    _check(tab)
    assert f"{shown(names[1])} against {shown(names[0])}" in tab.run("return document.querySelector('h1').textContent")
    assert f"target.model: {shown(TEXTS[a])} | {shown(TEXTS[b])}" in tab.run("return document.body.textContent")
    legend = tab.run("return document.querySelector(\"[data-picture='percentiles'] .legend\").textContent")
    assert all(shown(name) in legend for name in names)


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
