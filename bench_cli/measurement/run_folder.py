"""The folder of a run from the command line: opened at --run_dir, and shown once it is recorded."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import click

from bench_cli.private_files import files_as_private_as, private_files
from bench_records.run_folder import RunFolder
from harness.errors import RunError
from harness.host.blas_threads import one_blas_thread
from reports.criteria import Criterion
from reports.run import console
from reports.run.answer import render_answer
from reports.run.writing import write_reports
from reports.run_report import RunReport, read_run

_OWNERS_ALONE = 0o700
ANSWER, FULL = "console", "full"
_TEXTS = {ANSWER: render_answer, FULL: console.render}


@contextmanager
def open_run_folder(verb: str, run_dir: Path | None, shared: bool) -> Iterator[RunFolder]:
    """A new folder for the run; removed again if it stays empty, because nothing could be started.

    It and its files are the user's alone unless ``shared``.
    """
    with private_files(shared), _opened(verb, run_dir) as folder:
        if not shared:
            folder.path.chmod(_OWNERS_ALONE)  # one that existed
        yield folder


@contextmanager
def _opened(verb: str, run_dir: Path | None) -> Iterator[RunFolder]:
    path = _new_default_folder(verb) if run_dir is None else run_dir
    try:
        if path.exists() and any(path.iterdir()):
            raise click.BadParameter(f"{path} is not empty; name a new folder", param_hint="--run_dir")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        yield RunFolder(path)
    finally:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
            if run_dir is None:
                with suppress(OSError):  # other runs are in it
                    path.parent.rmdir()


def _new_default_folder(verb: str) -> Path:
    """``runs/<time>-<verb>``, numbered where another run started in the same second."""
    stem = f"{datetime.now():%Y-%m-%d-%H%M%S}-{verb}"
    for name in (stem, *(f"{stem}-{number}" for number in range(2, 1000))):
        try:
            (Path("runs") / name).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise _not_writable(Path("runs") / name, error) from error
        return Path("runs") / name
    raise click.BadParameter("too many runs started in this second; name a folder", param_hint="--run_dir")


def _not_writable(path: Path, error: OSError) -> click.BadParameter:
    return click.BadParameter(
        f"{path} cannot be made ({error.strerror}); name a folder that you may write to", param_hint="--run_dir"
    )


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
