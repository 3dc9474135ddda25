"""``bench experiment``: configurations in turn, then compared."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.conditions import ConditionOptions
from bench_cli.declared import Concern, option, part, takes
from bench_cli.experiments.options import SeriesOptions
from bench_cli.forwarded_options import FORWARDS_OPTIONS, run_arguments
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from bench_records.experiment import ExperimentFolder, PlannedArm, UntilDecided
    from bench_records.run_folder import RunFolder
    from reports.compare.comparison import Comparison
    from reports.criteria import Criterion
    from reports.run_report import RunReport

_DECIDED = "decided"


def _read_until(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Callback of --until: "decided", or the name of the measure that decides before it. Raises BadParameter."""
    if text is None:
        return None
    from reports.compare.measures import MEASURES

    *measure, decided = text.lower().split() or [""]
    names = [known.name for known in MEASURES]
    if decided != _DECIDED or len(measure) > 1 or not set(measure) <= set(names):
        problem = f"{text!r}: write decided, or a measure before it, for example 'p50_ttft decided': {', '.join(names)}"
        raise click.BadParameter(problem, context, parameter)
    return " ".join([*measure, decided])


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench experiment``."""

    arms: tuple[str, ...] = option(
        (),
        "--arm",
        metavar="NAME=OPTIONS",
        help="A configuration: a name, and the options that it adds; the first is the baseline. Give at least two.",
    )
    until: str | None = option(
        None,
        metavar="[MEASURE] decided",
        callback=_read_until,
        help="End when the comparison has a verdict in the measure, p99 TTFT by default: it looks after each block from the "
        "third on, and its intervals pay for the looks.",
    )
    max_repeats: int = option(10, type=click.IntRange(3, 1000), help="With --until: blocks at most, decided or not.")
    conditions: ConditionOptions = part(ConditionOptions)
    series: SeriesOptions = part(SeriesOptions)

    @property
    def until_decided(self) -> UntilDecided | None:
        """The end that --until describes. Raises UsageError for options that have no effect."""
        from bench_records.experiment import UntilDecided

        if self.until is None:
            for name in self.given("max_repeats"):
                raise click.UsageError(f"--{name} limits --until decided; without it give --repeats")
            return None
        for name in self.given("repeats"):
            raise click.UsageError(f"--{name} is a fixed number of blocks; with --until give --max_repeats")
        return UntilDecided(self.max_repeats, self.until.removesuffix(_DECIDED).strip() or None)


@cloup.command(
    name="experiment",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Example:
  bench experiment --arm 'wait=--batch_scheduler_policy guaranteed_no_evict' \\
      --arm 'evict=--batch_scheduler_policy max_utilization' --repeats 5 dataset --request_rate 10
  bench experiment --until decided --max_repeats 10 --arm 'a=' --arm 'b=--max_num_tokens 512' dataset --request_rate 10""",
)
@takes(Options)
@run_arguments
@click.pass_context
def command(context: click.Context, options: Options, arguments: tuple[str, ...]) -> int:
    """Run every arm once per block, in an order drawn anew for each block, so that drift does not decide; then compare.
    With --until decided it ends as soon as the comparison has a verdict.

    Every run deploys the embedded pipeline anew. With --url, the server is not restarted between runs; use
    --before_each to restart it.
    All arms of a block send the same requests at the same times; every block draws others.
    The verdict is in the experiment's folder, as compare.html, compare.md, compare.csv and compare.json.
    """
    from bench_cli.experiments.series import Series, run_series
    from reports.compare.formats import COMPARISON

    judged, until = options.conditions, options.until_decided
    judged.check()
    if judged.judges_changes and options.series.repeats == 1:
        raise click.UsageError("--fail_if judges a change by repeated runs; give --repeats 2 or more (5 is the default)")
    asked = options.series if until is None else replace(options.series, repeats=until.most_blocks)
    planned, looks = _planned(options.arms), LooksAtBlocks(judged)
    series = Series("experiment", "--arm", asked, arguments, context, until)
    folder = run_series(series, planned, None if until is None else looks.is_decided)
    comparison = looks.compare(folder)
    click.echo(COMPARISON.terminal_text(comparison))
    click.echo(f"\nExperiment: {COMPARISON.write_all(comparison, folder.path)}")
    if judged.judges_changes and any(pair.single_runs for pair in comparison.comparisons):
        raise click.ClickException(
            "--fail_if judges a change by repeated runs, and only one block is valid; the reports of the other runs say why. "
            f"To judge these starts alone: {_judging_starts(folder.path, judged)}"
        )
    return ExitStatus.VALID if judged.passed(comparison.conditions) else ExitStatus.FAILED


def _judging_starts(folder: Path, judged: ConditionOptions) -> str:
    """The command that judges single starts by the same conditions."""
    criteria = [word for criterion in judged.slo for word in ("--slo", str(criterion))]
    conditions = [word for condition in judged.fail_if for word in ("--fail_if", condition.text)]
    return shlex.join(["bench", "compare", str(folder), "--allow_single", *criteria, *conditions])


class LooksAtBlocks:
    """Compares the runs of an experiment as far as they are recorded; each is read once. ``judged`` is what has to hold."""

    def __init__(self, judged: ConditionOptions) -> None:
        self._judged = judged
        self._read: dict[Path, RunReport] = {}

    def compare(self, folder: ExperimentFolder) -> Comparison:
        """Raises NotComparableError, as NoValidBlockError where no block is valid, and RunFolderError where none is whole."""
        from reports.compare.comparison import compare, looks_of, read_experiment
        from reports.errors import NotComparableError

        arms = read_experiment(folder, self._judged.objectives, self._read_once)
        try:
            return compare(arms, self._judged.conditions, runs_paired=True, looks=looks_of(folder))
        except NotComparableError as error:
            raise NotComparableError(f"{error} The option is that of: bench compare {folder.path} --allow_different") from error

    def is_decided(self, folder: ExperimentFolder) -> bool:
        """Whether the measure that decides has a verdict in every comparison, which is shown on stderr."""
        from bench_records.run_folder import RunFolderError
        from reports.compare.looks import FIRST_LOOK
        from reports.compare.tables import headline
        from reports.errors import NoValidBlockError

        try:
            pairs = self.compare(folder).comparisons
        except (RunFolderError, NoValidBlockError):
            return False
        if len(pairs[0].arm.runs) < FIRST_LOOK:
            return False
        for pair in pairs:
            click.echo(headline(pair), err=True)
        return all(pair.deciding is not None and pair.deciding.verdict.differs for pair in pairs)

    def _read_once(self, folder: RunFolder, criteria: Sequence[Criterion] | None) -> RunReport:
        from reports.run_report import read_run

        if folder.path not in self._read:
            self._read[folder.path] = read_run(folder, criteria)
        return self._read[folder.path]


def _planned(arms: tuple[str, ...]) -> list[PlannedArm]:
    planned = [_arm(text) for text in arms]
    if len(planned) < 2 or len({arm.name for arm in planned}) < len(planned):
        raise click.UsageError("give at least two --arm NAME=OPTIONS, with different names")
    return planned


def _arm(text: str) -> PlannedArm:
    from bench_records.experiment import PlannedArm

    name, equals, options = text.partition("=")
    if not equals or not name.strip() or name.strip().startswith("-"):
        raise click.BadParameter(f"{text!r}: write NAME=OPTIONS, such as 'evict=--max_num_tokens 512'", param_hint="--arm")
    try:
        return PlannedArm(name.strip(), tuple(shlex.split(options)))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--arm") from error
