"""The folder of a run: --run_dir, or a new one below runs/."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

from harness.records.run_folder import RunFolder


@contextmanager
def open_run_folder(verb: str, run_dir: Path | None) -> Iterator[RunFolder]:
    """A new folder for the run; one that stays empty, because nothing could be started, is taken away again."""
    path = _new_default_folder(verb) if run_dir is None else run_dir
    if path.exists() and any(path.iterdir()):
        raise click.BadParameter(f"{path} is not empty; name a new folder", param_hint="--run_dir")
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield RunFolder(path)
    finally:
        if not any(path.iterdir()):
            path.rmdir()


def _new_default_folder(verb: str) -> Path:
    """``runs/<time>-<verb>``, numbered where another run began in the same second."""
    stem = f"{datetime.now():%Y-%m-%d-%H%M%S}-{verb}"
    for name in (stem, *(f"{stem}-{number}" for number in range(2, 1000))):
        try:
            (Path("runs") / name).mkdir(parents=True)
        except FileExistsError:
            continue
        return Path("runs") / name
    raise click.BadParameter("too many runs began in this second; name a folder", param_hint="--run_dir")
