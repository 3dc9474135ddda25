"""``bench compare``: compare runs, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.outputs import check_outputs, output_option, write_outputs
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from reports.compare.comparison import Arm


@cloup.command(
    name="compare",
    short_help="Compare runs, with a verdict.",
    epilog="""\b
Examples:
  bench compare runs/before runs/after --output compare.html
  bench compare runs/before runs/after --fail_if 'p99_ttft > +5%'
  bench compare runs/now --baseline runs/release-1.0""",
)
@cloup.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), help="Runs, or folders of repeated runs.")
@cloup.option(
    "--baseline",
    type=click.Path(path_type=Path, file_okay=False),
    help="A run, or a folder of repeated runs, to compare every RUN with. Default: the first RUN.",
)
@output_option
@cloup.option(
    "--fail_if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 when the evidence shows it: 'p99_ttft > +5%', 'request_throughput < -2%'. Repeatable.",
)
@cloup.option(
    "--allow_single",
    is_flag=True,
    help="Let --fail_if judge one run each, where a change and the variation between starts look alike.",
)
@cloup.option("--allow_different", is_flag=True, help="Compare runs of different work, and invalid ones, too.")
@one_blas_thread()
def command(
    runs: tuple[Path, ...],
    baseline: Path | None,
    outputs: tuple[Path, ...],
    fail_if: tuple[str, ...],
    allow_single: bool,
    allow_different: bool,
) -> int:
    """Compare each run with the first, or with --baseline: per metric the difference with its interval, and whether the
    evidence shows better, worse, or neither, with the smallest difference that these runs could have shown.

    Several runs of a configuration in one folder are compared as repeats; the folder of an experiment is given alone.
    Runs of different work are refused.
    """
    from reports.compare.comparison import compare
    from reports.compare.conditions import parse_condition
    from reports.compare.console import render
    from reports.compare.writing import WRITERS
    from reports.errors import ConditionError

    check_outputs(outputs)
    try:
        conditions = [parse_condition(text) for text in fail_if]
    except ConditionError as error:
        raise click.BadParameter(str(error), param_hint="--fail_if") from error
    arms, runs_paired = _arms(runs if baseline is None else (baseline, *runs))
    if conditions and not allow_single:
        _check_repeated(arms)
    comparison = compare(arms, conditions, allow_different=allow_different, runs_paired=runs_paired)
    click.echo(render(comparison))
    write_outputs(comparison, outputs, WRITERS)
    return ExitStatus.FAILED if comparison.conditions_failed else ExitStatus.VALID


def _check_repeated(arms: list[Arm]) -> None:
    """Raise click.UsageError where the baseline and another arm have one run each."""
    single = [arm.name for arm in arms[1:] if len(arm.runs) == len(arms[0].runs) == 1]
    if single:
        raise click.UsageError(
            f"--fail_if needs repeated runs: of one run each ({arms[0].name}, {', '.join(single)}) no evidence separates a "
            "change from the variation between starts. Give folders of repeated runs, or the folder of a 'bench experiment'; "
            "or add --allow_single to judge these starts alone."
        )


def _arms(paths: tuple[Path, ...]) -> tuple[list[Arm], bool]:
    """The arms, one per path or those of one experiment, and whether their runs are paired: made in turn, in blocks."""
    from harness.records.experiment import ExperimentFolder
    from reports.compare.comparison import read_arm, read_experiment

    if len(paths) > 1:
        return [read_arm(path) for path in paths], False
    if ExperimentFolder(paths[0]).plan.exists():
        return read_experiment(ExperimentFolder(paths[0])), True
    raise click.UsageError("give at least two runs, or the folder of an experiment: bench compare BEFORE AFTER")
