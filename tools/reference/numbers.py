"""The files that compute a number of the report, and those that print it, as Markdown."""

from __future__ import annotations

from itertools import zip_longest

from tools.reference.markdown import table

_READ = (
    "bench_cli/report.py",
    "bench_cli/measurement/show.py",
    "reports/run_report.py",
    "reports/metrics/run_metrics.py",
)

COMPUTED = {
    "p99 TTFT": (
        *_READ,
        "reports/metrics/catalogue.py",
        "reports/metrics/metric.py",
        "reports/metrics/censoring.py",
        "reports/statistics/percentiles.py",
    ),
    "output token throughput": (
        *_READ,
        "reports/metrics/windows.py",
        "reports/metrics/catalogue.py",
        "reports/metrics/output_events.py",
    ),
    "goodput": (*_READ, "reports/metrics/goodput.py", "reports/metrics/output_events.py"),
}
"""The files that ``bench report`` enters for a number, in their order."""

PRINTED = {
    "the terminal": ("reports/run/console.py",),
    "the terminal, with `--full`": ("reports/run/full.py", "reports/run/rows.py", "reports/run/tables.py"),
    "`report.html`": ("reports/run/page.py", "reports/run/tables.py"),
    "`report.md`": ("reports/run/markdown.py", "reports/run/tables.py"),
    "`summary.json`": ("reports/run/summary_json.py",),
}
"""The files that print such a number, by output; ``reports/run/writing.py`` calls those that write files."""


def paths_markdown() -> str:
    """One column for each number of ``COMPUTED``, and one row for each output of ``PRINTED``."""
    files = zip_longest(*COMPUTED.values(), fillvalue="")
    computed = ((str(place), *(f"`{file}`" if file else "" for file in row)) for place, row in enumerate(files, start=1))
    printed = ((output, ", ".join(f"`{file}`" for file in of_output)) for output, of_output in PRINTED.items())
    return "\n".join([*table(("", *COMPUTED), computed), *table(("printed on", "in"), printed)])
