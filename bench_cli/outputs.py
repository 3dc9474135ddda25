"""The option ``--output FILE`` of compare and trend: a result as a file, in the format of the file's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from bench_cli.declared import option
from bench_records.whole_file import written_whole
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from reports.page.formats import Formats

Result = TypeVar("Result")


def output_files() -> tuple[Path, ...]:
    """The field of ``--output``."""
    return option(
        (),
        "-o",
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the result to a file; the suffix selects the format: .html, .json, .md (for a pull request) or .csv. "
        "Repeatable.",
    )


def check_outputs(paths: Sequence[Path]) -> None:
    """Raises BadParameter for a suffix of no known format, or a folder that is not there, before anything is computed."""
    for path in paths:
        if path.suffix not in (".html", ".json", ".md", ".csv"):
            raise click.BadParameter(f"{path}: the name must end with .html, .json, .md or .csv", param_hint="--output")
        if not path.parent.is_dir():
            raise click.BadParameter(f"{path}: there is no folder {path.parent}", param_hint="--output")


def write_outputs(result: Result, paths: Sequence[Path], formats: Formats[Result]) -> None:
    """Write each file whole or not at all, and print its path. Raises ClickException."""
    for path in paths:
        try:
            with written_whole(path) as temporary:
                formats.write(result, path.suffix, temporary)
        except OSError as error:
            raise click.ClickException(
                f"--output {printable(str(path))} cannot be written: {error.strerror or error}"
            ) from error
        click.echo(f"\nWritten: {printable(str(path))}")
