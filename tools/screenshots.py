"""Make the pictures of a page in docs/images: on a desktop in light and dark, and on a phone.

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
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_PATIENCE_S = 60.0
# name, width, height, theme, the element at the top
_OF_REPORT = (
    ("report", 1280, 1050, "light", "body"),
    ("report-pictures", 1280, 1080, "light", "[data-picture='latency-by-percentile']"),
    ("report-dark", 1280, 1000, "dark", "[data-picture='latency-over-time']"),
    ("report-server", 1280, 1100, "light", "[data-picture='server-requests']"),
    ("report-phone", 390, 1400, "light", "body"),
    ("report-phone-dark", 390, 1500, "dark", "[data-picture='latency-by-percentile']"),
)
_OF_COMPARISON = (
    ("compare", 1280, 1720, "light", "body"),
    ("compare-phone", 390, 1500, "dark", "[data-picture='arm1-changes']"),
)


def main() -> None:
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    page = Path(sys.argv[1]).resolve()
    shots = {"report.html": _OF_REPORT, "compare.html": _OF_COMPARISON}.get(page.name)
    if shots is None:
        sys.exit(f"{page} is named neither report.html nor compare.html")
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parents[1] / "docs" / "images")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            for name, width, height, theme, top in shots:
                set_view(driver, width, height, theme)
                shoot(driver, page, folder / f"{name}.png", top)
        finally:
            driver.quit()


def set_view(driver: Any, width: int, height: int, theme: str) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})


def shoot(driver: Any, page: Path, path: Path, top: str) -> None:
    driver.get(page.as_uri())
    end = time.monotonic() + _PATIENCE_S
    while driver.execute_script("return document.documentElement.dataset.pictures") != "drawn":
        if time.monotonic() > end:
            sys.exit(f"{page} was not drawn")
        time.sleep(0.1)
    found = driver.execute_script("const e = document.querySelector(arguments[0]); e && e.scrollIntoView(); return !!e", top)
    if not found:
        print(f"left out {path}: the page has no {top}")
        return
    time.sleep(1.0)
    shot = Image.open(io.BytesIO(base64.b64decode(driver.get_screenshot_as_base64())))
    shot.convert("RGB").save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
