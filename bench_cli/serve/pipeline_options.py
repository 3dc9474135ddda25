"""Options of the embedded pipeline of ``bench serve``: its models and its engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, part, switch
from bench_cli.engine_options import ENGINE_DIR_HELP, EngineSettings
from serving.repository.tensors import Release

if TYPE_CHECKING:
    from serving.repository.pipeline import RepositorySpec

_FOLDER = click.Path(path_type=Path, file_okay=False)


UPSTREAM_RELEASES = click.Choice([release.value for release in Release])
OUT_OF_VOCABULARY_IDS = click.Choice(["refuse", "wrap"])


@dataclass(frozen=True)
class PipelineOptions(
    Concern,
    title="Model",
    note="All but --model_repo configure the embedded repository; any other repository has its own configuration.",
):
    """The embedded pipeline. ``engine_dir`` None: the demo engine; ``tokenizer_dir`` None: the engine's tokenizer;
    ``model_repo`` None: a temporary repository, of the embedded launcher alone."""

    model_repo: Path | None = option(
        None,
        type=_FOLDER,
        common=True,
        help="embedded: write the repository to this folder and keep it (default: a temporary one). Otherwise: serve it.",
    )
    engine_dir: Path | None = option(None, "--engine_dir", "--model_dir", type=_FOLDER, common=True, help=ENGINE_DIR_HELP)
    tokenizer_dir: Path | None = option(None, type=_FOLDER, common=True, help="Tokenizer folder. Default: the engine's.")
    decoupled_mode: bool = switch(True, common=True, help="Deploy decoupled models, which can stream.")
    triton_max_batch_size: int = option(128, type=click.IntRange(1, 2**31 - 1), common=True, help="Triton's batch size limit.")
    exclude_input_in_output: bool = option(False, help="Exclude the prompt from unstreamed answers by default.")
    accumulate_tokens: bool = option(False, help="tensorrt_llm_bls streams the accumulated text.")
    upstream_release: str = option(
        "newest",
        type=UPSTREAM_RELEASES,
        help="Release of tensorrtllm_backend whose tensors the models have: 0.11 for clients of 0.5 to 0.11.",
    )
    out_of_vocabulary_ids: str = option(
        "refuse",
        type=OUT_OF_VOCABULARY_IDS,
        help="Prompt ids beyond the vocabulary: refuse the request, or wrap them (modulo the vocabulary's size), as upstream's "
        "benchmark_core_model.py needs, which draws ids up to 2³¹−2.",
    )
    engine_settings: EngineSettings = part(EngineSettings)

    def repository(self) -> RepositorySpec:
        """The model repository to deploy. Raises UsageError for an option that the engine does not have."""
        from serving.repository.pipeline import RepositorySpec

        settings = self.engine_settings
        engine_dir = settings.folder(self.engine_dir)
        return RepositorySpec(
            engine_dir=engine_dir,
            tokenizer_dir=(self.tokenizer_dir or engine_dir).resolve(),
            engine=settings.engine,
            decoupled_mode=self.decoupled_mode,
            triton_max_batch_size=self.triton_max_batch_size,
            exclude_input_in_output=self.exclude_input_in_output,
            accumulate_tokens=self.accumulate_tokens,
            upstream_release=Release(self.upstream_release),
            out_of_vocabulary_ids=self.out_of_vocabulary_ids,
            max_stream_interval=settings.max_stream_interval,
            core_instance_count=settings.core_instance_count,
            draft_engine_dir=None if settings.draft_engine_dir is None else settings.draft_engine_dir.resolve(),
            engine_options=settings.options(),
        )
