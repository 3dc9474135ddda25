"""Options of the output: the files of a run, and the criteria for its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, parsed
from reports.render.counts import counted

if TYPE_CHECKING:
    from reports.criteria import Criterion
    from reports.gates.gate import Gate, Status
    from reports.run_report import RunReport

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class OutputOptions(Concern, title="Output"):
    """The files to write. ``run_dir`` None: a new folder below ``runs``. ``full``: print every table."""

    run_dir: Path | None = option(None, type=_FOLDER, common=True, help="Folder of this run. Default: runs/<time>-<verb>.")
    full: bool = option(
        False, common=True, help="Print every table, upstream's included, and the findings with their evidence."
    )
    plots: Path | None = option(
        None, type=_FOLDER, help="Write each picture as PNG and SVG into this folder, in print quality."
    )
    op_stats_csv: Path | None = option(None, type=_FILE, help="Append upstream's statistics to this CSV file.")
    dump_perfetto_trace: bool = option(False, help="Write perfetto.json into the run's folder (ui.perfetto.dev).")
    shared_results: bool = option(
        False,
        help="Give the run's files the modes of your umask, for example so that a CI job can read them as another user. "
        "Default: 0600.",
    )


def _parse_slo(text: str) -> Criterion:
    from reports.criteria import parse_slo  # late, for it needs numpy

    return parse_slo(text)


def _valid_fail_if(text: str) -> str:
    from reports.criteria import parse_fail_if

    parse_fail_if(text)
    return text.strip()


@dataclass(frozen=True)
class CriteriaOptions(Concern, title="Output"):
    """Reference numbers to check against, and criteria. ``fail_if`` holds texts of the grammar of ``reports/criteria.py``.

    ``undecided``: "pass" or "fail", what an undecided gate of ``fail_if`` counts as.
    """

    check_perf_json: Path | None = option(
        None, type=_FILE, help='Check against reference numbers: {"key": {"Requests/Sec": 10, …}}.'
    )
    check_perf_key: str | None = option(None, help="Entry of --check_perf_json to check against.")
    check_perf_rtol: float = option(
        0.05, type=click.FloatRange(min=0), help="How much worse than its reference a metric may be, as a share of it."
    )
    check_perf_atol: float = option(
        0.0, type=click.FloatRange(min=0), help="The same in the metric's own unit, added to the share."
    )
    slo: tuple[Criterion, ...] = option(
        (),
        metavar="CRITERION",
        callback=parsed(_parse_slo),
        common=True,
        help="Objective for each request ('ttft<=200ms'; also tpot, e2e; adds goodput), or requirement on the run "
        "('p99_ttft<=300ms', 'goodput>=20'). Repeatable.",
    )
    fail_if: tuple[str, ...] = option(
        (),
        metavar="CRITERION",
        callback=parsed(_valid_fail_if),
        common=True,
        help="Exit with status 1 if the run's evidence shows this, for example 'p99_ttft>300ms'. Reports show what "
        "has to hold instead, p99_ttft<=300ms. Repeatable.",
    )
    undecided: str = option("pass", type=click.Choice(["pass", "fail"]), help="How an undecided --fail_if counts.")


def check_given(options: CriteriaOptions) -> None:
    """Raises UsageError for an option of a check or a gate that is not given, so that it has no effect."""
    if options.check_perf_json is None:
        for name in options.given("check_perf_key", "check_perf_rtol", "check_perf_atol"):
            raise click.UsageError(f"--{name} needs --check_perf_json, the file with the reference numbers")
    check_undecided(options, options.fail_if)


def check_undecided(options: Concern, fail_if: Sequence[object]) -> None:
    """Raises UsageError for --undecided without a gate of --fail_if, whose effect it sets."""
    if not fail_if and options.given("undecided"):
        raise click.UsageError("--undecided says how an undecided --fail_if counts: give --fail_if, or leave it out")


def check_criteria(slo: Sequence[Criterion], fail_if: Sequence[str], streaming: bool) -> None:
    """Raises UsageError for a criterion that needs token times in an unstreamed run, where all tokens come together."""
    if streaming or not (slo or fail_if):
        return
    for name, text, criterion in _as_given(slo, fail_if):
        if criterion.metric.streamed_only:
            raise click.UsageError(f"{name} {text} needs streamed answers (--streaming); use e2e")


def check_objectives(slo: Sequence[Criterion], fail_if: Sequence[str]) -> None:
    """Raises UsageError for a requirement of the run that counts requests by objectives, where there are none: it could never
    be decided. Objectives of classes judge those alone.
    """
    if not (slo or fail_if):
        return
    from reports.metrics.catalogue import ATTAINMENT, GOODPUT
    from reports.metrics.goodput import Objective

    if any(isinstance(criterion, Objective) for criterion in slo):
        return
    for name, text, criterion in _as_given(slo, fail_if):
        if criterion.metric in (ATTAINMENT, GOODPUT):
            raise click.UsageError(f"{name} {text} needs an objective of each request: for example --slo 'ttft<=200ms'")


def _as_given(slo: Sequence[Criterion], fail_if: Sequence[str]) -> Iterator[tuple[str, str, Criterion]]:
    """Each criterion with its option and its text."""
    from reports.criteria import parse_fail_if

    yield from (("--slo", str(criterion), criterion) for criterion in slo)
    yield from (("--fail_if", text, parse_fail_if(text)) for text in fail_if)


def announce_too_few(slo: Sequence[Criterion], fail_if: Sequence[str], requests: int, remedy: str) -> None:
    """Name on stderr each requirement that a run of this many ``requests`` cannot pass. ``remedy`` is the option that sends
    more, with {} for how many.
    """
    if not (slo or fail_if):
        return
    from reports.criteria import Requirement
    from reports.gates.fewest import fewest_requests

    for name, text, criterion in _as_given(slo, fail_if):
        needed = fewest_requests(criterion) if isinstance(criterion, Requirement) else 0
        if needed is None:
            click.echo(f"{name} '{text}': no number of requests can pass it; they can fail it.", err=True)
        elif requests < needed:
            they = "it" if requests == 1 else "they"
            more = f"at least {needed:,} can ({remedy.format(needed)})"
            click.echo(
                f"{name} '{text}': {counted(requests, 'request')} cannot pass it, {more}; {they} can still fail it.", err=True
            )


def all_criteria(slo: Sequence[Criterion], fail_if: Sequence[str]) -> list[Criterion]:
    """The criteria of --slo, and the requirements whose opposite --fail_if names."""
    from reports.criteria import parse_fail_if

    return [*slo, *map(parse_fail_if, fail_if)]


def gates_passed(report: RunReport, fail_if: Sequence[str], undecided: str) -> bool:
    """Whether the gates of ``fail_if`` let a build pass; those that are undecided are listed on stderr.

    No gate of a run that is not valid counts as failed here: such a run has an exit status of its own.
    """
    if not fail_if:
        return True
    from reports.criteria import parse_fail_if

    required = set(map(parse_fail_if, fail_if))
    of_build = [gate for gate in report.gates if gate.requirement in required]
    if not report.valid:
        return _passes_if_not_valid(of_build, undecided)
    return build_passes(((str(gate.requirement), gate.status, gate.why) for gate in of_build), undecided)


def _passes_if_not_valid(gates: Sequence[Gate], undecided: str) -> bool:
    """Whether no gate of a run that is not valid failed, and none has to be decided."""
    from reports.gates.gate import Status

    if any(gate.status is Status.FAILED for gate in gates):
        return False
    click.echo("The run is not valid, so no --fail_if is decided: see its findings, and measure again.", err=True)
    return undecided != "fail"


def build_passes(results: Iterable[tuple[str, Status, str]], undecided: str) -> bool:
    """Whether the results of gates, each (requirement, status, evidence), let a build pass: none failed and, with ``undecided``
    of "fail", none is undecided. Those that are undecided are listed on stderr.
    """
    from reports.gates.gate import Status

    effect = "it fails, by --undecided fail" if undecided == "fail" else "it counts as passed; --undecided fail makes it fail"
    failing = {Status.FAILED, Status.UNDECIDED} if undecided == "fail" else {Status.FAILED}
    passes = True
    for requirement, status, why in results:
        if status is Status.UNDECIDED:
            click.echo(f"Undecided: {requirement} ({why}); {effect}.", err=True)
        passes = passes and status not in failing
    return passes
