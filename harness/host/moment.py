"""A moment in the life of this process, for the times that a command took."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Moment:
    """``cpu_s`` is what this process has used until then, with its children that have ended."""

    at: datetime
    monotonic_s: float
    cpu_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(datetime.now(UTC), time.monotonic(), sum(os.times()[:4]))
