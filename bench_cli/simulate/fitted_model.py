"""The model of a file, for the verbs that predict with it."""

from __future__ import annotations

from pathlib import Path

import click

from reports.render.plain_text import printable
from simulator.model import Model, read_model


def read_fitted(path: Path) -> Model:
    """The model in ``path``; stderr says why where its fit called it unfit for use. Raises SimulatorError."""
    model = read_model(path)
    for finding in model.unfit:
        click.echo(printable(f"{path.name}: {finding}."), err=True)
    return model
