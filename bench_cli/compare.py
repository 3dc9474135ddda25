"""``bench compare``: compare runs, with a verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.conditions import ConditionOptions, allow_single, single_runs_refused
from bench_cli.declared import Concern, option, part, takes
from bench_cli.outputs import check_outputs, output_files, write_outputs
from bench_cli.searches import compare_searches, is_search
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from reports.compare.comparison import Arm
    from reports.compare.looks import Looks


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench compare``."""

    baseline: Path | None = option(
        None,
        type=click.Path(path_type=Path, file_okay=False),
        help="A run, or a folder of repeated runs, to compare every RUN with. Default: the first RUN.",
    )
    outputs: tuple[Path, ...] = output_files()
    conditions: ConditionOptions = part(ConditionOptions)
    allow_single: bool = allow_single()
    allow_different: bool = option(False, help="Compare invalid runs and runs of different work anyway.")
    allow_simulated: bool = option(False, help="Compare runs of 'bench simulate run' with measured ones.")


@cloup.command(
    name="compare",
    epilog="""\b
Examples:
  bench compare runs/before runs/after --output compare.html
  bench compare runs/before runs/after --fail_if 'p99_ttft>+5%' --fail_if 'p99_ttft>300ms'
  bench compare runs/now --baseline runs/release-1.0
  bench compare runs/search-before runs/search-after""",
)
@cloup.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), help="Runs, or folders of repeated runs.")
@takes(Options)
@one_blas_thread()
def command(options: Options, runs: tuple[Path, ...]) -> int:
    """Compare each run with the first, or with --baseline. For each metric: the difference, its interval, the verdict, and
    the smallest difference that these runs could have shown.

    Several runs of a configuration in one folder are compared as repeats; give an experiment's folder as the only
    argument. Runs of different work are refused. Two searches of 'bench capacity' are compared by the loads that they hold.
    """
    from reports.compare.comparison import compare
    from reports.compare.formats import COMPARISON

    judged = options.conditions
    judged.check()
    check_outputs(options.outputs)
    paths = runs if options.baseline is None else (options.baseline, *runs)
    if any(map(is_search, paths)):
        if judged.slo or judged.fail_if:
            raise click.UsageError("--slo and --fail_if judge runs; two searches for capacity are compared by what they hold")
        for name in options.given("allow_single", "allow_different", "allow_simulated"):
            raise click.UsageError(f"--{name} is for runs; two searches for capacity are compared by what they hold")
        _check_distinct(paths)
        return compare_searches(paths, options.outputs)
    arms, runs_paired, looks = _arms(paths, judged)
    if judged.judges_changes and not options.allow_single:
        single = [arm.name for arm in arms[1:] if len(arm.runs) == len(arms[0].runs) == 1]
        if single:
            raise single_runs_refused([arms[0].name, *single])
    comparison = compare(
        arms,
        judged.conditions,
        allow_different=options.allow_different,
        allow_simulated=options.allow_simulated,
        runs_paired=runs_paired,
        looks=looks,
    )
    click.echo(COMPARISON.terminal_text(comparison))
    write_outputs(comparison, options.outputs, COMPARISON)
    return ExitStatus.VALID if judged.passed(comparison.conditions) else ExitStatus.FAILED


def _arms(paths: tuple[Path, ...], options: ConditionOptions) -> tuple[list[Arm], bool, Looks | None]:
    """The arms, one per path or those of one experiment; whether their runs are paired: made in turn, in blocks; and the looks
    at an experiment that ends when it is decided.
    """
    from bench_records.experiment import ExperimentFolder
    from reports.compare.comparison import looks_of, read_arm, read_experiment, same_run

    if len(paths) > 1:
        _check_distinct(paths)
        arms = [read_arm(path, options.objectives) for path in paths]
        if (twice := same_run([run for arm in arms for run in arm.runs])) is not None:
            one, other = twice
            found = f"{one} is on two sides" if one == other else f"{one} and {other} hold the same run"
            raise click.UsageError(f"{found}, and a run does not differ from itself")
        return _named_apart(paths, arms), False, None
    if ExperimentFolder(paths[0]).plan.exists():
        folder = ExperimentFolder(paths[0])
        return read_experiment(folder, options.objectives), True, looks_of(folder)
    raise click.UsageError("give at least two runs, or the folder of an experiment: bench compare BEFORE AFTER")


def _named_apart(paths: tuple[Path, ...], arms: list[Arm]) -> list[Arm]:
    """The arms, those of one name by their paths."""
    named = Counter(arm.name for arm in arms)
    return [arm if named[arm.name] == 1 else replace(arm, name=str(path)) for path, arm in zip(paths, arms, strict=True)]


def _check_distinct(paths: tuple[Path, ...]) -> None:
    """Raises UsageError for a run that would be compared with itself, which shows nothing."""
    resolved = [path.resolve() for path in paths]
    twice = next((path for number, path in enumerate(paths) if resolved[number] in resolved[:number]), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is given twice, and a run does not differ from itself; give two runs")
