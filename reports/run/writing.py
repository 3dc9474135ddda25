"""Writing the files of a report into the run's folder: ``bench report``, and the end of every measurement."""

from __future__ import annotations

from pathlib import Path

from bench_records.whole_file import written_whole
from reports.run.csv_file import write_csv
from reports.run.markdown import write_markdown
from reports.run.page import run_pictures, write_html
from reports.run.summary_json import write_summary
from reports.run_report import RunReport


def write_reports(report: RunReport, plots: Path | None = None) -> None:
    """Write ``summary.json``, ``requests.csv``, ``report.md`` and ``report.html`` into the run's folder, each whole, and each
    picture as PNG and SVG into ``plots`` where it names a folder. Raises OSError.
    """
    folder = report.folder
    for path, write in ((folder.summary, write_summary), (folder.csv, write_csv), (folder.markdown, write_markdown)):
        with written_whole(path) as temporary:
            write(report, temporary)
    pictures = run_pictures(report)
    with written_whole(folder.html) as temporary:
        write_html(report, pictures, temporary)
    if plots is not None:
        from reports.render.plots import write_plots  # matplotlib takes a second to import, and most runs want no files of it

        write_plots(pictures.all, plots)
