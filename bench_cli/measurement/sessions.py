"""Options of sessions: whole conversations, each turn behind the answer that it waits for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.engine_options import given

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_cli.measurement.load_options import TrafficOptions
    from bench_cli.measurement.options import MeasureOptions
    from bench_cli.measurement.prepare import PreparedRequests
    from bench_cli.measurement.target import Target
    from workloads.prompts.dataset import OutputLengths
    from workloads.schedule.load import Load, Sessions
    from workloads.schedule.sessions import SessionRequests
    from workloads.table.workload import Workload

_WITHOUT_USERS = ("request_rate", "arrival", "rate_profile", "time_delay_dist", "burstiness", "ramp_up", "duration")
_WITHOUT_SESSIONS = {
    "concurrency": "--users N carry out whole conversations",
    "max_concurrency": "a turn that waits would delay those behind it",
    "repeat_dataset": "a conversation is held once",
}
_NEED_SESSIONS = ("think_time", "users", "user_rate", "history")


@dataclass(frozen=True)
class SessionOptions:
    """The values of ``session_group``. ``sessions`` is the clock of later turns; None sends first turns alone."""

    sessions: str | None
    think_time: float
    users: int | None
    user_rate: float | None
    history: str

    def check(self, options: MeasureOptions) -> None:
        """Raise UsageError for options that contradict each other, or have no effect."""
        if self.sessions is None:
            _refuse(_NEED_SESSIONS, "is of conversations; it needs --sessions think_time")
            return
        for name, reason in _WITHOUT_SESSIONS.items():
            _refuse((name,), f"goes without --sessions: {reason}")
        if self.history == "server" and options.target.protocol != "openai":
            raise click.UsageError("--history server needs -i openai: only a chat takes the messages that came before")
        if self.sessions == "recorded" and (given("think_time") or self.users is not None):
            raise click.UsageError(
                "--think_time and --users go with --sessions think_time; recorded turns have their own times"
            )
        if self.users is not None:
            _refuse(_WITHOUT_USERS, "goes without --users: their answers set the times, and --user_rate")
        elif self.user_rate is not None:
            raise click.UsageError("--user_rate is the rate of each of --users")
        if self.user_rate is not None:
            _refuse(("think_time",), "goes without --user_rate, which sets when later turns are due")

    def manifest_entry(self, drawn: SessionRequests) -> dict[str, str | float | None]:
        """The options by name, and the numbers of conversations and of turns that are left out."""
        return asdict(self) | {"conversations": drawn.sessions, "dropped_behind": drawn.dropped_behind}


@dataclass(frozen=True)
class TraceSessionOptions:
    """The values of ``trace_session_group``."""

    sessions: str | None
    think_time: float
    history: str

    def checked(self, options: MeasureOptions) -> SessionOptions | None:
        """The options, None without sessions. Raises UsageError for options that contradict each other, or have no effect."""
        sessions = SessionOptions(self.sessions, self.think_time, None, None, self.history)
        sessions.check(options)
        if self.sessions is not None and given("request_rate") and options.load.duration is not None:
            raise click.UsageError(
                "--duration and --request_rate go without --sessions, where answers set the times: give --num_requests"
            )
        return None if self.sessions is None else sessions


def _refuse(names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if given(name):
            raise click.UsageError(f"--{name} {reason}")


_think_time_option = cloup.option(
    "--think_time",
    type=click.FloatRange(min=0, max=1e6),
    default=0.0,
    help="Seconds from the end of an answer to the next turn, where the file has none.",
)
_history_option = cloup.option(
    "--history",
    type=click.Choice(["recorded", "server"]),
    default="recorded",
    help="Answers in the history of later turns: the file's, which make runs alike, or those that the server gave.",
)
_TITLE = "Sessions (docs/explanation/load.md)"

session_group = cloup.option_group(
    _TITLE,
    cloup.option(
        "--sessions",
        type=click.Choice(["think_time", "recorded"]),
        show_default="first turns alone",
        help="Send whole conversations: each turn waits for the answer before it, and then for its think time, or until its "
        "recorded time. --request_rate is of conversations.",
    ),
    _think_time_option,
    cloup.option(
        "--users",
        type=click.IntRange(min=1),
        help="Instead of --request_rate: this many users, each of which holds one conversation after another.",
    ),
    cloup.option(
        "--user_rate",
        type=click.FloatRange(min=0, min_open=True),
        help="Requests per second of each user, as long as answers are faster. Default: the next turn follows the answer.",
    ),
    _history_option,
)

trace_session_group = cloup.option_group(
    _TITLE,
    cloup.option(
        "--sessions",
        type=click.Choice(["think_time", "recorded"]),
        show_default="each turn at its recorded time, whatever has been answered",
        help="Turns wait for the answer before them, and then for their think time, or until their recorded time. First turns "
        "come at the trace's times.",
    ),
    _think_time_option,
    _history_option,
)


def prepare_sessions(
    workload: Workload, options: SessionOptions, lengths: OutputLengths, traffic: TrafficOptions, load: Load, target: Target
) -> tuple[SessionRequests, Sessions]:
    """The requests of the conversations, and when they are due."""
    from workloads.elements.request import LengthLimits
    from workloads.schedule.load import OpenLoop
    from workloads.schedule.schedule import HistorySource
    from workloads.schedule.sessions import Most, SessionRules, TurnClock, session_requests

    assert isinstance(load, OpenLoop)
    drawn = session_requests(
        workload,
        None if target.tokenizer is None else target.tokenizer.encode,
        Most(traffic.num_requests, load.most_requests(traffic.seed, None)),
        lengths,
        SessionRules(
            TurnClock(options.sessions or ""),
            round(options.think_time * 1e9),
            target.model.takes_messages,
            HistorySource(options.history),
        ),
        LengthLimits(traffic.max_input_len, target.context_tokens),
        ignore_eos=bool(traffic.ignore_eos),
    )
    sessions = drawn.beginning(load.arrivals) if options.users is None else drawn.of_users(options.users, options.user_rate)
    if drawn.dropped_behind:
        click.echo(f"{drawn.dropped_behind:,} turns are left out, since they wait for one that is too long.", err=True)
    return drawn, sessions


def with_reuse_limit(prepared: PreparedRequests, drawn: SessionRequests) -> PreparedRequests:
    """``prepared`` with the share of the prompts' tokens that an infinite prefix cache has; unchanged without a tokenizer."""
    from workloads.table.prefixes import infinite_cache_share

    prompts = drawn.prompt_ids
    if prompts is None:
        return prepared

    def limit_of(sent: Sequence[int]) -> dict[str, float | None]:
        return {"shared_prefix_limit": infinite_cache_share([prompts[index] for index in sent])}

    limit = limit_of(range(len(prompts)))
    click.echo(
        f"Shared prefixes: an infinite prefix cache would have {limit['shared_prefix_limit']:.1%} of the prompt tokens.",
        err=True,
    )
    return replace(prepared, parameters={**prepared.parameters, **limit}, limit_of=limit_of)
