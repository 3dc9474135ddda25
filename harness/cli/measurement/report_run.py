"""A recorded run, read and shown: the end of every measurement, of ``bench report`` and of ``bench recover``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harness.errors import RunError
from harness.records.run_folder import RunFolder
from reports.metrics.goodput import Objective
from reports.run.console import render
from reports.run.writing import write_reports
from reports.run_report import RunReport, read_run


def show_run(
    folder: RunFolder, plots: Path | None = None, form: str = "console", objectives: Sequence[Objective] | None = None
) -> RunReport:
    """Write a run's reports and print what ``form`` says: the console's text, or the file of that format as it was written.

    Raises RunFolderError, and RunError where the reports cannot be written; the console's text comes all the same.
    """
    report = read_run(folder, objectives)
    if form == "console":
        click.echo(render(report))
    try:
        write_reports(report, plots)
    except OSError as error:
        raise RunError(
            f"the run is recorded, but its report cannot be written ({error}): make room, then run: bench report {folder.path}"
        ) from error
    if form != "console":
        _print_file(folder, form)
    return report


def _print_file(folder: RunFolder, form: str) -> None:
    files: dict[str, Path] = {"markdown": folder.markdown, "json": folder.summary, "csv": folder.csv, "html": folder.html}
    with files[form].open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()
