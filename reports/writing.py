"""Writing the files of a report into the run's folder: ``bench report``, and the end of every measurement."""

from __future__ import annotations

from pathlib import Path

from reports.csv_file import write_csv
from reports.html import write_html
from reports.markdown import write_markdown
from reports.pictures.of_run import pictures_of
from reports.run_report import RunReport
from reports.summary_json import write_summary


def write_reports(report: RunReport, plots: Path | None = None) -> None:
    """Write ``summary.json``, ``requests.csv``, ``report.md`` and ``report.html`` into the run's folder, and each picture as
    PNG and SVG into ``plots`` where it names a folder. Raises OSError.
    """
    write_summary(report, report.folder.summary)
    write_csv(report, report.folder.csv)
    write_markdown(report, report.folder.markdown)
    pictures = pictures_of(report)
    write_html(report, pictures, report.folder.html)
    if plots is not None:
        from reports.plots import write_plots  # matplotlib takes a second to import, and most runs want no files of it

        write_plots(pictures.all, plots)
