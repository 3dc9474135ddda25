"""The identity of a run: a random number, which distinguishes its journals and messages from those of a repetition.

A command that is repeated has the same schedule, digest for digest; its runs are distinct all the same.
"""

from __future__ import annotations

import secrets
from typing import Annotated

from msgspec import Meta

_BYTES = 16

RunId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""128 bits in hexadecimal; it is a part of file names."""


def new_run_id() -> str:
    return secrets.token_hex(_BYTES)
