"""Options of sessions: whole conversations, each turn after the answer that it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, same

if TYPE_CHECKING:
    from bench_cli.measurement.options import MeasureOptions
    from workloads.prompts.drawn import Drawn

_WITHOUT_USERS = ("request_rate", "arrival", "rate_profile", "time_delay_dist", "burstiness", "ramp_up", "duration")
_WITHOUT_SESSIONS = {
    "concurrency": "--users N carry out whole conversations",
    "max_concurrency": "a turn that waits would delay the turns after it",
    "repeat_dataset": "a conversation is held once",
}
_TITLE = "Sessions (docs/explanation/load.md)"
_NEED_SESSIONS = ("think_time", "users", "user_rate", "history")


@dataclass(frozen=True)
class SessionOptions(Concern, title=_TITLE):
    """``sessions`` is the clock of later turns; None sends first turns alone."""

    sessions: str | None = option(
        None,
        type=click.Choice(["think_time", "recorded"]),
        show_default="first turns only",
        help="Send whole conversations: each turn waits for the answer before it, and then for its think time, or until its "
        "recorded time. --request_rate counts conversations.",
    )
    think_time: float = option(
        0.0,
        type=click.FloatRange(min=0, max=1e6),
        help="Seconds from the end of an answer to the next turn, if the file has none.",
    )
    users: int | None = option(
        None,
        type=click.IntRange(min=1),
        help="Instead of --request_rate: this many users, each of which holds one conversation after another.",
    )
    user_rate: float | None = option(
        None,
        type=click.FloatRange(min=0, min_open=True, max=1e6),
        help="Target rate of each user, in requests per second; slower if answers take longer than the interval. Default: the "
        "next turn follows the answer.",
    )
    history: str = option(
        "recorded",
        type=click.Choice(["recorded", "server"]),
        help="Answers in the history of later turns: the file's, so that runs send the same, or the server's own answers.",
    )

    def check(self, options: MeasureOptions) -> None:
        """Raise UsageError for options that contradict each other, or have no effect."""
        if self.sessions is None:
            self._refuse(_NEED_SESSIONS, "applies to conversations; it needs --sessions think_time")
            return
        for name, reason in _WITHOUT_SESSIONS.items():
            self._refuse((name,), f"cannot be combined with --sessions: {reason}")
        if self.history == "server" and not options.target.serving.takes_messages:
            raise click.UsageError("--history server needs -i openai: only a chat takes the messages that came before")
        if self.sessions == "recorded" and (self.given("think_time") or self.users is not None):
            raise click.UsageError(
                "--think_time and --users go with --sessions think_time; recorded turns have their own times"
            )
        if self.users is not None:
            self._refuse(_WITHOUT_USERS, "cannot be combined with --users: answers and --user_rate set the times")
        elif self.user_rate is not None:
            raise click.UsageError("--user_rate is the rate of each of --users")
        if self.user_rate is not None:
            self._refuse(("think_time",), "cannot be combined with --user_rate, which sets when later turns are due")

    def _refuse(self, names: tuple[str, ...], reason: str) -> None:
        for name in self.given(*names):
            raise click.UsageError(f"--{name} {reason}")

    def manifest_entry(self, drawn: Drawn) -> dict[str, str | float | None]:
        """The options by name, and the numbers of conversations and of turns that are left out."""
        return self.values() | {"conversations": drawn.sessions, "dropped_behind": drawn.dropped_behind}


@dataclass(frozen=True)
class TraceSessionOptions(Concern, title=_TITLE):
    """The options of sessions of a trace, which has the times of first turns."""

    sessions: str | None = same(
        SessionOptions,
        "sessions",
        show_default="each turn at its recorded time, whatever has been answered",
        help="Turns wait for the answer before them, and then for their think time, or until their recorded time. First turns "
        "come at the trace's times.",
    )
    think_time: float = same(SessionOptions, "think_time")
    history: str = same(SessionOptions, "history")

    def checked(self, options: MeasureOptions) -> SessionOptions | None:
        """The options, None without sessions. Raises UsageError for options that contradict each other, or have no effect."""
        sessions = SessionOptions(**self.values(), call=self.call)
        sessions.check(options)
        if self.sessions is not None and self.given("request_rate") and options.load.duration is not None:
            raise click.UsageError(
                "--duration and --request_rate cannot be combined with --sessions, where answers set the times: give "
                "--num_requests"
            )
        return None if self.sessions is None else sessions
