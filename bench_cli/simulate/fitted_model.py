"""The model of a file, for the verbs that predict with it."""

from __future__ import annotations

from pathlib import Path

import click

from reports.render.plain_text import printable
from simulator.errors import SimulatorError
from simulator.model import Model, read_model
from simulator.plausible import implausible


def read_fitted(path: Path) -> Model:
    """The model in ``path``; stderr says why its fit called it unfit for use, and what is doubtful in its runs. Raises
    SimulatorError.
    """
    model = read_model(path)
    problem = implausible(model)
    if problem is not None:
        raise SimulatorError(f"{path} is not a valid fitted model: {problem}. Fit it again, or undo what was edited")
    for sentence in (*model.unfit, *model.doubts):
        click.echo(printable(f"{path.name}: {sentence}."), err=True)
    return model
