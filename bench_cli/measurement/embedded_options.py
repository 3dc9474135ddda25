"""Options of the embedded pipeline, which is deployed where there is no ``--url``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, part, switch
from bench_cli.engine_options import ENGINE_DIR_HELP, ENGINE_OPTION_NAMES, EngineSettings

if TYPE_CHECKING:
    from serving.repository.pipeline import RepositorySpec


@dataclass(frozen=True)
class EmbeddedOptions(Concern, title="The embedded pipeline (without --url)"):
    """The deployment of the embedded pipeline. ``engine_dir`` None: the demo engine."""

    engine_dir: Path | None = option(
        None, "--engine_dir", "--model_dir", type=click.Path(path_type=Path, file_okay=False), help=ENGINE_DIR_HELP
    )
    decoupled_mode: bool = switch(True, help="Deploy decoupled models, which can stream.")
    engine_settings: EngineSettings = part(EngineSettings)

    def repository(self, tokenizer_dir: Path | None) -> RepositorySpec:
        """The model repository to deploy; ``tokenizer_dir`` None means the engine's tokenizer.

        Raises UsageError for an option that the engine does not have.
        """
        from serving.repository.pipeline import RepositorySpec

        settings = self.engine_settings
        engine_dir = settings.folder(self.engine_dir)
        return RepositorySpec(
            engine_dir=engine_dir,
            tokenizer_dir=(tokenizer_dir or engine_dir).resolve(),
            engine=settings.engine,
            decoupled_mode=self.decoupled_mode,
            max_stream_interval=settings.max_stream_interval,
            core_instance_count=settings.core_instance_count,
            draft_engine_dir=None if settings.draft_engine_dir is None else settings.draft_engine_dir.resolve(),
            engine_options=settings.options(),
        )


def check_embedded_options(options: EmbeddedOptions, urls: Sequence[str]) -> None:
    """Raises UsageError for an option of the embedded pipeline beside --url."""
    if not urls:
        return
    names = options.given(*ENGINE_OPTION_NAMES)
    if options.engine_dir is not None:
        names.insert(0, "engine_dir")
    if not options.decoupled_mode:
        names.append("no_decoupled_mode")
    if names:
        raise click.UsageError(f"--{names[0]} configures the embedded pipeline; it cannot be combined with --url")
