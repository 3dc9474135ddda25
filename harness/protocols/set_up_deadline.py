"""The deadline that finding the model and trying the server share, so that a slow server cannot hold a run back for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from harness.errors import TargetError

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class SetUpDeadline:
    """``at_s`` is a time of ``time.monotonic``; ``limit_s`` is the value of --connect_timeout."""

    at_s: float
    limit_s: float

    @classmethod
    def of(cls, limit_s: float) -> SetUpDeadline:
        return cls(time.monotonic() + limit_s, limit_s)

    @property
    def left_s(self) -> float:
        """The seconds that are left, 0 where none are."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> str:
        return f"--connect_timeout {self.limit_s:g}: the set-up took longer"

    def call(self, ask: Callable[[float], _Result]) -> _Result:
        """The result of ``ask``, which takes the seconds that it may use. Raises TargetError, which names the option where no
        time was or is left."""
        if not self.left_s:
            raise TargetError(f"{self.passed} before the server answered")
        try:
            return ask(self.left_s)
        except TargetError as error:
            if self.left_s:
                raise
            raise TargetError(f"{error} ({self.passed})") from error
