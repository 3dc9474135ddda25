"""A recorded run from the command line: its reports are written, and one of them is printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bench_cli.private_files import files_as_private_as
from bench_records.run_folder import RunFolder
from harness.errors import RunError
from harness.host.blas_threads import one_blas_thread
from reports.criteria import Criterion
from reports.run.console import render_answer
from reports.run.full import render
from reports.run.writing import write_reports
from reports.run_report import RunReport, read_run

ANSWER, FULL = "console", "full"
_TEXTS = {ANSWER: render_answer, FULL: render}


@one_blas_thread()
def show_run(
    folder: RunFolder, plots: Path | None = None, form: str = ANSWER, criteria: Sequence[Criterion] | None = None
) -> RunReport:
    """Write a run's reports and print it: the text ANSWER or FULL, or the report file of the format ``form``.

    Raises RunFolderError, and RunError where the reports cannot be written; a text is printed all the same.
    """
    report = read_run(folder, criteria)
    if form in _TEXTS:
        click.echo(_TEXTS[form](report))
    try:
        with files_as_private_as(folder.path):
            write_reports(report, plots)
    except OSError as error:
        raise RunError(
            f"the run is recorded, but its report cannot be written ({error}): make room, then run: bench report {folder.path}"
        ) from error
    if form not in _TEXTS:
        _print_file(folder, form)
    return report


def _print_file(folder: RunFolder, form: str) -> None:
    files: dict[str, Path] = {"markdown": folder.markdown, "json": folder.summary, "csv": folder.csv, "html": folder.html}
    with files[form].open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()
