"""The page of ``bench simulate validate`` in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench_cli.simulate.validated import Simulations, Validated
from bench_cli.simulate.validated_page import validated_page
from reports.page.page import write_page
from simulator.model import read_model
from tests.bench_cli.test_simulate_run import model_file
from tests.bench_cli.validated_runs import BEYOND, validated_run

DESKTOP, PHONE = (1280, 900), (390, 844)
_HOSTILE = "</script><script>window.broken = 1</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("validation")
    names = ("a-run-with-quite-a-long-name", _HOSTILE, "third", "fourth", "fifth", "sixth")
    runs = tuple(validated_run(name, 0.02 * k) for k, name in enumerate(names))
    validations = (*runs, validated_run("far", 0.5, BEYOND))
    doubts = (f"{_HOSTILE} has the finding errors: some are left out.",)
    path = folder / "validation.html"
    write_page(
        validated_page(
            Validated("model.json", read_model(model_file(folder / "model.json")), Simulations(2), validations, doubts)
        ),
        path,
    )
    return path


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_it_opens_without_an_error_and_fits_the_screen(tab: Any, page: Path, size: tuple[int, int], theme: str) -> None:
    tab.open(page, size, theme)
    tab.wait_for_all_pictures()
    assert tab.errors() == []
    assert [url for url in tab.requested() if not url.startswith(("data:", "blob:"))] == [page.as_uri()]
    assert tab.run("return [...document.querySelectorAll('figure')].map((figure) => 'drawn' in figure.dataset)") == [True] * 4
    assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
    assert tab.run("return window.broken") is None


def test_each_row_of_a_picture_has_the_height_of_a_line(tab: Any, page: Path) -> None:
    tab.open(page, PHONE)
    tab.wait_for_all_pictures()
    script = "return document.querySelector(\"[data-picture='ttft'] .plot\").getBoundingClientRect().height"
    assert tab.run(script) >= 28 * 17  # 7 runs of 4 figures
