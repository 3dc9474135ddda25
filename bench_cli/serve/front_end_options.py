"""Options of the OpenAI front end of ``bench serve``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from bench_cli.declared import Concern, option


@dataclass(frozen=True)
class FrontEndOptions(Concern, title="OpenAI front end"):
    """The front end. ``openai_port`` None: there is none; ``openai_model`` None: the name of the engine's folder."""

    openai_port: int | None = option(
        None,
        type=click.IntRange(1, 65535),
        show_default="no front end",
        common=True,
        help="Serve OpenAI's API on this port of --host, too: /v1/chat/completions, /v1/completions, /v1/models, /health.",
    )
    openai_model: str | None = option(
        None, show_default="the name of the engine's folder", help="Name of the model for OpenAI's clients."
    )
