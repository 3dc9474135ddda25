"""What a search for capacity is to do, from its command: the arguments of its probes, its plan, and what makes the probes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from bench_cli.experiments.capacity_options import EffortOptions, Options
from bench_cli.experiments.child_runs import RunOptions
from bench_cli.experiments.hidden_arguments import words_without_secrets
from bench_cli.limit_options import LimitOptions
from bench_cli.limit_values import tiers_of

if TYPE_CHECKING:
    from bench_cli.experiments.search_run import Probes
    from bench_records.search import Search, SearchFolder
    from reports.capacity.result import LoadUnit

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

_LEFT_TO_THE_USER = (
    *("request_timeout", "connection_timeout", "first_token_timeout", "token_gap_timeout", "cancel", "connect_timeout"),
    *("warmup_requests", "shared_results"),
)
"""Options of the runs that the search sets or reads by the words of the arguments, and leaves as the user gives them."""

_OF_ARRIVALS = ("arrival", "time_delay_dist", "burstiness", "max_concurrency")
"""Options that a closed loop does not take."""


def search_runs(context: click.Context, arguments: tuple[str, ...]) -> RunOptions:
    """The runs of a search; ``context`` is that of its command."""
    return RunOptions("search", arguments, _SET_BY_THE_SEARCH, context)


def checked(runs: RunOptions, options: Options) -> tuple[tuple[str, ...], bool]:
    """The arguments of every probe, and whether they send whole conversations. Raises UsageError for any that none takes."""
    effort, arguments = options.effort, runs.arguments
    runs.check_arguments()
    load = ("--request_rate", "1") if effort.max_users is None else ()
    parsed = runs.parsed((*load, "--num_requests", "100"))
    if parsed is None:  # called without the command line
        return arguments, False
    runs.check_given(parsed, {"request_rate", "num_requests"} if load else {"num_requests"})
    verb, conversations = arguments[0].replace("-", "_"), parsed.params.get("sessions") is not None
    if verb == "trace" and conversations and (effort.max_users or effort.first_load is None):
        raise click.UsageError(
            "the conversations of a trace come at its own times, so no closed loop shows where to start: give --first_load, a "
            "rate of conversations, and no --max_users"
        )
    if effort.max_users is not None and effort.first_load is not None and not 1 <= effort.first_load <= effort.max_users:
        raise click.UsageError(f"--first_load {effort.first_load:g}: give a number of users from 1 to --max_users")
    if effort.max_users is not None and parsed.params.get("ramp_up") is not None:
        raise click.UsageError(
            "--ramp_up cannot be one of the run's options: the users of each probe start over about the time of one answer"
        )
    _check_closed_loop(parsed, effort)
    _check_time_outs(parsed, options.limits)
    _check_streamed(parsed, options.limits)
    arguments = (*arguments, *_other_words(parsed))
    repeats = verb == "dataset" and not conversations and parsed.params.get("isl") is None
    if repeats and not parsed.params.get("repeat_dataset"):
        return (*arguments, "--repeat_dataset"), conversations
    return arguments, conversations


def read_file(context: click.Context, search: Search, given: tuple[str, ...]) -> None:
    """Read the dataset or trace of a search whose probes are ``given`` these arguments. Raises what a probe would raise."""
    from reports.capacity.result import LoadUnit

    load = "--request_rate"
    if search.unit == LoadUnit.USERS:
        load = "--users" if search.conversations else "--concurrency"
    search_runs(context, given).read_file((load, "1", "--num_requests", "100"))


def _check_closed_loop(parsed: click.Context, effort: EffortOptions) -> None:
    """Raises UsageError for an option that the search's own closed loop does not take, if it has one."""
    from bench_cli.declared import call_of

    if effort.max_users is None and (effort.first_load is not None or effort.model is not None):
        return
    for name in (name for name in _OF_ARRIVALS if name in call_of(parsed).given):
        if effort.max_users is not None:
            raise click.UsageError(f"--{name} cannot be one of the run's options: with --max_users answers set the rate")
        raise click.UsageError(
            f"--{name} has no meaning in a closed loop, so that none shows where to start: give --first_load, a rate"
        )


def _check_time_outs(parsed: click.Context, limits: LimitOptions) -> None:
    """Raises UsageError for a time-out that ends each request before it is known to be beyond a limit: such requests do not
    count, and any load would hold.
    """
    from reports.capacity.limits import limit_set
    from reports.metrics.catalogue import E2E, TPOT, TTFO, TTFT
    from reports.metrics.goodput import Objective

    ended_by = {
        "request_timeout": (TTFT, TTFO, E2E),
        "first_token_timeout": (TTFT, TTFO, E2E),
        "token_gap_timeout": (TTFO, TPOT, E2E),
    }
    sets = (limit_set(tier.name, (*tier.limits, *tier.objectives)) for tier in tiers_of(limits.slo, limits.slo_preset))
    for limit in (limit for each in sets for limit in each.limits):
        single = (Objective(limit.requirement.metric, limit.requirement.limit),)
        for objective in limit.objectives or single:
            for name, metrics in ended_by.items():
                seconds = parsed.params.get(name)
                if seconds is not None and objective.metric in metrics and 1e3 * seconds <= objective.limit_ms:
                    raise click.UsageError(
                        f"--{name} {seconds:g}: it ends a request before that can be beyond {objective}; "
                        f"give more than {objective.limit_ms / 1e3:g} s"
                    )


def _check_streamed(parsed: click.Context, limits: LimitOptions) -> None:
    """Raises UsageError for a limit on what unstreamed answers do not have."""
    from reports.capacity.limits import limit_set

    if parsed.params.get("streaming") is not False:
        return
    sets = (limit_set(tier.name, (*tier.limits, *tier.objectives)) for tier in tiers_of(limits.slo, limits.slo_preset))
    for limit in (limit for each in sets for limit in each.limits):
        if limit.streamed_text is not None:
            raise click.UsageError(f"--slo {limit.streamed_text} needs streamed answers (--streaming); use e2e")


def _other_words(parsed: click.Context) -> Iterator[str]:
    """What --config gives of _LEFT_TO_THE_USER, as words, so that all that reads the words of the arguments knows it."""
    from bench_cli.declared import call_of

    for name in _LEFT_TO_THE_USER:
        if name not in call_of(parsed).given or parsed.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            continue
        value = (parsed.default_map or {}).get(name, parsed.params[name])
        if value is True:
            yield f"--{name}"
        elif value is not False:
            yield from (f"--{name}", str(value))


def new_search(options: Options, given: tuple[str, ...], *, conversations: bool) -> Search:
    """The plan of a search whose probes are ``given`` these arguments, without the secrets in them. Raises UsageError."""
    from bench_records.search import Search
    from reports.capacity.result import LoadUnit

    limits, effort = options.limits, options.effort
    unit = LoadUnit.CONVERSATIONS_PER_S if conversations else LoadUnit.REQUESTS_PER_S
    unit = unit if effort.max_users is None else LoadUnit.USERS
    return Search(
        arguments=words_without_secrets(given),
        tiers=tiers_of(limits.slo, limits.slo_preset),
        unit=unit.value,
        conversations=conversations,
        before_each=effort.before_each is not None,
        confidence=limits.confidence,
        ratio=_ratio(limits.precision),
        budget_s=effort.budget,
        most_load=effort.max_users,
        seed=effort.seed,
        first_load=effort.first_load,
        model=_digest(options, unit),
    )


def recorded_search(folder: SearchFolder, options: Options) -> Search:
    """The search in ``folder`` with the confidence, precision and budget that the command gives, to go on by its own arguments.
    Raises UsageError where these had secrets, or the command gives other limits.
    """
    from harness.clients.secret_values import HIDDEN
    from simulator.model import model_digest

    limits, effort, recorded = options.limits, options.effort, folder.read()
    if any(HIDDEN in word for word in recorded.arguments):
        raise click.UsageError(
            f"{effort.experiment_dir} has its options without their secrets: give the measuring verb and its options again"
        )
    if options.given("slo", "slo_preset") and tiers_of(limits.slo, limits.slo_preset) != recorded.tiers:
        raise click.UsageError(f"{effort.experiment_dir} was searched by other limits; name a new folder")
    kept = {"seed": recorded.seed, "max_users": recorded.most_load, "first_load": recorded.first_load}
    for name in options.given(*kept):
        if getattr(effort, name) != kept[name]:
            raise click.UsageError(f"--{name}: {effort.experiment_dir} was searched with another one; name a new folder")
    if effort.model is not None and model_digest(effort.model) != recorded.model:
        raise click.UsageError(f"{effort.experiment_dir} was searched with another model, or none; name a new folder")
    if recorded.before_each and effort.before_each is None:
        raise click.UsageError(
            f"a command ran before each probe in {effort.experiment_dir}, and is not kept: give --before_each again"
        )
    return replace(
        recorded,
        confidence=limits.confidence if options.given("confidence") else recorded.confidence,
        ratio=_ratio(limits.precision) if options.given("precision") else recorded.ratio,
        budget_s=effort.budget if options.given("budget") else recorded.budget_s,
    )


def continued(recorded: Search, asked: Search) -> Search | None:
    """The rest of the search ``recorded``, with the confidence, precision and budget of the one that is ``asked`` for; None
    where they differ in more.
    """
    rest = replace(recorded, confidence=asked.confidence, ratio=asked.ratio, budget_s=asked.budget_s, ended=None)
    same = replace(
        asked,
        first_load=recorded.first_load,
        first_per_s=recorded.first_per_s,
        spent_s=recorded.spent_s,
        probes=recorded.probes,
        controls=recorded.controls,
        forecasts=recorded.forecasts,
        ended=None,
    )
    return rest if same == rest else None


@contextmanager
def open_probes(runs: RunOptions, folder: SearchFolder, before_each: str | None) -> Iterator[Probes]:
    """What makes the probes: with --url at once, else with the embedded pipeline, deployed for all that are made."""
    from bench_cli.declared import Call, read
    from bench_cli.experiments.search_run import ChildProbes
    from bench_cli.measurement.embedded_options import EmbeddedOptions
    from bench_cli.measurement.pipeline import environment_of, open_pipeline
    from bench_cli.measurement.target_options import TargetOptions, check_target_options

    parsed = runs.parsed(("--num_requests", "100"))
    if parsed is None or parsed.params["url"]:
        yield ChildProbes(folder, runs.arguments, before_each)
        return
    target = read(TargetOptions, parsed.params, Call())
    check_target_options(target)
    repository = read(EmbeddedOptions, parsed.params, Call()).repository(target.tokenizer_dir)
    with open_pipeline(repository, folder.server_log, target.serving.embedded_port) as addresses:
        yield ChildProbes(folder, runs.arguments, before_each, environment_of(addresses))


def is_shared(arguments: tuple[str, ...]) -> bool:
    """Whether others may read the files of the probes."""
    return not {"--shared_results", "--shared-results"}.isdisjoint(arguments)


def default_folder() -> Path:
    """The folder of a search that names none."""
    return Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-capacity"


def new_folder(path: Path) -> None:
    """Make the folder of a new search. Raises BadParameter where something is in it."""
    if path.exists() and any(path.iterdir()):
        raise click.BadParameter(f"{path} is not empty; name a new folder", param_hint="--experiment_dir")
    path.mkdir(parents=True, exist_ok=True)


def _digest(options: Options, unit: LoadUnit) -> str | None:
    """The digest of the fitted model. Raises UsageError where a model explains nothing."""
    from simulator.model import model_digest

    model = options.effort.model
    if model is None:
        return None
    if unit.value != "requests/s":
        raise click.UsageError(
            "--model: a model explains when requests arrive, so only a rate of requests is searched with one"
        )
    if options.ranking.over:
        raise click.UsageError("--model is fitted to one setting: leave --over out")
    return model_digest(model)


def _ratio(precision: float) -> float:
    """How far the ends of the bracket are to be apart: 1.2 for ±10 %."""
    return 1.0 + 2.0 * precision
