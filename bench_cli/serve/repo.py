"""``bench serve repo``: check and write a model repository for a target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

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

# Options of each target. The default None means "not given", so that a target can refuse the options of other targets.
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


def _option(parameter: Parameter) -> Any:
    """An option of the table, whose ``parse`` is the only check of its text."""

    def read(context: click.Context, option: click.Parameter, text: str | None) -> Value | None:
        from serving.errors import RepositoryError

        try:
            return None if text is None else parameter.parse(text)
        except RepositoryError as error:
            raise click.UsageError(str(error), context) from None

    return cloup.option(f"--{parameter.option}", metavar=parameter.metavar, help=parameter.help, callback=read)


def _backend_options(command: Any) -> Any:
    """One option per parameter of the C++ backend's table, in its groups."""
    for title, parameters in reversed(GROUPS.items()):
        command = cloup.option_group(title, *(_option(parameter) for parameter in parameters))(command)
    return command


def _refused_options(command: Any) -> Any:
    """Options of old templates, each refused with the reason."""

    def refuse(context: click.Context, option: click.Parameter, text: str | None) -> None:
        if text is not None:
            raise click.UsageError(f"--{option.name}: {REFUSED[str(option.name)]}", context)

    for name in REFUSED:
        command = cloup.option(f"--{name}", hidden=True, expose_value=False, callback=refuse)(command)
    return command


@cloup.command(
    name="repo",
    short_help="Write a model repository for a target.",
    epilog="""\b
Examples:
  bench serve repo --target ngc --output_dir repo --engine_dir engine --tokenizer_dir llama --max_queue_size 100
  bench serve repo --target llmapi --output_dir repo --model ./llama --set tensor_parallel_size=2
  bench serve repo --target embedded --output_dir repo""",
)
@cloup.option_group(
    "Target",
    cloup.option(
        "--target",
        type=click.Choice(["embedded", "ngc", "llmapi"]),
        required=True,
        help="Server that reads the repository.",
    ),
    cloup.option("--output_dir", type=_FOLDER, required=True, help="New or empty folder for the repository."),
    cloup.option(
        "--check_paths/--no_check_paths", default=None, help="Check that paths and engine exist here.  [default: check]"
    ),
    cloup.option("--world_size", type=_COUNT, help="ngc: ranks of the server."),
)
@cloup.option_group(
    "Models",
    cloup.option("--tokenizer_dir", type=_FOLDER, help="Tokenizer folder. embedded: the engine's by default."),
    cloup.option("--triton_max_batch_size", type=_COUNT, help="Triton's limit. Default: ngc the engine's, embedded 128."),
    cloup.option(
        "--decoupled_mode/--no_decoupled_mode", default=None, help="Required for streaming.  [default: decoupled_mode]"
    ),
    cloup.option("--max_queue_delay_microseconds", type=_NATURAL, help="Time a batch waits for more requests. Default: 0."),
    cloup.option("--max_queue_size", type=_NATURAL, help="Maximum queued requests; others are refused. 0: no limit."),
    cloup.option("--preprocessing_instance_count", type=_COUNT, help="Default: 1."),
    cloup.option("--postprocessing_instance_count", type=_COUNT, help="Default: 1."),
    cloup.option("--bls_instance_count", type=_COUNT, help="One serves many requests concurrently. Default: 1."),
    cloup.option("--add_special_tokens/--no_add_special_tokens", default=None, help="In prompts.  [default: add]"),
    cloup.option("--skip_special_tokens/--no_skip_special_tokens", default=None, help="In outputs.  [default: skip]"),
    cloup.option("--accumulate_tokens", is_flag=True, default=None, help="tensorrt_llm_bls streams the accumulated text."),
    cloup.option("--tensorrt_llm_model_name", help="ngc: the model that tensorrt_llm_bls calls. Default: tensorrt_llm."),
    cloup.option("--tensorrt_llm_draft_model_name", help="ngc: its draft model, for speculative decoding."),
    cloup.option("--logits_datatype", type=_DATATYPE, help="Default: FP32."),
    cloup.option("--prompt_embedding_table_data_type", type=_DATATYPE, help="ngc. Default: FP16."),
    cloup.option("--encoder_input_features_data_type", type=_DATATYPE, help="ngc. Default: FP16."),
    cloup.option(
        "--tensor_names", type=click.Choice(["newest", "v0.19"]), help="ngc: v0.19 and older have min_length and random_seed."
    ),
)
@_backend_options
@_refused_options
@cloup.option_group(
    "Embedded engine",
    cloup.option("--max_num_sequences", type=_COUNT, help="Sequences that run concurrently."),
    cloup.option("--max_num_tokens", type=_COUNT, help="Maximum tokens per step."),
    cloup.option("--upstream_release", type=UPSTREAM_RELEASES, help="Release whose tensors the models have. Default: newest."),
    cloup.option("--out_of_vocabulary_ids", type=OUT_OF_VOCABULARY_IDS, help="Such prompt ids. Default: refuse."),
)
@cloup.option_group(
    "LLM API",
    cloup.option("--model", help="Hugging Face id or checkpoint folder."),
    cloup.option(
        "--set", multiple=True, metavar="KEY=VALUE", help="An argument of LLM(); dots separate nested keys. Repeatable."
    ),
)
def command(target: str, output_dir: Path, **values: Any) -> None:
    """Write a model repository for a target, after checking types, ranges, paths, and the engine against the options.

    embedded: the CPU engine, served by 'bench serve'. ngc: the C++ backend of NVIDIA's container, on an engine of trtllm-build.
    llmapi: TensorRT-LLM's LLM API on a checkpoint. Only the given parameters are written to tensorrt_llm/config.pbtxt; embedded
    accepts those of the backend's parameters that its engine has.
    """
    from serving.errors import ServingError

    given = {name: value for name, value in values.items() if value is not None and value != ()}
    try:
        folder = _write_repository(target, given, output_dir)
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
