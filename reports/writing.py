"""Writing the files of a report into the run's folder: ``bench report``, and the end of every measurement."""

from __future__ import annotations

from reports.csv_file import write_csv
from reports.html import write_html
from reports.pictures.of_run import pictures_of
from reports.run_report import RunReport
from reports.summary_json import write_summary


def write_reports(report: RunReport) -> None:
    """Write ``summary.json``, ``requests.csv`` and ``report.html`` into the run's folder. Raises OSError."""
    write_summary(report, report.folder.summary)
    write_csv(report, report.folder.csv)
    write_html(report, pictures_of(report), report.folder.html)
