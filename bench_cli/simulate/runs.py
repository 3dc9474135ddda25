"""The runs that a verb of ``bench simulate`` reads."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

runs_argument = cloup.argument(
    "runs",
    metavar="RUN...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
    help="Folders of streamed runs, or the requests.parquet of each.",
)
