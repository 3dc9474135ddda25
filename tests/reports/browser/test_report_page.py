"""``report.html`` in a real browser, on a desktop and on a phone."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_records.record import Outcome, Record
from reports.run_report import RunReport

DESKTOP, PHONE = (1280, 900), (390, 844)
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
_HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\u2028\u202e\x00$$\\alpha$$"


@pytest.fixture(scope="session")
def mixed_run(answered: Callable[..., Record], failed: Callable[..., Record]) -> list[Record]:
    """700 requests, one each 10 ms: first tokens after 100 to 179 ms; each 50th failed."""
    return [
        failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 30, error=_HOSTILE)
        if k % 50 == 7
        else answered(k, 10 * k, 10 * k + 1, [(10 * k + 100 + k % 80, 1), (10 * k + 200, 2)], input_tokens=8 + k % 5)
        for k in range(700)
    ]


@pytest.fixture(scope="session")
def report_page(make_report: Callable[..., RunReport], mixed_run: list[Record], page_of: Callable[..., Path]) -> Path:
    hostile = {"model": _HOSTILE, "protocol": "grpc", "streaming": True}
    return page_of(make_report(mixed_run, target=hostile, workload={"description": _HOSTILE, "dropped_too_long": 0}))


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_it_opens_without_an_error_and_asks_for_nothing(tab: Any, report_page: Path, size: tuple[int, int], theme: str) -> None:
    tab.open(report_page, size, theme)
    tab.wait_for_all_pictures()
    assert tab.errors() == []
    asked = [url for url in tab.requested() if not url.startswith(("data:", "blob:"))]
    assert asked == [report_page.as_uri()]
    assert tab.run("return document.querySelectorAll('figure').length") >= 10
    assert tab.run("return [...document.querySelectorAll('figure')].every((figure) => 'drawn' in figure.dataset)")
    assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
    assert size == PHONE or tab.wide_tables() == []  # on a phone a table scrolls, and the page does not


def test_text_from_outside_is_text(tab: Any, report_page: Path) -> None:
    tab.open(report_page)
    assert tab.run("return window.broken") is None
    assert "</script><script>window.broken = 1</script>" in tab.run("return document.querySelector('h1').textContent")
    assert "onerror" in tab.run("return document.getElementById('t-messages').textContent")
    assert tab.run("return document.body.innerText.includes('\\u202e') || document.body.innerText.includes('\\0')") is False


@SIZES
def test_hovering_or_touching_shows_the_values(tab: Any, report_page: Path, size: tuple[int, int]) -> None:
    tab.open(report_page, size)
    text = tab.point_at("latency-distribution", 0.9, 0.5, touch=size == PHONE)
    assert text.splitlines()[0].startswith("latency ")
    assert text.splitlines()[0].endswith(" ms")
    assert "E2E latency, from schedule\n0\n" in text  # all answers took longer
    assert "TTFT, from send\n0.98" in text  # and a fiftieth failed
    box = "document.querySelector(\"[data-picture='latency-distribution'] .tip\").getBoundingClientRect()"
    assert tab.run(f"return {box}.left >= 0 && {box}.right <= innerWidth")
    if size == DESKTOP:
        tab.mouse("mouseMoved", 5, 5)
        tab.wait("return document.querySelector(\"[data-picture='latency-distribution'] .tip\").hidden")


def test_values_under_the_pointer_are_those_of_the_table(tab: Any, report_page: Path) -> None:
    name = "latency-by-percentile"
    tab.open(report_page).plot(name)
    p90 = tab.run(
        "const {start, end} = window.bench.drawn.get(arguments[0]).plot.x_range; return (1 - start) / (end - start)", name
    )
    text = tab.point_at(name, p90, 0.5)
    row = tab.run(
        "return [...document.querySelectorAll('#t-latency tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    p90_ms = {cells[0]: float(cells[3].replace(",", "")) for cells in row}
    assert text.splitlines()[0] == "percentile 90"
    assert f"E2E latency, from schedule\n{p90_ms['E2E latency, from schedule']:g} ms" in text
    assert f"TTFT, from send\n{p90_ms['TTFT, from send']:g} ms" in text


@SIZES
def test_a_heat_map_and_a_dot_show_their_values(tab: Any, report_page: Path, size: tuple[int, int]) -> None:
    tab.open(report_page, size)
    for name, expected in (("e2e-heat-map", "requests of "), ("latency-over-time", "request ")):
        tab.plot(name)
        assert expected in tab.point_at(name, *tab.run(_WHERE, name), touch=size == PHONE)


def test_the_arrow_keys_walk_through_a_picture(tab: Any, report_page: Path) -> None:
    tab.open(report_page).plot("rates")
    tab.run("document.querySelector(\"[data-picture='rates'] .plot\").focus()")
    texts = []
    for _ in range(3):
        tab.cdp("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
        texts.append(tab.text_at_pointer("rates"))
    times = [float(text.splitlines()[0].split()[-2]) for text in texts]
    assert times == sorted(set(times))
    assert "offered" in texts[0]


@SIZES
def test_a_term_that_has_the_focus_is_explained_within_the_screen(tab: Any, report_page: Path, size: tuple[int, int]) -> None:
    tab.open(report_page, size)
    shown = "return document.getElementById('explanation').hidden ? '' : document.getElementById('explanation').textContent"
    for section in ("latency", "arrivals"):
        tab.run("document.querySelector(`#${arguments[0]} dfn.term`).focus()", section)
        assert "Better: " in tab.wait(shown) or "requests" in tab.wait(shown)
        box = "const box = document.getElementById('explanation').getBoundingClientRect(); return "
        assert tab.wait(f"{box} box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight")
        assert tab.run("return document.activeElement.getAttribute('aria-describedby')") == "explanation"
    tab.cdp("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape", windowsVirtualKeyCode=27)
    assert tab.run(shown) == ""


def test_a_click_on_the_legend_hides_a_series(tab: Any, report_page: Path) -> None:
    tab.open(report_page)
    tab.plot("rates")
    button = (
        "[...document.querySelectorAll(\"[data-picture='rates'] .legend button\")].find((b) => b.dataset.series === 'sent')"
    )
    visible = "return window.bench.drawn.get('rates').renderers.map((one) => one.visible)"
    assert tab.run(visible) == [True, True, True]
    tab.run(f"{button}.click()")
    assert tab.run(visible) == [True, False, True]
    assert tab.run(f"return {button}.getAttribute('aria-pressed')") == "false"
    tab.run(f"{button}.dispatchEvent(new MouseEvent('dblclick'))")
    assert tab.run(visible) == [False, True, False]


def test_a_drag_zooms_all_pictures_over_time_and_a_double_click_goes_back(tab: Any, report_page: Path) -> None:
    tab.open(report_page)
    tab.wait_for_all_pictures()
    whole = tab.run(_RANGES)
    frame = tab.plot("rates")
    at = [(frame["left"] + frame["width"] * share, frame["top"] + frame["height"] * share) for share in (0.25, 0.75)]
    begins = "return window.bench.drawn.get('rates').plot.x_range.start"
    tab.gesture(lambda: tab.drag(*at), f"{begins} > arguments[0]", whole["rates"][0])
    zoomed = tab.run(_RANGES)
    width = whole["rates"][1] - whole["rates"][0]
    assert zoomed["rates"][0] == pytest.approx(whole["rates"][0] + 0.25 * width, abs=0.02 * width)
    assert zoomed["rates"][1] == pytest.approx(whole["rates"][0] + 0.75 * width, abs=0.02 * width)
    assert zoomed["slip"] == zoomed["rates"] == zoomed["latency-over-time"] == zoomed["output-tokens"]
    assert zoomed["latency-distribution"] == whole["latency-distribution"]
    tab.gesture(lambda: tab.double_click(at[0]), f"{begins} === arguments[0]", whole["rates"][0])
    assert tab.run(_RANGES) == whole


def test_a_finger_scrolls_the_page_until_a_tool_is_picked(tab: Any, report_page: Path) -> None:
    active = "const t = window.bench.drawn.get('rates').plot.toolbar; return t.tools.filter((tool) => tool.active).length"
    for size, tools in ((PHONE, 0), (DESKTOP, 1)):
        tab.open(report_page, size).plot("rates")
        assert tab.run(active) == tools


def test_a_click_on_a_column_s_head_sorts(tab: Any, report_page: Path) -> None:
    tab.open(report_page)
    head = "document.querySelectorAll('#t-slowest th button')[3]"  # TTFT
    column = "return [...document.querySelectorAll('#t-slowest tbody tr')].map((row) => Number(row.cells[3].dataset.value))"
    before = tab.run(column)
    assert len(set(before)) > 5
    tab.run(f"{head}.click()")
    assert tab.run(column) == sorted(before)
    tab.run(f"{head}.click()")
    assert tab.run(column) == sorted(before, reverse=True)
    assert tab.run("return document.querySelectorAll('#t-slowest th')[3].getAttribute('aria-sort')") == "descending"


def test_a_failed_percentile_sorts_behind_every_number(tab: Any, report_page: Path) -> None:
    tab.open(report_page)
    cells = "return [...document.querySelectorAll('#t-latency tbody tr')].map((row) => row.cells[5].textContent)"
    tab.run("document.querySelectorAll('#t-latency th button')[5].click()")
    p99 = tab.run(cells)
    assert p99.count("failed") == 4
    assert p99[-4:] == ["failed"] * 4


def test_tables_and_pictures_copy_as_csv(tab: Any, report_page: Path) -> None:
    tab.open(report_page)
    tab.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    lines = _copied(tab, "t-latency")
    assert lines[0] == "ms,mean,p50,p90,p95,p99,max,n"
    assert lines[1].startswith('"TTFT, from schedule",1')
    assert len(lines) == 1 + tab.run("return document.querySelectorAll('#t-latency tbody tr').length")
    tab.run("document.querySelector(\"[data-copies-picture='rates']\").click()")
    lines = tab.wait("return navigator.clipboard.readText().then((text) => text.startsWith('series') && text)").splitlines()
    assert lines[0] == "series,time since the start of the run (s),requests (1/s),to,note"
    assert lines[1].startswith("offered,0,")


def test_a_copied_text_is_no_formula(
    tab: Any, make_report: Callable[..., RunReport], failed: Callable[..., Record], page_of: Callable[..., Path]
) -> None:
    tab.open(page_of(make_report([failed(0, 0, Outcome.SERVER_ERROR, 0, 1, error='=cmd|"/c calc"!A1, x')])))
    tab.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    assert _copied(tab, "t-messages")[1] == '"\'=cmd|""/c calc""!A1, x",server_error,1,0'


def test_the_theme_follows_the_system_and_the_reader(tab: Any, report_page: Path) -> None:
    tab.open(report_page, DESKTOP, "dark").plot("rates")
    theme = "return document.documentElement.dataset.theme"
    colour = "return window.bench.drawn.get('rates').renderers[1].glyph.line_color.value"
    assert tab.run(theme) == "dark"
    dark = tab.run(colour)
    tab.run("document.getElementById('theme').click()")
    assert tab.run(theme) == "light"
    assert tab.run(colour) != dark
    tab.driver.refresh()
    assert tab.run(theme) == "light"  # chosen by the reader, it stays
    tab.run("localStorage.clear()")
    tab.driver.refresh()
    assert tab.run(theme) == "dark"


def test_it_prints_with_every_picture(tab: Any, report_page: Path) -> None:
    tab.open(report_page, DESKTOP, "dark")
    tab.wait_for_all_pictures()
    figures = tab.run("return document.querySelectorAll('figure').length")
    tab.run("dispatchEvent(new Event('beforeprint'))")
    drawn = "[...document.querySelectorAll('img.paper')].filter((image) => image.complete && image.naturalWidth > 300).length"
    tab.wait(f"return {drawn} === {figures}")
    assert tab.run("return [...document.querySelectorAll('details')].every((details) => details.open)")
    tab.run("dispatchEvent(new Event('afterprint'))")
    assert tab.run("return document.querySelectorAll('img.paper').length") == 0
    pdf = base64.b64decode(tab.cdp("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert tab.errors() == []


def test_who_prints_at_once_gets_every_picture(tab: Any, report_page: Path) -> None:
    before = (  # only what is in sight is drawn, and what was on paper is counted before it is taken away
        "window.requestIdleCallback = () => {};"
        "addEventListener('afterprint', () => (window.papers = document.querySelectorAll('.paper').length))"
    )
    script = tab.cdp("Page.addScriptToEvaluateOnNewDocument", source=before)["identifier"]
    tab.open(report_page)
    tab.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    tab.wait("return window.bench.drawn.size > 0")
    figures = tab.run("return document.querySelectorAll('figure').length")
    assert tab.run("return window.bench.drawn.size") < figures
    tab.cdp("Page.printToPDF")
    assert tab.run("return window.papers") == figures
    assert tab.errors() == []


@SIZES
def test_the_tools_of_a_picture_are_picked_by_buttons(tab: Any, report_page: Path, size: tuple[int, int]) -> None:
    tab.open(report_page, size).plot("rates")
    buttons = "[...document.querySelectorAll(\"[data-picture='rates'] .tools button\")]"
    pressed = f"return {buttons}.filter((one) => one.getAttribute('aria-pressed') === 'true').map((one) => one.textContent)"
    click = f"{buttons}.find((one) => one.textContent === arguments[0]).click()"
    active = "return window.bench.drawn.get('rates').plot.toolbar.tools.filter((tool) => tool.active).map((tool) => tool.type)"
    assert tab.run(pressed) == ([] if size == PHONE else ["Zoom"])
    tab.run(click, "Pan")
    tab.run(click, "Wheel")
    assert tab.run(pressed) == ["Pan", "Wheel"]  # a drag does one thing
    assert tab.run(active) == ["PanTool", "WheelZoomTool"]
    whole = tab.run(_RANGES)
    tab.run("window.bench.drawn.get('rates').plot.x_range.start += 1")
    assert tab.run(_RANGES) != whole
    tab.run(click, "Reset")
    tab.wait("return window.bench.drawn.get('rates').plot.x_range.start === arguments[0]", whole["rates"][0])


def test_a_picture_is_saved_as_png(tab: Any, report_page: Path, tmp_path: Path) -> None:
    tab.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.open(report_page).plot("rates")
    tab.run(
        "[...document.querySelectorAll(\"[data-picture='rates'] .tools button\")].find((b) => b.textContent === 'PNG').click()"
    )
    end = time.monotonic() + 120
    while not (saved := tmp_path / "rates.png").exists():
        assert time.monotonic() < end, list(tmp_path.iterdir())
        time.sleep(0.1)
    assert saved.read_bytes().startswith(b"\x89PNG")


def test_a_run_of_failures_alone_opens(
    tab: Any, make_report: Callable[..., RunReport], failed: Callable[..., Record], page_of: Callable[..., Path]
) -> None:
    tab.open(page_of(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)])))
    assert tab.errors() == []
    assert "NOT VALID" in tab.run("return document.querySelector('.verdict').textContent")


def test_what_is_known_of_one_part_of_a_run_alone_is_a_dot(
    tab: Any, make_report: Callable[..., RunReport], answered: Callable[..., Record], page_of: Callable[..., Path]
) -> None:
    """All requests at once have a slip in one part of the run, and a stroke from one point to none shows nothing."""
    tab.open(page_of(make_report([answered(k, 0, 1 + k % 3, [(80 + k, 1), (400 + k, 1)]) for k in range(120)])))
    tab.plot("slip")
    dots = """
        const { plot, picture } = window.bench.drawn.get("slip");
        const dots = plot.renderers.filter((one) => one.glyph.type === "Scatter");
        return dots.map((one) => [...one.data_source.get_array("y"), one.visible, one.glyph.fill_color.value])
    """
    colours = tab.run("const { red, blue } = window.bench.drawing.theme().colours; return [red, blue]")
    assert tab.run(dots) == [[3, True, colours[0]], [2, True, colours[1]]]
    tab.run("document.querySelector(\"[data-picture='slip'] .legend [data-series='largest']\").click()")
    assert [visible for _, visible, _ in tab.run(dots)] == [False, True]


_RANGES = """
const ends = ([name, { plot }]) => [name, [plot.x_range.start, plot.x_range.end]];
return Object.fromEntries([...window.bench.drawn].map(ends));
"""


# The middle of the fullest cell of a heat map, or the first dot, as shares of the frame.
def test_a_lower_bound_is_copied_as_one(
    tab: Any, make_report: Callable[..., RunReport], answered: Callable[..., Record], failed: Callable[..., Record],
    page_of: Callable[..., Path],
) -> None:  # fmt: skip
    records = [
        failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k, 10 * k + 1_234, error=None)
        if k % 20 == 7
        else answered(k, 10 * k, 10 * k, [(10 * k + 80, 1), (10 * k + 100, 1)])
        for k in range(200)
    ]
    tab.open(page_of(make_report(records)))
    tab.cdp("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    (line,) = (line for line in _copied(tab, "t-latency") if line.startswith('"TTFT, from schedule"'))
    assert line.split(",")[-3:] == ["≥ 1234.0", "≥ 1234.0", "190"]


_WHERE = """
const { plot, picture } = window.bench.drawn.get(arguments[0]);
const heat = picture.marks.find((mark) => mark.kind === "heat");
const dots = picture.marks.find((mark) => mark.kind === "dots");
const share = (range, log, value) => log
  ? Math.log(value / range.start) / Math.log(range.end / range.start)
  : (value - range.start) / (range.end - range.start);
let point = dots && [dots.x[0], dots.y[0]];
if (heat) {
  const most = Math.max(...heat.counts.flat());
  const j = heat.counts.findIndex((row) => row.includes(most));
  const i = heat.counts[j].indexOf(most);
  point = [(heat.x[i] + heat.x[i + 1]) / 2, Math.sqrt(heat.y[j] * heat.y[j + 1])];
}
return [share(plot.x_range, picture.x.log, point[0]), share(plot.y_range, picture.y.log, point[1])];
"""


def _copied(tab: Any, table: str) -> list[str]:
    """What a click on a table's button puts on the clipboard."""
    tab.run("document.querySelector(`[data-copies='${arguments[0]}']`).click()", table)
    head = tab.run("return document.querySelector(`#${arguments[0]} th`).textContent", table)
    script = "return navigator.clipboard.readText().then((text) => text.startsWith(arguments[0]) && text)"
    lines: list[str] = tab.wait(script, head).splitlines()
    return lines
