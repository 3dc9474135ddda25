"""The least time of a step: the embedded engine answers at the pace of another device."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from serving.errors import ServingError

_NS = {"us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(us|µs|ms|s)")
_PARTS = ("prompt_token", "sequence")
_LONGEST_NS = 60 * 1_000_000_000
_SAY_PERIOD_NS = 60 * 1_000_000_000
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepTime:
    """The least duration of a step, in ns: ``base_ns``, and further ns for each token of a prompt and each sequence in it."""

    base_ns: float = 0.0
    prompt_token_ns: float = 0.0
    sequence_ns: float = 0.0

    def sleep(self, started_ns: int, prompt_tokens: int | None, sequences: int) -> float:
        """Sleep until a step that started at ``started_ns`` (monotonic clock) has taken its least time, if it has not.

        Returns by how many ns it had taken longer.

        ``prompt_tokens`` None is unknown: the step is then as long as one without prompts.
        """
        least_ns = self.base_ns + self.prompt_token_ns * (prompt_tokens or 0) + self.sequence_ns * sequences
        left_ns = started_ns + least_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns / 1e9)
        return max(0.0, -left_ns)


class Pace:
    """Lets each step of one engine last its least time, and says in the log how many steps had another length."""

    def __init__(self, text: str) -> None:
        """``text`` is that of ``read_step_time``. Raises ServingError."""
        self._text, self._least = text, read_step_time(text)
        self._steps = self._late = self._unknown = 0
        self._late_ns = 0.0
        self._said = 0  # steps of another length, by the newest line of the log
        self._say_ns = 0

    def keep(self, started_ns: int, prompt_tokens: int | None, sequences: int) -> None:
        """As ``StepTime.sleep``."""
        if not self._text:
            return
        late_ns = self._least.sleep(started_ns, prompt_tokens, sequences)
        self._steps += 1
        self._late += late_ns > 0
        self._late_ns += late_ns
        self._unknown += prompt_tokens is None and self._least.prompt_token_ns > 0

    def say(self, *, at_end: bool = False) -> None:
        """Log how many steps had another length, where these are more than in the newest line: once a minute at most, and
        ``at_end`` in any case.
        """
        other, now_ns = self._late + self._unknown, time.monotonic_ns()
        if other == self._said or (now_ns < self._say_ns and not at_end):
            return
        self._said, self._say_ns = other, now_ns + _SAY_PERIOD_NS
        _LOG.warning("--min_step_time %s: %s", self._text, "; ".join(self._others()))

    def _others(self) -> Iterator[str]:
        steps = f"of {self._steps:,} steps"
        if self._late:
            by = f"by {self._late_ns / self._late / 1e6:.1f} ms on average"
            yield f"{self._late:,} {steps} took longer, {by}, because this machine is too slow for them"
        if self._unknown:
            yield f"{self._unknown:,} {steps} had an unknown number of prompt tokens, so prompt_token was not added to them"


def read_step_time(text: str) -> StepTime:
    """The step time of ``8ms`` or ``8ms,prompt_token=20us,sequence=100us``; an empty text is none.

    Raises ServingError for any other text, a unit other than us, ms and s, a part that is given twice, and more than 60 s.
    """
    if not text:
        return StepTime()
    base, *parts = text.split(",")
    durations_ns = {"base": _duration_ns(text, base)}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in _PARTS or name in durations_ns:
            raise _flaw(text)
        durations_ns[name] = _duration_ns(text, value)
    return StepTime(**{f"{name}_ns": duration_ns for name, duration_ns in durations_ns.items()})


def _duration_ns(text: str, duration: str) -> float:
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise _flaw(text)
    duration_ns = float(found[1]) * _NS[found[2]]
    if duration_ns > _LONGEST_NS:
        raise ServingError(f"min_step_time {text!r}: {duration} is more than a minute")
    return duration_ns


def _flaw(text: str) -> ServingError:
    return ServingError(
        f"min_step_time {text!r}: write the least time of a step, such as 8ms, and after commas what each token of a prompt "
        "and each sequence adds to it, such as 8ms,prompt_token=20us,sequence=100us"
    )
