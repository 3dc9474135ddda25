"""The settings of the users as options of Locust's command line, each with an environment variable."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench_errors import BenchError
from workloads.arrivals.law import FORMS as LAWS
from workloads.arrivals.law import parse_law
from workloads.arrivals.rate_profile import FORMS as PROFILES
from workloads.arrivals.rate_profile import parse_profile

DEFAULT_TRITON_MODEL = "ensemble"
DEFAULT_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The parsed options. ``dataset`` is None for the shipped prompts, ``model`` for the protocol's default; the options of
    pacing are None where they are not given.
    """

    model: str | None
    dataset: str | None
    op_tokens_per_word: float
    output_tokens: int
    ignore_eos: bool
    chat_path: str
    request_timeout: float
    seed: int
    rate_profile: str | None
    request_rate: float | None
    seconds_per_request: float | None
    arrival: str | None

    @property
    def gap_s(self) -> float | None:
        """The mean time between the starts of a user's requests; None where each follows the answer before it."""
        if self.seconds_per_request is None and self.rate_profile is not None:
            return DEFAULT_GAP_S
        return self.seconds_per_request

    def problem(self) -> str | None:
        """Why these options contradict each other, for the user; None where they do not."""
        if self.arrival is not None and self.gap_s is None:
            return (
                "--arrival is the law of the times between a user's requests; it needs --seconds_per_request or --rate_profile"
            )
        if self.rate_profile is None:
            if self.request_rate is not None:
                return "--request_rate is the mean rate of a --rate_profile; without one, -u sets the number of users"
            return None
        if parse_profile(self.rate_profile).is_absolute == (self.request_rate is not None):
            return (
                f"--request_rate: {self.rate_profile} has rates of its own; leave it out"
                if self.request_rate is not None
                else f"--rate_profile {self.rate_profile}: its factors need the mean rate, --request_rate"
            )
        return None


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options to Locust's parser (the event ``init_command_line_parser``)."""
    group = parser.add_argument_group("Language model requests", "What the users of inflight-bench send, and how often.")
    _add(group, "--model", "Model to drive. Default: ensemble of Triton, or the only one that an OpenAI server lists.")
    _add(group, "--dataset", "File with prompts, of any format that bench dataset reads. Default: the shipped prompts.")
    _add(group, "--op_tokens_per_word", "Tokens to request per word of the dataset's answer.", _positive, 1.3)
    _add(group, "--output_tokens", "Tokens to request where the dataset has neither a length nor an answer.", _count, 256)
    _add(group, "--ignore_eos", "Generate up to the requested length, beyond the end of the sequence.", None, False)
    _add(group, "--chat_path", "Path of the chat completions of an OpenAI server.", str, "/v1/chat/completions")
    _add(group, "--request_timeout", "Seconds after which a request has failed.", _positive, 600.0)
    _add(group, "--seed", "Seed of the times between a user's requests.", int, 0)
    _add(
        group,
        "--rate_profile",
        f"Let the number of users follow a rate over time, instead of -u: {PROFILES}. Users = rate · --seconds_per_request.",
        _spelt(parse_profile),
    )
    _add(group, "--request_rate", "Mean requests/s of a --rate_profile of factors (sine, on_off).", _positive)
    _add(
        group,
        "--seconds_per_request",
        "Mean seconds from the start of a user's request to the start of its next one; a user whose answer takes longer sends "
        "at once, until it has caught up. Default: the next one follows the answer; with --rate_profile 1.",
        _positive,
    )
    _add(group, "--arrival", f"Law of these times: {LAWS}. Default: exponential.", _spelt(parse_law))


def options_of(environment: Any) -> argparse.Namespace:
    """The parsed options of a ``locust.env.Environment``, which has them once the command line is read."""
    options: argparse.Namespace = environment.parsed_options
    return options


def read_settings(options: argparse.Namespace) -> Settings:
    """The settings of parsed options."""
    return Settings(**{name: getattr(options, name) for name in Settings.__dataclass_fields__})


def _add(
    group: Any, name: str, help_text: str, kind: Callable[[str], Any] | None = str, default: str | float | bool | None = None
) -> None:
    """Add an option in both spellings, and its environment variable ``BENCH_NAME``; without a ``kind`` it is a flag."""
    spellings = dict.fromkeys((name, name.replace("_", "-")))
    settings: dict[str, Any] = {"action": "store_true"} if kind is None else {"type": kind, "metavar": name[2:].upper()}
    variable = f"BENCH_{name[2:].upper()}"
    shown = f"{help_text} Default: {default}." if default else help_text
    group.add_argument(*spellings, default=default, env_var=variable, help=f"{shown} [{variable}]", **settings)


def _spelt(parse: Callable[[str], object]) -> Callable[[str], str]:
    """A type that checks a spelling and keeps its text, since Locust sends options to its workers as plain values."""

    def checked(text: str) -> str:
        try:
            parse(text)
        except BenchError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return checked


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: give a number above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: give a number from 1 on")
    return value
