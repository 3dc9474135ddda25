"""Building blocks of Triton's ``ModelConfig`` messages, common to all targets of a repository."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from serving.repository.routing import (
    CLIENT_TO_PREPROCESSING,
    CORE_TO_POSTPROCESSING,
    PASSED_THROUGH,
    PREPROCESSING_TO_CORE,
    client_to_core,
)
from serving.repository.tensors import ENSEMBLE_INPUTS, TensorSpec


def write_config(config: pb.ModelConfig, repository: Path) -> Path:
    """Write ``config.pbtxt`` and create the version folder, which is returned."""
    version = repository / str(config.name) / "1"
    version.mkdir(parents=True)
    (repository / config.name / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
    return version


def add_tensors(config: pb.ModelConfig, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> None:
    """Declare inputs and outputs."""
    for tensor in inputs:
        added = config.input.add(
            name=tensor.name,
            data_type=f"TYPE_{tensor.dtype}",
            dims=tensor.dims,
            optional=tensor.optional,
            allow_ragged_batch=tensor.ragged,
        )
        if tensor.reshape_to_scalar:
            added.reshape.SetInParent()
    for tensor in outputs:
        config.output.add(name=tensor.name, data_type=f"TYPE_{tensor.dtype}", dims=tensor.dims)


def add_parameters(config: pb.ModelConfig, parameters: Mapping[str, object]) -> None:
    """Write parameters as strings; booleans are ``true`` and ``false``."""
    for key, value in parameters.items():
        config.parameters[key].string_value = str(value).lower() if isinstance(value, bool) else str(value)


def add_ensemble_steps(config: pb.ModelConfig, core_outputs: Collection[str], postprocessing: pb.ModelConfig) -> None:
    """Route the tensors declared in ``config`` through the three steps; ``core_outputs`` are the core model's outputs.

    What ``postprocessing`` passes through goes by way of it, the core model's other outputs to the client directly.
    """
    inputs, declared = {tensor.name for tensor in config.input}, {tensor.name for tensor in postprocessing.input}
    passed_through = {output: name for output, name in PASSED_THROUGH.items() if name in declared}
    to_postprocessing = {output: name for output, name in CORE_TO_POSTPROCESSING.items() if output in core_outputs}
    to_postprocessing |= passed_through
    steps = config.ensemble_scheduling.step

    preprocessing = steps.add(model_name="preprocessing", model_version=-1)
    preprocessing.input_map.update({name: client for client, name in CLIENT_TO_PREPROCESSING.items() if client in inputs})
    preprocessing.output_map.update({output: f"_{output}" for output in PREPROCESSING_TO_CORE})

    core = steps.add(model_name="tensorrt_llm", model_version=-1)
    core.input_map.update({name: f"_{output}" for output, name in PREPROCESSING_TO_CORE.items()})
    core.input_map.update({name: client for client, name in client_to_core(ENSEMBLE_INPUTS).items() if client in inputs})
    core.output_map.update({output: f"_{output}" for output in to_postprocessing})
    direct = {output.name for output in config.output} - {"text_output"} - passed_through.keys()
    core.output_map.update({name: name for name in sorted(direct)})

    last = steps.add(model_name="postprocessing", model_version=-1, output_map={"OUTPUT": "text_output"})
    last.input_map.update({name: f"_{output}" for output, name in to_postprocessing.items()})
    last.output_map.update({f"OUT_{name}": output for output, name in passed_through.items()})
