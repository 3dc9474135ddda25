"""``bench capacity``: the highest load at which limits hold, with its confidence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, part, same, takes
from bench_cli.experiments.options import FORWARDS_OPTIONS, SeriesOptions, run_arguments
from bench_cli.experiments.search_options import PRESETS, read_share, read_time
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from bench_cli.experiments.search_run import Probes
    from bench_records.search import Search, SearchFolder
    from reports.capacity.result import Capacity

_SET_BY_THE_SEARCH = {
    "--request_rate": "the rate is what it searches",
    "--speed": "it stretches the trace to the rate that it searches",
    "--rate_profile": "it searches a rate that stays",
    "--concurrency": "--max_users before the verb searches the number of users",
    "--users": "--max_users before the verb searches the number of users",
    "--num_requests": "--budget before the verb bounds the time of all",
    "--duration": "--budget before the verb bounds the time of all",
    "--seed": "give --seed before the verb, and the traffic of each probe follows from it",
    "--stop_if": "a probe whose load is far too high ends early",
    "--until": "--precision before the verb ends the search",
    "--run_dir": "--experiment_dir before the verb names the folder of all",
    "--slo": "give --slo before the verb",
    "--fail_if": "give --slo before the verb",
}
_TITLE = "What has to hold"


@dataclass(frozen=True)
class LimitOptions(Concern, title=_TITLE):
    """The limits, by sets, and how surely and precisely the load is to be known. ``precision`` is 0.1 for ±10 %."""

    slo: tuple[str, ...] = option(
        (),
        metavar="[NAME:]LIMIT",
        help="A limit on a share of the requests: p99_ttft<=500ms (also tpot, e2e, itl; any percentile), failed_share<=1%, or "
        "attainment>=99% with ttft<=200ms and others of each request. With names, as interactive:p99_ttft<=450ms, one search "
        "answers for several sets; a limit without a name is in each. Repeatable.",
    )
    slo_preset: tuple[str, ...] = option(
        (),
        type=click.Choice(PRESETS),
        multiple=True,
        help="MLPerf Inference's limits of a benchmark: p99 of TTFT and of TPOT. Repeatable.",
    )
    confidence: float = option(
        0.95, default="95%", callback=read_share, metavar="SHARE", help="How sure the answer is, of the search as a whole."
    )
    precision: float = option(
        0.10,
        default="10%",
        callback=read_share,
        metavar="SHARE",
        help="How far the two ends of the answer may be from its middle.",
    )


@dataclass(frozen=True)
class EffortOptions(Concern, title="The search"):
    """How long the search may take, and where it looks. ``budget`` in seconds, None without a bound; ``max_users`` None: it
    searches a rate; ``first_load`` None: a closed loop shows where to start.
    """

    budget: float | None = option(
        900.0,
        default="15m",
        callback=read_time,
        metavar="TIME",
        help="Time of the whole search, as 15m, 90s or 1h30m; none ends it by its precision alone.",
    )
    max_users: int | None = option(
        None,
        type=click.IntRange(min=1),
        help="Search the number of users of a closed loop, up to this many, instead of a rate.",
    )
    first_load: float | None = option(
        None,
        type=click.FloatRange(min=0, min_open=True),
        show_default="from a closed loop of some seconds",
        help="Rate, or users, of the first probe.",
    )
    seed: int = same(SeriesOptions, "seed", help="Seed of the closed loop; each probe's is its number more.")
    before_each: str | None = same(
        SeriesOptions, "before_each", help="Shell command before each probe, to restart or flush the server of --url."
    )
    experiment_dir: Path | None = option(
        None,
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of the search; one that was cut short is continued. Default: runs/<time>-capacity.",
    )
    dry_run: bool = option(False, help="Print the plan, and what the budget can reach; send nothing.")


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench capacity``."""

    limits: LimitOptions = part(LimitOptions)
    effort: EffortOptions = part(EffortOptions)


@cloup.command(
    name="capacity",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench capacity --slo 'p99_ttft<=500ms' --slo 'p99_tpot<=50ms' token_norm_dist --isl 128 --osl 20
  bench capacity --slo_preset llama3.1-8b --slo_preset llama3.1-8b-interactive --budget 1h dataset --url gpu:8000 -i openai
  bench capacity --slo 'attainment>=99%' --slo 'ttft<=300ms' --slo 'e2e<=5s' trace conversations.csv
  bench capacity --slo 'p99_ttft<=1s' --max_users 200 dataset --url gpu:8001
  bench capacity --experiment_dir runs/<search> --budget 1h

\b
Exit status: 0 a load is certified, 1 none is or the target failed, 2 usage, 3 the probes are not valid, 130 interrupted.""",
)
@takes(Options)
@run_arguments
@click.pass_context
def command(context: click.Context, options: Options, arguments: tuple[str, ...]) -> int:
    """Find the highest load at which the limits hold, and the lowest at which they do not: "holds 61 requests/s, 74 fails".

    A short closed loop shows where to start; then each probe is a run at a rate of its own, where it teaches most. The answer
    rests on all of them together, and is true of the search as a whole at --confidence. A load whose queue grows fails at once,
    and a probe ends early where 20 times as many requests as allowed are beyond a limit. The search ends when the answer is as
    precise as requested, or the --budget is spent, and says what more would buy.

    A limit is one on a share of the requests: of p99_ttft<=500ms, 1 % may take longer. A failed request is beyond each limit.

    The embedded pipeline is deployed once for all probes. A dataset is sent again from its start where a probe needs more.
    Ctrl-C keeps what is measured; the same command with its --experiment_dir, or that option alone, goes on, also with a longer
    --budget or another --precision. The folder gets capacity.html, and the report of each probe.
    """
    from bench_cli.experiments.search_run import TargetGoneError, search_capacity
    from bench_cli.private_files import private_files
    from bench_cli.signals import signals_as_interrupt
    from bench_records.search import SearchFolder

    asked, given = _asked(context, options, arguments)
    if options.effort.dry_run:
        from bench_cli.experiments.search_plan import dry_run

        click.echo(dry_run(asked))
        return ExitStatus.VALID
    with private_files(shared=not {"--shared_results", "--shared-results"}.isdisjoint(given)), signals_as_interrupt():
        folder = SearchFolder(options.effort.experiment_dir or Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-capacity")
        search = _opened(folder, asked)
        try:
            capacity = search_capacity(
                folder, search, lambda: _probes(context, options, folder, given), lambda line: click.echo(line, err=True)
            )
        except KeyboardInterrupt:
            _show_interrupted(folder, search)
            raise
        except (click.ClickException, TargetGoneError) as error:
            if not _remove_unused(folder, with_server_log=isinstance(error, click.UsageError)):
                _show_interrupted(folder, search)
            raise
        _show(capacity, folder)
    return _status(capacity)


def _asked(context: click.Context, options: Options, arguments: tuple[str, ...]) -> tuple[Search, tuple[str, ...]]:
    """The search that the command requests, without secrets, and its arguments with them. Raises UsageError."""
    from bench_cli.experiments.hidden_arguments import words_without_secrets
    from bench_cli.experiments.search_options import tiers_of
    from bench_records.search import Search, SearchFolder
    from harness.clients.secret_values import HIDDEN
    from reports.capacity.result import LoadUnit

    limits, effort = options.limits, options.effort
    ratio = 1.0 + 2.0 * limits.precision
    if not arguments and effort.experiment_dir is not None:
        recorded = SearchFolder(effort.experiment_dir).read()
        if any(HIDDEN in word for word in recorded.arguments):
            raise click.UsageError(
                f"{effort.experiment_dir} has its options without their secrets: give the measuring verb and its options again"
            )
        if options.given("slo", "slo_preset") and tiers_of(limits.slo, limits.slo_preset) != recorded.tiers:
            raise click.UsageError(f"{effort.experiment_dir} was searched by other limits; name a new folder")
        if recorded.before_each and effort.before_each is None:
            raise click.UsageError(
                f"a command ran before each probe in {effort.experiment_dir}, and is not kept: give --before_each again"
            )
        changed = replace(
            recorded,
            confidence=limits.confidence if options.given("confidence") else recorded.confidence,
            ratio=ratio if options.given("precision") else recorded.ratio,
            budget_s=effort.budget if options.given("budget") else recorded.budget_s,
        )
        return changed, recorded.arguments
    tiers = tiers_of(limits.slo, limits.slo_preset)
    given, conversations = _checked(context, options, arguments)
    unit = LoadUnit.CONVERSATIONS_PER_S if conversations else LoadUnit.REQUESTS_PER_S
    unit = unit if effort.max_users is None else LoadUnit.USERS
    return Search(
        arguments=words_without_secrets(given),
        tiers=tiers,
        unit=unit.value,
        conversations=conversations,
        before_each=effort.before_each is not None,
        confidence=limits.confidence,
        ratio=ratio,
        budget_s=effort.budget,
        most_load=effort.max_users,
        seed=effort.seed,
        first_load=effort.first_load if effort.max_users is None else effort.first_load or min(8.0, effort.max_users),
    ), given


def _checked(context: click.Context, options: Options, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """The arguments of every probe, and whether they send whole conversations. Raises UsageError for any that none takes."""
    from bench_cli.experiments.child_runs import RunOptions

    runs = RunOptions("search", arguments, _SET_BY_THE_SEARCH, context)
    runs.check_arguments()
    load = ("--request_rate", "1") if options.effort.max_users is None else ()
    parsed = runs.parsed((*load, "--num_requests", "100"))
    if parsed is None:  # called without the command line
        return arguments, False
    runs.check_given(parsed, {"request_rate", "num_requests"} if load else {"num_requests"})
    verb, conversations = arguments[0].replace("-", "_"), parsed.params.get("sessions") is not None
    if verb == "trace" and conversations and (options.effort.max_users or options.effort.first_load is None):
        raise click.UsageError(
            "the conversations of a trace come at its own times, so no closed loop shows where to start: give --first_load, a "
            "rate of conversations, and no --max_users"
        )
    repeats = verb == "dataset" and not conversations and parsed.params.get("isl") is None
    if repeats and not parsed.params.get("repeat_dataset"):
        return (*arguments, "--repeat_dataset"), conversations
    return arguments, conversations


def _opened(folder: SearchFolder, asked: Search) -> Search:
    """The search to carry out in ``folder``: a new one, or the rest of the recorded one. Raises BadParameter."""
    if folder.plan.exists():
        recorded = folder.read()
        continued = replace(recorded, confidence=asked.confidence, ratio=asked.ratio, budget_s=asked.budget_s, ended=None)
        requested = replace(
            asked,
            first_load=recorded.first_load,
            first_per_s=recorded.first_per_s,
            spent_s=recorded.spent_s,
            probes=recorded.probes,
            ended=None,
        )
        if requested != continued:
            raise click.BadParameter(
                f"{folder.path} holds another search; name a new folder, or give the limits and options that it began with",
                param_hint="--experiment_dir",
            )
        return continued
    if folder.path.exists() and any(folder.path.iterdir()):
        raise click.BadParameter(f"{folder.path} is not empty; name a new folder", param_hint="--experiment_dir")
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write(asked)
    return asked


@contextmanager
def _probes(context: click.Context, options: Options, folder: SearchFolder, given: tuple[str, ...]) -> Iterator[Probes]:
    """What makes the probes: with --url at once, else with the embedded pipeline, deployed for all of them."""
    from bench_cli.declared import Call, read
    from bench_cli.experiments.child_runs import RunOptions
    from bench_cli.experiments.search_run import ChildProbes
    from bench_cli.measurement.embedded_options import EmbeddedOptions
    from bench_cli.measurement.pipeline import environment_of, open_pipeline
    from bench_cli.measurement.target_options import TargetOptions, check_target_options

    parsed = RunOptions("search", given, _SET_BY_THE_SEARCH, context).parsed(("--num_requests", "100"))
    before_each = options.effort.before_each
    if parsed is None or parsed.params["url"] is not None:
        yield ChildProbes(folder, given, before_each)
        return
    target = read(TargetOptions, parsed.params, Call())
    check_target_options(target)
    repository = read(EmbeddedOptions, parsed.params, Call()).repository(target.tokenizer_dir)
    with open_pipeline(repository, folder.server_log) as addresses:
        yield ChildProbes(folder, given, before_each, environment_of(addresses))


def _show(capacity: Capacity, folder: SearchFolder) -> None:
    from reports.capacity.console import render
    from reports.capacity.writing import write_capacity

    click.echo(render(capacity))
    click.echo(f"\nCapacity: {write_capacity(capacity, folder.path)}")


def _show_interrupted(folder: SearchFolder, search: Search) -> None:
    """What is measured, and how to go on."""
    from reports.capacity.reading import read_capacity

    capacity = read_capacity(folder)
    if capacity.probes:
        _show(capacity, folder)
    count = f"{len(capacity.probes)} {'probe is' if len(capacity.probes) == 1 else 'probes are'}"
    again = " --before_each …" if search.before_each else ""
    click.echo(f"Stopped; {count} saved. To go on: bench capacity --experiment_dir {folder.path}{again}", err=True)


def _remove_unused(folder: SearchFolder, with_server_log: bool) -> bool:
    """Remove the folder of a search none of whose runs could begin, so that the command can be given again, corrected; whether
    it was one. A server's log, which may say why, counts as a file of its own unless ``with_server_log``.
    """
    files = {folder.plan, folder.path / "output.log", *((folder.server_log,) if with_server_log else ())}
    unused = set(folder.path.iterdir()) <= files
    if unused:
        for file in files:
            file.unlink(missing_ok=True)
        folder.path.rmdir()
    return unused


def _status(capacity: Capacity) -> ExitStatus:
    from reports.capacity.result import Ended

    if capacity.ended is Ended.NOT_VALID:
        return ExitStatus.INVALID
    certified = all(tier.bracket.certified is not None for tier in capacity.tiers)
    return ExitStatus.VALID if certified and capacity.ended is not Ended.TARGET_FAILED else ExitStatus.FAILED
