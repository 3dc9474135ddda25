"""Files that options name: ``--output`` of compare and trend, in the format of the file's suffix, ``--html``, ``--json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from bench_cli.declared import option
from bench_records.whole_file import written_whole
from reports.render.plain_text import json_text, printable

if TYPE_CHECKING:
    from reports.page.formats import Formats
    from reports.page.page import Page

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


def page_file() -> Path | None:
    """The field of ``--html``."""
    return option(None, type=click.Path(path_type=Path, dir_okay=False), help="Write a page with pictures to this file.")


def check_outputs(paths: Sequence[Path]) -> None:
    """Raises BadParameter for a suffix of no known format, or a folder that is not there, before anything is computed."""
    for path in paths:
        if path.suffix not in (".html", ".json", ".md", ".csv"):
            raise click.BadParameter(
                f"{printable(str(path))}: the name must end with .html, .json, .md or .csv", param_hint="--output"
            )
        check_folder("--output", path)


def check_folder(option_name: str, path: Path | None) -> None:
    """Raises BadParameter for a file in a folder that is not there, and as ``check_name``; None is no file."""
    if path is None:
        return
    check_name(option_name, path)
    if not path.parent.is_dir():
        raise click.BadParameter(
            f"{printable(str(path))}: there is no folder {printable(str(path.parent))}", param_hint=option_name
        )


def check_name(option_name: str, path: Path) -> None:
    """Raises BadParameter for a name that is not UTF-8, by which no Parquet file can be opened."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter(
            f"{printable(str(path))}: the name is not UTF-8; give another one", param_hint=option_name
        ) from error


def write_outputs(result: Result, paths: Sequence[Path], formats: Formats[Result]) -> None:
    """Write each file whole or not at all, and print its path. Raises ClickException."""
    for path in paths:
        with written_output("--output", path) as temporary:
            formats.write(result, path.suffix, temporary)
        click.echo(f"\nWritten: {printable(str(path))}")


def write_page_file(path: Path, page: Page) -> None:
    """Write the file of ``--html`` whole or not at all, and print its path. Raises ClickException."""
    from reports.page.page import write_page

    with written_output("--html", path) as temporary:
        write_page(page, temporary)
    click.echo(f"\nWritten: {printable(str(path))}")


def write_json_file(path: Path, document: Mapping[str, object]) -> None:
    """Write the file of ``--json`` whole or not at all, and print its path. Raises ClickException."""
    with written_output("--json", path) as temporary:
        temporary.write_text(json_text(document), encoding="utf-8")
    click.echo(f"\nWritten: {printable(str(path))}")


@contextmanager
def written_output(option_name: str, path: Path) -> Iterator[Path]:
    """As ``written_whole``, for the file of an option. Raises ClickException where it cannot be written."""
    with write_errors(option_name, path), written_whole(path) as temporary:
        yield temporary


@contextmanager
def write_errors(option_name: str, path: Path) -> Iterator[None]:
    """Raises ClickException for an OSError of what writes the file of an option."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(
            f"{option_name} {printable(str(path))} cannot be written: {error.strerror or error}"
        ) from error
