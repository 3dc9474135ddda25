"""What the front end's process is given: where it listens, where Triton does, and the model."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import msgspec

PROCESS_NAME = "bench-openai"  # 15 characters at most: prctl(2)
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FrontEndSettings:
    """``host`` is a numeric address, ``server`` the host:port of Triton's gRPC, ``http`` the URL of its HTTP, and
    ``metrics`` that of its metrics.

    Clients name the model ``model``; requests go to Triton's ``core_model``. ``context_tokens`` bounds prompt and output
    together, None where unknown. ``allowed_hosts`` are names of this server in a Host header, beyond numeric addresses and
    names without a dot. ``body_bytes`` bounds a body, and ``receive_timeout_s`` the time in which it arrives.
    """

    host: str
    port: int
    server: str
    http: str
    metrics: str
    model: str
    tokenizer_dir: str
    context_tokens: int | None = None
    core_model: str = "tensorrt_llm"
    allowed_hosts: tuple[str, ...] = ()
    body_bytes: int = 32 * MIB
    receive_timeout_s: float = 60.0


def front_end_command(settings: FrontEndSettings) -> tuple[str, ...]:
    """The command of the front end's process."""
    return sys.executable, "-m", "serving.front_end", msgspec.json.encode(settings).decode()


def read_settings(text: str) -> FrontEndSettings:
    """The settings in an argument of ``front_end_command``."""
    return msgspec.json.decode(text, type=FrontEndSettings)
