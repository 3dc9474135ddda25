"""``bench simulate``: fit a server to measured runs, and compare what it predicts with others."""

from __future__ import annotations

import cloup

from bench_cli.simulate.fit import fit
from bench_cli.simulate.run import run
from bench_cli.simulate.validate import validate


@cloup.group(
    name="simulate",
)
def command() -> None:
    """Fit a simulated server to measured runs, and compare what it predicts with other runs.

    The tokens of one step of an engine arrive together, so the records of any streamed run show its steps: how long they took,
    and which requests were in them. 'fit' makes a model of them, 'validate' says what that model is good for.
    """


command.add_command(fit)
command.add_command(run)
command.add_command(validate)
