"""Screenshots of a page for docs/images: on a desktop, light and dark, and on a phone.

Run: python tools/screenshots.py PAGE [FOLDER]        (PAGE: a run's report.html or a comparison's compare.html; needs a
browser: tools/browser.sh)
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_PATIENCE_S = 60.0


class Shot(NamedTuple):
    """One screenshot; ``top`` is a CSS selector of the element at the top."""

    name: str
    width: int
    height: int
    theme: str
    top: str


_OF_REPORT = (
    Shot("report", 1280, 1050, "light", "body"),
    Shot("report-pictures", 1280, 1080, "light", "[data-picture='latency-by-percentile']"),
    Shot("report-dark", 1280, 1000, "dark", "[data-picture='latency-over-time']"),
    Shot("report-server", 1280, 1100, "light", "[data-picture='server-requests']"),
    Shot("report-phone", 390, 1400, "light", "body"),
    Shot("report-phone-dark", 390, 1500, "dark", "[data-picture='latency-by-percentile']"),
)
_OF_COMPARISON = (
    Shot("compare", 1280, 1720, "light", "body"),
    Shot("compare-phone", 390, 1500, "dark", "[data-picture='arm1-changes']"),
)


def main() -> None:
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    page = Path(sys.argv[1]).resolve()
    shots = {"report.html": _OF_REPORT, "compare.html": _OF_COMPARISON}.get(page.name)
    if shots is None:
        sys.exit(f"{page} must be named report.html or compare.html")
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parents[1] / "docs" / "images")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            for shot in shots:
                shoot(driver, page, folder / f"{shot.name}.png", shot)
        finally:
            driver.quit()


def shoot(driver: Any, page: Path, path: Path, shot: Shot) -> None:
    size = {"width": shot.width, "height": shot.height, "deviceScaleFactor": 1, "mobile": shot.width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": shot.theme}]})
    driver.get(page.as_uri())
    end = time.monotonic() + _PATIENCE_S
    while driver.execute_script("return document.documentElement.dataset.pictures") != "drawn":
        if time.monotonic() > end:
            sys.exit(f"{page} was not drawn")
        time.sleep(0.1)
    scroll = "const e = document.querySelector(arguments[0]); e && e.scrollIntoView(); return !!e"
    if not driver.execute_script(scroll, shot.top):
        print(f"skipped {path}: the page has no {shot.top}")
        return
    time.sleep(1.0)
    image = Image.open(io.BytesIO(base64.b64decode(driver.get_screenshot_as_base64())))
    image.convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
