"""Where the engine runs."""

from __future__ import annotations

from enum import Enum


class UsageContext(Enum):
    ENGINE_CONTEXT = "ENGINE_CONTEXT"
