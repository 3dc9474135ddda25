"""Searches for capacity as arguments of ``bench compare`` and ``bench report``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.outputs import write_outputs
from bench_cli.private_files import files_as_private_as
from bench_errors import ExitStatus
from bench_records.search import SearchFolder
from bench_records.settings import RankingFolder

if TYPE_CHECKING:
    from reports.render.picture import Picture

_SUFFIXES = {"markdown": ".md", "json": ".json", "csv": ".csv", "html": ".html"}


def is_search(path: Path) -> bool:
    """Whether the folder holds a search."""
    return SearchFolder(path).plan.exists()


def compare_searches(paths: Sequence[Path], outputs: Sequence[Path]) -> ExitStatus:
    """Compare the second search with the first, print the verdict, and write ``outputs``.

    Raises UsageError for another number of folders, or runs among them; RunFolderError, NotComparableError.
    """
    from reports.capacity import comparison
    from reports.capacity.comparison_page import CAPACITY_COMPARISON
    from reports.capacity.reading import read_capacity

    if len(paths) != 2 or not all(map(is_search, paths)):
        raise click.UsageError("a search for capacity is compared with another: give the folders of two searches")
    names = [path.resolve().name for path in paths]
    if names[0] == names[1]:
        names = [str(path) for path in paths]
    compared = comparison.compare_searches(
        *(comparison.NamedSearch(name, read_capacity(SearchFolder(path))) for name, path in zip(names, paths, strict=True))
    )
    click.echo(CAPACITY_COMPARISON.terminal_text(compared))
    write_outputs(compared, outputs, CAPACITY_COMPARISON)
    return ExitStatus.VALID


def is_ranking(path: Path) -> bool:
    """Whether the folder holds the searches of several settings."""
    return RankingFolder(path).plan.exists()


def report_search(path: Path, form: str, plots: Path | None) -> ExitStatus:
    """Write the documents of a search anew, and print one: the text for a terminal, or the file of the format ``form``."""
    from reports.capacity.formats import CAPACITY
    from reports.capacity.pictures import capacity_pictures
    from reports.capacity.reading import read_capacity

    capacity = read_capacity(SearchFolder(path))
    with files_as_private_as(path):
        page = CAPACITY.write_all(capacity, path)
    return _show(page, form, lambda: CAPACITY.terminal_text(capacity), plots, lambda: capacity_pictures(capacity))


def report_ranking(path: Path, form: str, plots: Path | None) -> ExitStatus:
    """The same of the searches of several settings."""
    from reports.capacity.ranking_page import RANKING, ranking_pictures, write_ranking
    from reports.capacity.reading import read_ranking

    ranking = read_ranking(RankingFolder(path))
    with files_as_private_as(path):
        page = write_ranking(ranking, path)
    return _show(page, form, lambda: RANKING.terminal_text(ranking), plots, lambda: ranking_pictures(ranking))


def _show(
    page: Path, form: str, text: Callable[[], str], plots: Path | None, pictures: Callable[[], Sequence[Picture]]
) -> ExitStatus:
    """Print the text, or the file beside the page in the format ``form``; then write the pictures into ``plots``."""
    from reports.render.plain_text import printable

    if form in _SUFFIXES:
        with page.with_suffix(_SUFFIXES[form]).open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        click.echo(text())
    click.echo(f"\n{page.stem.capitalize()}: {printable(str(page))}", err=form in _SUFFIXES)
    if plots is not None:
        from reports.render.plots import write_plots

        write_plots(pictures(), plots)
    return ExitStatus.VALID
