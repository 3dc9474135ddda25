"""A real browser: Debian's headless Chromium, driven by Selenium. Without one the tests skip, with the reason."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
_PATIENCE_S = 60.0  # machines are shared
DESKTOP = (1280, 900)
PHONE = (390, 844)


class Tab:
    """A page in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, size: tuple[int, int] = DESKTOP, theme: str = "light") -> Tab:
        """Open a file as a screen of ``size`` would; a phone's has touch and no mouse."""
        phone = size == PHONE
        self.cdp("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=phone)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.driver.get("about:blank")
        self.log("browser"), self.log("performance")
        self.driver.get(path.as_uri())
        return self

    def wait_for_all_pictures(self) -> None:
        self.wait("return document.documentElement.dataset.pictures === 'drawn' || !document.querySelector('figure')")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def gesture(self, make: Callable[[], None], script: str, *arguments: Any) -> None:
        """Repeat a gesture until the script returns true: on a slow machine the page takes a click for a long press."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            make()
            with suppress(AssertionError):
                self.wait(script, *arguments, patience_s=5.0)
                return
        raise AssertionError(f"in vain: {script}\n{self.log('browser')}")

    def wait(self, script: str, *arguments: Any, patience_s: float = _PATIENCE_S) -> Any:
        """Wait until the script returns what is true, and return that."""
        end = time.monotonic() + patience_s
        while not (found := self.run(script, *arguments)):
            assert time.monotonic() < end, f"in vain: {script}\n{self.log('browser')}"
            time.sleep(0.05)
        return found

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)

    def log(self, kind: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log(kind)
        return entries

    def requested(self) -> list[str]:
        """The addresses that the page requested since it was opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def wide_tables(self) -> list[str]:
        """The tables that are wider than their place, so that they scroll sideways."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth)"
            ".map((box) => box.querySelector('table').id)"
        )
        return found

    def plot(self, name: str) -> dict[str, float]:
        """Where the frame of a picture's plot is in the window: scrolled into sight, and drawn."""
        self.run("document.querySelector(`[data-picture='${arguments[0]}']`).scrollIntoView({block: 'center'})", name)
        self.wait("return window.bench.drawn.has(arguments[0])", name)
        time.sleep(0.2)  # a picture above may have been drawn, and moved this one
        found: dict[str, float] = self.run(
            """const made = window.bench.drawn.get(arguments[0]);
               const place = made.place.getBoundingClientRect(), frame = made.view.frame.bbox;
               return {left: place.left + frame.left, top: place.top + frame.top, width: frame.width, height: frame.height};""",
            name,
        )
        return found

    def point_at(self, name: str, x: float, y: float, *, touch: bool = False) -> str:
        """Point at a picture, at shares of its frame from the left and from below; returns the text shown there."""
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:  # a picture above may have been drawn, and moved this one away
            frame = self.plot(name)
            at = (frame["left"] + frame["width"] * x, frame["top"] + frame["height"] * (1.0 - y))
            self.touch(*at) if touch else self.mouse("mouseMoved", *at)
            time.sleep(0.3)
            if shown_text := self.text_at_pointer(name):
                return shown_text
        raise AssertionError(f"{name} shows nothing at {x}, {y}: {self.log('browser')}")

    def text_at_pointer(self, name: str) -> str:
        """The text that the picture shows at the pointer; empty if none."""
        text: str = self.run(
            """const tip = document.querySelector(`[data-picture='${arguments[0]}'] .tip`);
               return tip.hidden ? "" : tip.innerText;""",
            name,
        )
        return text

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.cdp("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mouseMoved", *begin)
        self.mouse("mousePressed", *begin, button="left", buttons=1, clickCount=1)
        for share in (0.25, 0.5, 0.75, 1.0):
            at = tuple(a + (b - a) * share for a, b in zip(begin, end, strict=True))
            self.mouse("mouseMoved", *at, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", buttons=0, clickCount=1)

    def double_click(self, at: tuple[float, float]) -> None:
        for count in (1, 2):
            self.mouse("mousePressed", *at, button="left", buttons=1, clickCount=count)
            self.mouse("mouseReleased", *at, button="left", buttons=0, clickCount=count)

    def touch(self, x: float, y: float) -> None:
        self.cdp("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.cdp("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium, which drives the browser, is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("no browser here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(chromedriver))
    started.set_script_timeout(_PATIENCE_S)
    yield started
    started.quit()


@pytest.fixture
def tab(driver: Any) -> Iterator[Tab]:
    yield Tab(driver)
    driver.get("about:blank")


@pytest.fixture(scope="session")
def page_of() -> Callable[..., Path]:
    """Write a run's page, and return where it is."""
    from reports.run.page import run_pictures, write_html

    def write(report: Any) -> Path:
        write_html(report, run_pictures(report), report.folder.html)
        path: Path = report.folder.html
        return path

    return write
