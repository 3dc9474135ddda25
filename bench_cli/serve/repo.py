"""``bench serve repo``: check and write a model repository for a target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.declared import Concern, option, part, required, switch, takes
from bench_cli.engine_options import engine_options
from bench_cli.serve.pipeline_options import OUT_OF_VOCABULARY_IDS, UPSTREAM_RELEASES
from serving.repository.ngc_parameters import GROUPS, PARAMETERS, REFUSED
from serving.repository.values import Parameter

if TYPE_CHECKING:
    from serving.repository.llmapi import LlmApiSpec
    from serving.repository.ngc_spec import NgcSpec
    from serving.repository.pipeline import RepositorySpec
    from serving.repository.values import Value

_FOLDER = click.Path(path_type=Path, file_okay=False)
_COUNT = click.IntRange(1, 2**31 - 1)
_NATURAL = click.IntRange(0, 2**31 - 1)
_DATATYPE = click.Choice(["FP32", "FP16", "BF16"], case_sensitive=False)

# Options of each target.
_PIPELINE = (
    "tokenizer_dir", "triton_max_batch_size", "decoupled_mode", "max_queue_delay_microseconds", "max_queue_size",
    "preprocessing_instance_count", "postprocessing_instance_count", "bls_instance_count", "logits_datatype",
    "add_special_tokens", "skip_special_tokens", "accumulate_tokens",
)  # fmt: skip
_NGC = (
    "prompt_embedding_table_data_type", "encoder_input_features_data_type", "tensorrt_llm_model_name",
    "tensorrt_llm_draft_model_name", "tensor_names", "world_size", "check_paths",
)  # fmt: skip
_LLMAPI = ("model", "decoupled_mode", "accumulate_tokens", "cancellation_check_period_ms", "gpu_device_ids", "check_paths")


def _option(parameter: Parameter, group: str) -> Any:
    """The field of an option of the backend's table, whose ``parse`` is the only check of its text."""

    def read(context: click.Context, option: click.Parameter, text: str | None) -> Value | None:
        from serving.errors import RepositoryError

        try:
            return None if text is None else parameter.parse(text)
        except RepositoryError as error:
            raise click.UsageError(str(error), context) from None

    common = parameter.option == "engine_dir"
    return option(None, group=group, common=common, metavar=parameter.metavar, help=parameter.help, callback=read)


def _refused(context: click.Context, option: click.Parameter, text: str | None) -> None:
    """Callback of the options of old templates, each of which is refused with the reason. Raises UsageError."""
    if text is not None:
        raise click.UsageError(f"--{option.name}: {REFUSED[str(option.name)]}", context)


BackendOptions = make_dataclass(
    "BackendOptions",
    [
        *((parameter.option, Any, _option(parameter, title)) for title, group in GROUPS.items() for parameter in group),
        *((name, Any, option(None, hidden=True, callback=_refused)) for name in REFUSED),
    ],
    bases=(Concern,),
    frozen=True,
)
"""The parameters of the C++ backend's table, in its groups, and options of old templates."""


@dataclass(frozen=True)
class TargetOptions(Concern, title="Target"):
    """The server that reads the repository, and the folder."""

    target: str = required(
        type=click.Choice(["embedded", "ngc", "llmapi"]), common=True, help="Server that reads the repository."
    )
    output_dir: Path = required(type=_FOLDER, common=True, help="New or empty folder for the repository.")
    check_paths: bool | None = switch(None, common=True, help="Check that paths and engine exist here.  [default: check]")
    world_size: int | None = option(None, type=_COUNT, common=True, help="ngc: ranks of the server.")


@dataclass(frozen=True)
class ModelOptions(Concern, title="Models"):
    """The five models. None: not given."""

    tokenizer_dir: Path | None = option(
        None, type=_FOLDER, common=True, help="Tokenizer folder. embedded: the engine's by default."
    )
    triton_max_batch_size: int | None = option(
        None, type=_COUNT, common=True, help="Triton's limit. Default: ngc the engine's, embedded 128."
    )
    decoupled_mode: bool | None = switch(None, common=True, help="Required for streaming.  [default: decoupled_mode]")
    max_queue_delay_microseconds: int | None = option(
        None, type=_NATURAL, common=True, help="Time a batch waits for more requests. Default: 0."
    )
    max_queue_size: int | None = option(
        None, type=_NATURAL, common=True, help="Maximum queued requests; others are refused. 0: no limit."
    )
    preprocessing_instance_count: int | None = option(None, type=_COUNT, help="Default: 1.")
    postprocessing_instance_count: int | None = option(None, type=_COUNT, help="Default: 1.")
    bls_instance_count: int | None = option(
        None, type=_COUNT, common=True, help="One serves many requests concurrently. Default: 1."
    )
    add_special_tokens: bool | None = switch(None, help="In prompts.  [default: add]")
    skip_special_tokens: bool | None = switch(None, help="In outputs.  [default: skip]")
    accumulate_tokens: bool | None = option(None, is_flag=True, help="tensorrt_llm_bls streams the accumulated text.")
    tensorrt_llm_model_name: str | None = option(
        None, common=True, help="ngc: the model that tensorrt_llm_bls calls. Default: tensorrt_llm."
    )
    tensorrt_llm_draft_model_name: str | None = option(None, help="ngc: its draft model, for speculative decoding.")
    logits_datatype: str | None = option(None, type=_DATATYPE, help="Default: FP32.")
    prompt_embedding_table_data_type: str | None = option(None, type=_DATATYPE, help="ngc. Default: FP16.")
    encoder_input_features_data_type: str | None = option(None, type=_DATATYPE, help="ngc. Default: FP16.")
    tensor_names: str | None = option(
        None, type=click.Choice(["newest", "v0.19"]), help="ngc: v0.19 and older have min_length and random_seed."
    )


@dataclass(frozen=True)
class EmbeddedOptions(Concern, title="Embedded engine"):
    """The engine of the embedded target. None: not given."""

    max_num_sequences: int | None = option(None, type=_COUNT, help="Sequences that run concurrently.")
    max_num_tokens: int | None = option(None, type=_COUNT, help="Maximum tokens per step.")
    upstream_release: str | None = option(
        None, type=UPSTREAM_RELEASES, help="Release whose tensors the models have. Default: newest."
    )
    out_of_vocabulary_ids: str | None = option(None, type=OUT_OF_VOCABULARY_IDS, help="Such prompt ids. Default: refuse.")


@dataclass(frozen=True)
class LlmApiOptions(Concern, title="LLM API"):
    """The checkpoint, and arguments of LLM()."""

    model: str | None = option(None, common=True, help="Hugging Face id or checkpoint folder.")
    set: tuple[str, ...] = option(
        (), metavar="KEY=VALUE", common=True, help="An argument of LLM(); dots separate nested keys. Repeatable."
    )


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench serve repo``. The default None means "not given", so that a target can refuse those of others."""

    target: TargetOptions = part(TargetOptions)
    models: ModelOptions = part(ModelOptions)
    backend: Concern = part(BackendOptions)
    embedded: EmbeddedOptions = part(EmbeddedOptions)
    llmapi: LlmApiOptions = part(LlmApiOptions)

    def given_values(self) -> dict[str, Any]:
        """The options that are given, by name, without the target and its folder."""
        return {
            name: value
            for name, value in self.values_of_parts().items()
            if value is not None and value != () and name not in ("target", "output_dir")
        }


@cloup.command(
    name="repo",
    short_help="Write a model repository for a target.",
    epilog="""\b
Examples:
  bench serve repo --target ngc --output_dir repo --engine_dir engine --tokenizer_dir llama --max_queue_size 100
  bench serve repo --target llmapi --output_dir repo --model ./llama --set tensor_parallel_size=2
  bench serve repo --target embedded --output_dir repo""",
)
@takes(Options)
def command(options: Options) -> None:
    """Write a model repository for a target, after checking types, ranges, paths, and the engine against the options.

    embedded: the CPU engine, served by 'bench serve'. ngc: the C++ backend of NVIDIA's container, on an engine of trtllm-build.
    llmapi: TensorRT-LLM's LLM API on a checkpoint. Only the given parameters are written to tensorrt_llm/config.pbtxt; embedded
    accepts those of the backend's parameters that its engine has.
    """
    from serving.errors import ServingError

    try:
        folder = _write_repository(options.target.target, options.given_values(), options.target.output_dir)
    except ServingError as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"Repository: {folder}")


def _write_repository(target: str, given: Mapping[str, Any], output_dir: Path) -> Path:
    from serving.repository.llmapi import write_llmapi_repository
    from serving.repository.ngc import write_ngc_repository
    from serving.repository.pipeline import write_repository

    match target:
        case "embedded":
            return write_repository(_embedded_spec(given), output_dir)
        case "ngc":
            return write_ngc_repository(_ngc_spec(given), output_dir)
        case _:
            return write_llmapi_repository(_llmapi_spec(given), output_dir)


def _embedded_spec(given: Mapping[str, Any]) -> RepositorySpec:
    from serving.engines.openvino.folder import DEMO_ENGINE_DIR, read_limits
    from serving.engines.protocol import EngineOptions
    from serving.repository.pipeline import RepositorySpec
    from serving.repository.tensors import Release

    spec_fields = {field.name for field in fields(RepositorySpec)} - {"engine_options"}
    _refuse_others("embedded", given, spec_fields | {field.name for field in fields(EngineOptions)})
    engine_dir = given.get("engine_dir", DEMO_ENGINE_DIR).resolve()
    read_limits(engine_dir)
    folders = {"engine_dir": engine_dir, "tokenizer_dir": given.get("tokenizer_dir", engine_dir).resolve()}
    own = {name: value for name, value in given.items() if name in spec_fields}
    if "upstream_release" in own:
        own["upstream_release"] = Release(own["upstream_release"])
    return RepositorySpec(**{**own, **folders}, engine_options=engine_options(given))


def _ngc_spec(given: Mapping[str, Any]) -> NgcSpec:
    from serving.repository.ngc_spec import NgcSpec

    _refuse_others("ngc", given, {*_PIPELINE, *_NGC, *PARAMETERS})
    if "tokenizer_dir" not in given:
        raise click.UsageError("--tokenizer_dir must be given: the Hugging Face tokenizer of the engine's model")
    parameters = {name: value for name, value in given.items() if name in PARAMETERS}
    own = {name: value for name, value in given.items() if name not in PARAMETERS}
    return NgcSpec(parameters=parameters, **own)


def _llmapi_spec(given: Mapping[str, Any]) -> LlmApiSpec:
    from serving.repository.llmapi import LlmApiSpec, nested, parse_llm_argument

    arguments = nested([parse_llm_argument(text) for text in given.get("set", ())])
    own = {name: value for name, value in given.items() if name != "set"}
    _refuse_others("llmapi", own, _LLMAPI)
    if "model" not in own:
        raise click.UsageError("--model must be given: a checkpoint's folder or its Hugging Face id")
    return LlmApiSpec(llm=arguments, **own)


def _refuse_others(target: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise click.UsageError(f"--{name}: the target {target} has no such option")
