"""Repository for NVIDIA's container: the C++ backend ``tensorrtllm`` with this package's Python models around it.

Only parameters that are set are written, since the backend warns about unfilled ones. The Python models are self-contained
(``serving/repository/vendoring.py``): nothing has to be installed in the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as pb

from serving.errors import RepositoryError
from serving.repository import tensors
from serving.repository.model_config import add_ensemble_steps, add_parameters, add_tensors, write_config
from serving.repository.ngc_parameters import FIXED, PARAMETERS, TOKENIZER_KEY
from serving.repository.ngc_spec import NgcSpec, check_ngc_spec
from serving.repository.vendoring import write_self_contained_model

_MODEL_MODULES = {
    "preprocessing": "serving.models.preprocessing",
    "postprocessing": "serving.models.postprocessing",
    "tensorrt_llm_bls": "serving.models.bls.model",
}
_EMBEDDED_ONLY = {"detokenization_context", "DETOKENIZATION_CONTEXT"}  # not produced by the C++ backend


def write_ngc_repository(spec: NgcSpec, folder: Path) -> Path:
    """Validate ``spec``, write the five models into ``folder`` (created if missing, must be empty) and return it.

    Raises RepositoryError, naming the option, before anything is written.
    """
    configs = ngc_model_configs(spec)
    if folder.exists() and any(folder.iterdir()):
        raise RepositoryError(f"the model repository {folder} is not empty; give an empty or new folder")
    for config in configs:
        version = write_config(config, folder)
        if config.name in _MODEL_MODULES:
            write_self_contained_model(version, _MODEL_MODULES[config.name])
    return folder


def ngc_model_configs(spec: NgcSpec) -> tuple[pb.ModelConfig, ...]:
    """Configurations of the five models. Raises RepositoryError for an invalid specification."""
    paths, batch_size = check_ngc_spec(spec)
    tokenizer = str(paths[TOKENIZER_KEY])
    preprocessing = _model(spec, batch_size, "preprocessing", tensors.PREPROCESSING_INPUTS, tensors.PREPROCESSING_OUTPUTS)
    add_parameters(preprocessing, {"tokenizer_dir": tokenizer, "add_special_tokens": spec.add_special_tokens})
    _queue(preprocessing, spec, batch_size)
    postprocessing = _model(spec, batch_size, "postprocessing", tensors.POSTPROCESSING_INPUTS, tensors.POSTPROCESSING_OUTPUTS)
    add_parameters(postprocessing, {"tokenizer_dir": tokenizer, "skip_special_tokens": spec.skip_special_tokens})
    postprocessing.dynamic_batching.SetInParent()
    ensemble = _model(spec, batch_size, "ensemble", tensors.ENSEMBLE_INPUTS, tensors.TEXT_OUTPUTS)
    core = _core(spec, batch_size, paths)
    add_ensemble_steps(ensemble, {output.name for output in core.output}, postprocessing)
    return (preprocessing, core, postprocessing, ensemble, _bls(spec, batch_size, tokenizer))


def _core(spec: NgcSpec, batch_size: int, paths: Mapping[str, Path]) -> pb.ModelConfig:
    config = _model(spec, batch_size, "tensorrt_llm", tensors.CORE_INPUTS, tensors.CORE_OUTPUTS)
    _queue(config, spec, batch_size)
    add_parameters(config, FIXED)
    add_parameters(config, {"gpt_model_type": "inflight_fused_batching"})
    for option, value in spec.parameters.items():
        add_parameters(config, {PARAMETERS[option].key: paths.get(option, value)})
    if "guided_decoding_backend" in spec.parameters:
        add_parameters(config, {TOKENIZER_KEY: paths[TOKENIZER_KEY]})
    return config


def _bls(spec: NgcSpec, batch_size: int, tokenizer: str) -> pb.ModelConfig:
    config = _model(spec, batch_size, "tensorrt_llm_bls", tensors.BLS_INPUTS, tensors.TEXT_OUTPUTS)
    parameters = {
        "tensorrt_llm_model_name": spec.tensorrt_llm_model_name,
        "accumulate_tokens": spec.accumulate_tokens,
        "tokenizer_dir": tokenizer,
        "skip_special_tokens": spec.skip_special_tokens,
    }
    add_parameters(config, parameters)
    if "exclude_input_in_output" in spec.parameters:  # the BLS model itself puts the prompt before the text
        add_parameters(config, {"exclude_input_in_output": spec.parameters["exclude_input_in_output"]})
    if spec.tensorrt_llm_draft_model_name is not None:
        add_parameters(config, {"tensorrt_llm_draft_model_name": spec.tensorrt_llm_draft_model_name})
    return config


def _model(spec: NgcSpec, batch_size: int, name: str, inputs: str, outputs: str) -> pb.ModelConfig:
    config = pb.ModelConfig(name=name, max_batch_size=batch_size)
    datatypes = tensors.Datatypes(
        spec.logits_datatype, spec.prompt_embedding_table_data_type, spec.encoder_input_features_data_type
    )
    release = tensors.Release(spec.tensor_names.removeprefix("v"))  # the C++ backend ignores the names of other releases
    declared = [
        [tensor for tensor in tensors.parse_tensors(table, datatypes, release) if tensor.name not in _EMBEDDED_ONLY]
        for table in (inputs, outputs)
    ]
    add_tensors(config, *declared)
    if name == "ensemble":
        config.platform = "ensemble"
    else:
        config.backend = "tensorrtllm" if name == "tensorrt_llm" else "python"
        config.instance_group.add(count=_instances(spec, name), kind=pb.ModelInstanceGroup.KIND_CPU)
    if name in ("tensorrt_llm", "tensorrt_llm_bls"):
        config.model_transaction_policy.decoupled = spec.decoupled_mode
    return config


def _instances(spec: NgcSpec, name: str) -> int:
    if name == "tensorrt_llm":  # one instance per group of GPUs
        return str(spec.parameters.get("gpu_device_ids", "")).count(";") + 1
    counts = {
        "preprocessing": spec.preprocessing_instance_count,
        "postprocessing": spec.postprocessing_instance_count,
        "tensorrt_llm_bls": spec.bls_instance_count,
    }
    return counts[name]


def _queue(config: pb.ModelConfig, spec: NgcSpec, batch_size: int) -> None:
    batching = config.dynamic_batching
    batching.preferred_batch_size.append(batch_size)
    batching.max_queue_delay_microseconds = spec.max_queue_delay_microseconds
    if spec.max_queue_size:
        batching.default_queue_policy.max_queue_size = spec.max_queue_size
