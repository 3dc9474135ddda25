"""The folder of an experiment, a sweep or a search, in which one process measures at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click

from bench_cli.measurement.run_folder import not_writable
from bench_cli.outputs import check_name
from bench_records.folder_lock import exclusive_lock


@contextmanager
def held_alone(path: Path) -> Iterator[None]:
    """Make the folder if there is none, and hold it; it is removed again if it stays empty.

    Raises ClickException where another process holds it: its runs and these would be load for each other. Raises BadParameter
    where it cannot be made.
    """
    check_name("--experiment_dir", path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(path, error, "--experiment_dir") from error
    with ExitStack() as held:
        try:
            held.enter_context(exclusive_lock(path))
        except BlockingIOError as error:
            raise click.ClickException(
                f"another bench process measures in {path}; wait until it ends, or stop it and give the command again"
            ) from error
        try:
            yield
        finally:
            with suppress(OSError):  # it is not empty, or is gone
                path.rmdir()
