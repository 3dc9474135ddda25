"""Options of the output: the files of a run, and the criteria that its numbers are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

if TYPE_CHECKING:
    from reports.metrics.goodput import Objective

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@dataclass(frozen=True)
class OutputOptions:
    """The files to write. ``run_dir`` None: a new folder below ``runs``. ``full``: print every table."""

    run_dir: Path | None
    full: bool
    plots: Path | None
    op_stats_csv: Path | None
    dump_perfetto_trace: bool


@dataclass(frozen=True)
class CriteriaOptions:
    """Reference numbers to check against, and objectives of each request."""

    check_perf_json: Path | None
    check_perf_key: str | None
    check_perf_rtol: float
    check_perf_atol: float
    slo: tuple[Objective, ...]


def check_objectives(objectives: Sequence[Objective], streaming: bool) -> None:
    """Raises UsageError for an objective that needs token times in an unstreamed run, where all tokens come together."""
    if objectives and not streaming:
        from reports.metrics.goodput import NEED_STREAMING

        for objective in objectives:
            if objective.metric in NEED_STREAMING:
                raise click.UsageError(f"--slo {objective} needs streamed answers (--streaming); use e2e_ms")


def _read_objectives(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[Objective, ...]:
    """Callback of --slo; the import is late, for it needs numpy. Raises BadParameter."""
    if not texts:
        return ()
    from reports.metrics.goodput import parse_objective

    try:
        return tuple(map(parse_objective, texts))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


slo_option = cloup.option(
    "--slo",
    multiple=True,
    metavar="METRIC<=MS",
    callback=_read_objectives,
    help="Objective of each request, as 'ttft_ms<=200'; of ttft_ms, tpot_ms, e2e_ms. Adds goodput. Repeatable.",
)

full_option = cloup.option(
    "--full", is_flag=True, help="Print every table, upstream's included, and the findings with their evidence."
)

plots_option = cloup.option(
    "--plots", type=_FOLDER, help="Write each picture as PNG and SVG into this folder, fit for a paper."
)

output_group = cloup.option_group(
    "Output",
    cloup.option("--run_dir", type=_FOLDER, help="Folder of this run. Default: runs/<time>-<verb>."),
    full_option,
    plots_option,
    cloup.option("--op_stats_csv", type=_FILE, help="Append upstream's statistics to this CSV file."),
    cloup.option("--dump_perfetto_trace", is_flag=True, help="Write perfetto.json into the run's folder (ui.perfetto.dev)."),
    cloup.option("--check_perf_json", type=_FILE, help='Check against reference numbers: {"key": {"Requests/Sec": 10, …}}.'),
    cloup.option("--check_perf_key", help="Entry of --check_perf_json to check against."),
    cloup.option(
        "--check_perf_rtol",
        type=click.FloatRange(min=0),
        default=0.05,
        help="How much worse than its reference a metric may be, as a share of it.",
    ),
    cloup.option(
        "--check_perf_atol",
        type=click.FloatRange(min=0),
        default=0.0,
        help="The same in the metric's own unit, added to the share.",
    ),
    slo_option,
)
