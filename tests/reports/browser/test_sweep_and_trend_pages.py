"""The pages of a sweep and of a trend in a real browser, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.sweep.formats import SWEEP
from reports.sweep.points import read_sweep
from reports.trend.formats import TREND
from reports.trend.history import read_trend

DESKTOP, PHONE = (1280, 900), (390, 844)
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
_HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\u2028\u202e\x00"


@pytest.fixture(scope="session")
def sweep_page(make_sweep: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_sweep(tmp_path_factory.mktemp("sweep"), (10, 20, 30), {"wait": 20.0, _HOSTILE: 22.0})
    folder.run_folder(folder.read().runs[0]).html.write_text("a report")
    return SWEEP.write_all(read_sweep(folder), folder.path)


@pytest.fixture(scope="session")
def trend_page(make_nights: Callable[..., list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    other = {"workload": {"description": _HOSTILE, "dropped_too_long": 0}}
    hostile = _HOSTILE.replace("/", "|").replace("\x00", "")
    make_nights(folder, [("n1", 20.0, {}), ("n2", 20.0, {}), (hostile, 20.0, other), ("n4", 30.0, {}), ("n5", 12.0, {})])
    page = folder / "trend.html"
    TREND.write(read_trend([folder]), ".html", page)
    return page


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", ["sweep_page", "trend_page"])
def test_it_opens_without_an_error_and_asks_for_nothing(
    tab: Any, request: pytest.FixtureRequest, name: str, size: tuple[int, int], theme: str
) -> None:
    page: Path = request.getfixturevalue(name)
    tab.open(page, size, theme)
    tab.wait_for_all_pictures()
    assert tab.errors() == []
    assert [url for url in tab.requested() if not url.startswith(("data:", "blob:"))] == [page.as_uri()]
    assert tab.run("return document.querySelectorAll('figure').length") >= 4
    assert tab.run("return [...document.querySelectorAll('figure')].every((figure) => 'drawn' in figure.dataset)")
    assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
    assert (size, name) != (DESKTOP, "trend_page") or tab.wide_tables() == []  # 16 columns of a sweep scroll, the page does not
    assert tab.run("return window.broken") is None
    assert tab.run("return document.body.innerText.includes('\\u202e') || document.body.innerText.includes('\\0')") is False
    assert "<script>window.broken = 1" in tab.run("return document.body.textContent")


@SIZES
def test_a_point_of_a_sweep_shows_its_settings_and_that_it_is_on_the_front(
    tab: Any, sweep_page: Path, size: tuple[int, int]
) -> None:
    tab.open(sweep_page, size)
    name = "throughput-latency-p99"
    tab.plot(name)
    shown_text = tab.point_at(name, *tab.run(_WHERE, name, "Pareto front"), touch=size == PHONE)
    assert "request_rate=10 policy=wait" in shown_text
    assert "Pareto front\n" in shown_text
    assert "95 % of tokens/s: " in shown_text


@SIZES
def test_a_run_of_a_trend_shows_its_start_and_its_change(tab: Any, trend_page: Path, size: tuple[int, int]) -> None:
    tab.open(trend_page, size)
    name = "trend-p50_ttft"
    tab.plot(name)
    shown_text = tab.point_at(name, *tab.run(_WHERE, name, "worse between these starts"), touch=size == PHONE)
    assert shown_text.splitlines()[0] == "run 4"
    assert "n4, 2026-11-04 02:00:00: +" in shown_text
    tab.open(trend_page, size).plot(name)
    shown_text = tab.point_at(name, *tab.run(_WHERE, name, "not comparable"), touch=size == PHONE)
    assert shown_text.splitlines()[0] == "run 3"
    assert "differs in workload.description" in shown_text
    assert "valid, comparable runs" not in shown_text


def test_the_arrow_keys_walk_from_run_to_run(tab: Any, trend_page: Path) -> None:
    name = "trend-p50_ttft"
    tab.open(trend_page).plot(name)
    tab.run("document.querySelector(`[data-picture='${arguments[0]}'] .plot`).focus()", name)
    texts = []
    for _ in range(4):
        tab.cdp("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
        texts.append(tab.text_at_pointer(name).splitlines()[0])
    assert texts == ["run 1", "run 2", "run 4", "run 5"]  # the work of the third was different


def test_the_points_of_a_sweep_sort_by_each_setting_and_number(tab: Any, sweep_page: Path) -> None:
    tab.open(sweep_page, PHONE)
    heads = tab.run("return [...document.querySelectorAll('#t-points th')].map((head) => head.textContent)")
    for column in (heads.index("request_rate"), heads.index("TTFT p99 ms")):
        rows = "return [...document.querySelectorAll('#t-points tbody tr')]"
        cells = f"{rows}.map((row) => Number(row.cells[{column}].dataset.value))"
        before = tab.run(cells)
        for descending in (False, True):
            tab.run(f"document.querySelectorAll('#t-points th button')[{column}].click()")
            assert tab.run(cells) == sorted(before, reverse=descending)


def test_the_points_and_the_picture_copy_as_csv(tab: Any, sweep_page: Path) -> None:
    tab.open(sweep_page)
    tab.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    tab.run("document.querySelector(\"[data-copies='t-points']\").click()")
    lines = tab.wait("return navigator.clipboard.readText().then((text) => text.startsWith('point') && text)").splitlines()
    assert lines[0].startswith("point,request_rate,policy,Pareto front,validity,offered/s")
    assert lines[1].startswith("1,10,wait,yes,valid,")
    assert len(lines) == 1 + 6
    tab.run("document.querySelector(\"[data-copies-picture='throughput-latency-p99']\").click()")
    lines = tab.wait("return navigator.clipboard.readText().then((text) => text.startsWith('series') && text)").splitlines()
    assert sum("95 % interval of output tokens (tokens/s)" in line for line in lines) == 6
    assert sum(line.startswith("policy=wait,") and "request_rate=" in line for line in lines) == 3


def test_a_point_leads_to_the_report_of_its_run(tab: Any, sweep_page: Path) -> None:
    tab.open(sweep_page)
    tab.run("document.querySelector('#t-points a').click()")
    tab.wait("return document.body.innerText === 'a report'")


def test_a_click_on_a_curve_s_name_hides_all_of_it(tab: Any, sweep_page: Path) -> None:
    name = "throughput-latency-p99"
    tab.open(sweep_page).plot(name)
    tab.run("document.querySelector(`[data-picture='${arguments[0]}'] .legend button`).click()", name)
    seen = tab.run(
        """const { picture, renderers } = window.bench.drawn.get(arguments[0]);
           return picture.marks.map((mark, k) => [mark.name, renderers[k].visible]);""",
        name,
    )
    assert {visible for series, visible in seen if series == "policy=wait"} == {False}
    assert {visible for series, visible in seen if series != "policy=wait"} == {True}


# The first dot of a series, as shares of the frame.
_WHERE = """
const { plot, picture } = window.bench.drawn.get(arguments[0]);
const dots = picture.marks.find((mark) => mark.kind === "dots" && mark.name === arguments[1]);
const share = (range, log, value) => log
  ? Math.log(value / range.start) / Math.log(range.end / range.start)
  : (value - range.start) / (range.end - range.start);
return [share(plot.x_range, picture.x.log, dots.x[0]), share(plot.y_range, picture.y.log, dots.y[0])];
"""
