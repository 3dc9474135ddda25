"""The runs that a verb of ``bench simulate`` reads."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from bench_records.run_folder import RunFolder


def _each_once(context: click.Context, parameter: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Raises UsageError: a run that counts twice makes ranges narrower, and shows nothing more."""
    tables = [(RunFolder(path).requests if path.is_dir() else path).resolve() for path in paths]
    twice = next((path for number, path in enumerate(paths) if tables[number] in tables[:number]), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is given twice, and would count as two runs; give each run once", context)
    return paths


runs_argument = cloup.argument(
    "runs",
    metavar="RUN...",
    nargs=-1,
    required=True,
    callback=_each_once,
    type=click.Path(path_type=Path, exists=True),
    help="Folders of streamed runs, or the requests.parquet of each.",
)
