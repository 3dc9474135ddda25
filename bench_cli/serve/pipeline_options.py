"""Options of the embedded pipeline of ``bench serve``: its models and its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.engine_options import EngineSettings, engine_options, options_from
from serving.repository.tensors import Release

if TYPE_CHECKING:
    from serving.repository.pipeline import RepositorySpec

_FOLDER = click.Path(path_type=Path, file_okay=False)


@dataclass(frozen=True)
class PipelineOptions:
    """The embedded pipeline. ``engine_dir`` None: the demo engine; ``tokenizer_dir`` None: the engine's tokenizer."""

    engine: str
    engine_dir: Path | None
    tokenizer_dir: Path | None
    decoupled_mode: bool
    triton_max_batch_size: int
    exclude_input_in_output: bool
    accumulate_tokens: bool
    upstream_release: str
    out_of_vocabulary_ids: str
    engine_settings: EngineSettings

    def repository(self) -> RepositorySpec:
        """The model repository to deploy. Raises UsageError where the engine has no demo engine."""
        from serving.engines.openvino.folder import DEMO_ENGINE_DIR
        from serving.repository.pipeline import RepositorySpec

        if self.engine != "openvino" and self.engine_dir is None:
            raise click.UsageError(f"--engine_dir: the demo engine is for OpenVINO; give a folder for --engine {self.engine}")
        engine_dir, settings = self.engine_dir or DEMO_ENGINE_DIR, self.engine_settings
        return RepositorySpec(
            engine_dir=engine_dir.resolve(),
            tokenizer_dir=(self.tokenizer_dir or engine_dir).resolve(),
            engine=self.engine,
            decoupled_mode=self.decoupled_mode,
            triton_max_batch_size=self.triton_max_batch_size,
            exclude_input_in_output=self.exclude_input_in_output,
            accumulate_tokens=self.accumulate_tokens,
            upstream_release=Release(self.upstream_release),
            out_of_vocabulary_ids=self.out_of_vocabulary_ids,
            max_stream_interval=settings.max_stream_interval,
            draft_engine_dir=None if settings.draft_engine_dir is None else settings.draft_engine_dir.resolve(),
            engine_options=engine_options(vars(settings)),
        )


UPSTREAM_RELEASES = click.Choice([release.value for release in Release])
OUT_OF_VOCABULARY_IDS = click.Choice(["refuse", "wrap"])

model_group = cloup.option_group(
    "Model",
    cloup.option(
        "--model_repo",
        type=_FOLDER,
        help="embedded: write the repository to this folder and keep it (default: a temporary one). Otherwise: serve it.",
    ),
    cloup.option(
        "--engine",
        type=click.Choice(["openvino", "tensorrt_llm"]),
        default="openvino",
        help="Inference engine: OpenVINO on the CPU, or TensorRT-LLM's LLM API on a GPU.",
    ),
    cloup.option("--engine_dir", type=_FOLDER, help="Engine folder made by 'bench engine build'. Default: the demo engine."),
    cloup.option("--tokenizer_dir", type=_FOLDER, help="Tokenizer folder. Default: the engine's."),
    cloup.option("--decoupled_mode/--no_decoupled_mode", default=True, help="Deploy decoupled models, which can stream."),
    cloup.option("--triton_max_batch_size", type=click.IntRange(1, 2**31 - 1), default=128, help="Triton's batch size limit."),
    cloup.option("--exclude_input_in_output", is_flag=True, help="Exclude the prompt from unstreamed answers by default."),
    cloup.option("--accumulate_tokens", is_flag=True, help="tensorrt_llm_bls streams the accumulated text."),
    cloup.option(
        "--upstream_release",
        type=UPSTREAM_RELEASES,
        default="newest",
        help="Release of tensorrtllm_backend whose tensors the models have: 0.11 for clients of 0.5 to 0.11.",
    ),
    cloup.option(
        "--out_of_vocabulary_ids",
        type=OUT_OF_VOCABULARY_IDS,
        default="refuse",
        help="Prompt ids beyond the vocabulary: refuse the request, or wrap them (modulo the vocabulary's size), as upstream's "
        "benchmark_core_model.py needs, which draws ids up to 2³¹−2.",
    ),
    help="All but --model_repo configure the embedded repository; any other repository has its own configuration.",
)


def read_pipeline_options(values: Mapping[str, Any]) -> PipelineOptions:
    """The options of ``model_group`` and the engine group."""
    return options_from(PipelineOptions, {**values, "engine_settings": options_from(EngineSettings, values)})
