"""The files that ``bench report`` enters for a number, as Markdown."""

from __future__ import annotations

from tools.reference.markdown import table

_READ = (
    "bench_cli/report.py",
    "bench_cli/measurement/run_folder.py",
    "reports/run_report.py",
    "reports/metrics/run_metrics.py",
)
_WRITE = ("reports/run/writing.py", "reports/run/page.py")

PATHS = {
    "p99 TTFT": (*_READ, "reports/metrics/catalogue.py", "reports/statistics/percentiles.py", *_WRITE),
    "output token throughput": (*_READ, "reports/metrics/windows.py", "reports/metrics/output_events.py", *_WRITE),
    "goodput": (*_READ, "reports/metrics/goodput.py", "reports/metrics/output_events.py", *_WRITE),
}
"""The files that ``bench report`` enters for a number, in their order; at most 8 each."""


def paths_markdown() -> str:
    """One column for each number of ``PATHS``."""
    rows = ((str(place), *(f"`{file}`" for file in files)) for place, *files in zip(range(1, 9), *PATHS.values(), strict=True))
    return "\n".join(table(("", *PATHS), rows))
