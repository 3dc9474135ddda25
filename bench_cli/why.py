"""``bench why``: where a percentile's time went, and which phase differs between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, takes
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from reports.why.answer import ExplainedRun

_FORMATS = ("console", "markdown", "json")
_METRICS = ("ttft", "e2e")


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench why``."""

    metric: str | None = option(
        None, type=click.Choice(_METRICS), show_default="both", help="The latency, from the schedule, whose parts are shown."
    )
    percentile: float = option(
        99.0,
        type=click.FloatRange(50.0, 99.99),
        show_default=True,
        help="The percentile; the median is shown beside it.",
    )
    over_time: int | None = option(
        None,
        type=click.IntRange(2, 100),
        metavar="N",
        help="Show the percentile of each of N equal parts of the run's time, too.",
    )
    slowest: int | None = option(
        None, type=click.IntRange(1, 1_000), metavar="N", help="Show the phases of the N slowest requests, too."
    )
    request: tuple[int, ...] = option(
        (),
        type=click.IntRange(0),
        metavar="INDEX",
        help="Show the phases of the request with this number in the schedule, too. Repeatable.",
    )
    server_times: Path | None = option(
        None,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The server's times of the run's requests, where they are not in the run: a trace of Triton (--trace-config "
        "level=TIMESTAMPS, rate=1), or the answer of trtllm-serve's /perf_metrics, saved after the run.",
    )
    step_log: Path | None = option(
        None,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The step log of the embedded engine (bench serve --step_log): which part of a request's decode lies in steps "
        "that also processed prompts of others. Needs a run with --server_timings.",
    )
    form: str = option("console", "--format", type=click.Choice(_FORMATS), show_default=True, help="What is printed on stdout.")


@cloup.command(
    name="why",
    epilog="""\b
Examples:
  bench why runs/<run>
  bench why runs/<run> --metric ttft --percentile 99.9
  bench why runs/<run> --over_time 10 --slowest 5 --request 17
  bench why runs/<run> --step_log steps.csv
  bench why runs/<before> runs/<after>
  bench why runs/<run> --format json | jq '.runs[0].latencies[0].percentiles[-1].phases'

\b
The server's own phases (queue, prefill, decode) need a run with its times of each request:
  bench dataset --request_rate 10 --server_timings""",
)
@cloup.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), help="A run, or two runs: before, after.")
@takes(Options)
@one_blas_thread()
def command(options: Options, runs: tuple[Path, ...]) -> int:
    """Explain why a percentile of a run is what it is: the time of its requests by phases, each with its source, the percentile
    without each phase, and a remedy for the largest.

    The phases of a request add up to its latency. Time that no source covers is unattributed, never spread over others. With
    two runs, the phases of their difference are shown; 'bench compare' says whether there is one.
    """
    from bench_records.run_folder import RunFolder
    from reports.compare.comparable import disturbances
    from reports.render.console import console_text
    from reports.render.document import Notes, Paragraph
    from reports.render.markdown import markdown_text
    from reports.render.plain_text import json_text
    from reports.run.headline import verdict
    from reports.run_report import read_run
    from reports.why.answer import METRICS, Detail, explain, explain_logged
    from reports.why.documents import document
    from reports.why.json_file import document as json_document
    from reports.why.server_files import with_server_times
    from reports.why.step_log import with_step_log

    _check(options, runs)
    chosen = [metric for metric in METRICS if options.metric in (None, metric.name)]
    detail = Detail(options.over_time or 0, options.slowest or 0, options.request)
    explained = [read_run(RunFolder(run)) for run in runs]
    unknown = [number for number in options.request for run in explained if number not in run.requests.index]
    if unknown:
        raise click.UsageError(f"--request {unknown[0]}: a run has no request with this number")
    if options.server_times is not None:
        explained = [with_server_times(explained[0], options.server_times)]
    q = round(options.percentile / 100.0, 6)
    if options.step_log is not None:
        why = explain_logged(with_step_log(explained[0], options.step_log), chosen, q, detail)
    else:
        why = explain(explained, chosen, q, detail)
    invalid = [run.report for run in why.runs if not run.report.valid]
    reports = (run.report for run in why.runs)
    marked = [report for report in reports if not report.valid or report.manifest.simulation is not None]
    verdicts = Notes(tuple(f"{report.folder.path.name}: {verdict(report)}" for report in marked))
    other_work, disturbed = _other_work(why.runs), {run.report.folder.path: disturbances(run.report) for run in why.runs}
    sentences = [f"{path.name}: {sentence}" for path, found in disturbed.items() for sentence in found]
    beside = [Paragraph(sentence) for sentence in (*filter(None, (other_work,)), *sentences)]
    match options.form:
        case "json":
            click.echo(json_text(json_document(why, other_work, disturbed)), nl=False)
        case "markdown":
            click.echo(markdown_text((*document(why), *beside, verdicts)), nl=False)
        case _:
            click.echo(console_text((*document(why), *beside, verdicts)))
    return ExitStatus.INVALID if invalid else ExitStatus.VALID


def _other_work(runs: Sequence[ExplainedRun]) -> str | None:
    """That two runs sent different work, and what of it differs; None of equal work, and of one run."""
    from reports.compare.comparable import other_work
    from reports.compare.lines import lines

    if len(runs) != 2:
        return None
    differing = "; ".join(
        f"{line.what} ({' against '.join(line.sides)})" for line in lines(other_work(*(run.report for run in runs)))
    )
    return f"The runs sent different work, so part of the difference may come from that: {differing}." if differing else None


def _check(options: Options, runs: tuple[Path, ...]) -> None:
    """Raises UsageError."""
    if len(runs) > 2:
        raise click.UsageError(f"{len(runs)} runs are given; give one run, or two to explain their difference")
    if len(runs) == 2 and options.server_times is not None:
        raise click.UsageError("--server_times is for one run: it has the requests of one")
    if len(runs) == 2 and options.step_log is not None:
        raise click.UsageError("--step_log is for one run: give each run alone with its log, and compare the answers")
    for name in options.given("over_time", "slowest", "request") if len(runs) == 2 and options.form != "json" else ():
        raise click.UsageError(f"--{name} is for one run; of two runs it is in --format json alone")
    if len({run.resolve() for run in runs}) < len(runs):
        raise click.UsageError(f"{runs[0]} is given twice, and a run does not differ from itself; give two runs")
