"""Time to open ``report.html`` of a run of 100,000 requests with 20 tokens each, in headless Chromium.

Creates the run and its page (not measured), then opens it several times, each in a new browser without cache. Prints medians in
ms from the start of the navigation, and the steal share of the machine's CPU time:

- first paint: verdict, numbers and tables are readable (First Contentful Paint);
- load: the end of the load event;
- first picture: the first one is drawn and interactive;
- all pictures: the last one is drawn, in idle time; pictures that the reader scrolls to come first;
- CPU: CPU time of the page's main thread until then.

Run: python -m benchmarks.open_report [--requests 100000] [--times 5]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from bench_records.run_folder import RunFolder
from benchmarks.open_loop import stolen_share
from benchmarks.report_a_million import make_in_child
from reports.run.page import run_pictures, write_html
from reports.run_report import read_run

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip
_PATIENCE_S = 120.0
_SETTLE_S = 3.0  # a new browser is busy with its own start
_NAMES = ("first paint", "load", "first picture", "all pictures", "CPU")
# In ms from the start of the navigation; null before the event.
_TIMES = """
const paint = performance.getEntriesByName("first-contentful-paint")[0];
const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
const made = (name) => performance.getEntriesByName(name)[0]?.startTime;
return [paint?.startTime, load || null, made("bench-first-picture"), made("bench-all-pictures")];
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if shutil.which("chromedriver") is None:
        sys.exit("chromedriver is not on PATH; install a browser with tools/browser.sh")
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder(Path(temporary) / "run")
        make_in_child(folder, options.requests)
        report = read_run(folder)
        write_html(report, run_pictures(report), folder.html)
        print(f"report.html of {options.requests:,} requests: {folder.html.stat().st_size / 1e6:.2f} MB")
        with stolen_share() as stolen:
            opened = [open_once(folder.html) for _ in range(options.times)]
    for name, values in zip(_NAMES, zip(*opened, strict=True), strict=True):
        print(f"  {name:>13}: median {statistics.median(values):,.0f} ms of {', '.join(f'{v:,.0f}' for v in values)}")
    print(f"  stolen by the machine's host: {stolen():.1%} of its CPU time")


def open_once(page: Path) -> list[float]:
    with tempfile.TemporaryDirectory() as profile:
        driver = started(profile)
        try:
            driver.get("data:text/html,<p>warm")
            time.sleep(_SETTLE_S)
            driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            driver.get(page.as_uri())
            end = time.monotonic() + _PATIENCE_S
            while time.monotonic() < end:
                times: list[float | None] = driver.execute_script(_TIMES)
                known = [value for value in times if value is not None]
                if len(known) == len(times):
                    return [*known, _cpu_ms(driver)]
                time.sleep(0.1)
            sys.exit(f"{page} was not drawn in {_PATIENCE_S:.0f} s: {driver.get_log('browser')}")
        finally:
            driver.quit()


def _cpu_ms(driver: Any) -> float:
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1e3 * float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def started(profile: str) -> Any:
    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


if __name__ == "__main__":
    main()
