"""A Triton model's configuration, and which inputs and outputs requests use; the same over gRPC and HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.clients.server_times import STAMPS
from harness.errors import TargetError
from workloads.elements.request import Request

DEFAULT_MODEL = "tensorrt_llm"
LORA_INPUT = "lora_task_id"
NO_END_ID = -1  # an end token that no vocabulary has
_CORE_FLAGS = ("exclude_input_in_output",)
_TEXT_FLAGS = ("exclude_input_in_output", "return_num_input_tokens", "return_num_output_tokens")
_CORE_OUTPUTS = ("output_ids", "sequence_length")
_TEXT_OUTPUTS = ("text_output", "num_input_tokens", "num_output_tokens")
_CORE_INPUTS = ("input_ids", "input_lengths", "request_output_len")  # of every request
_TEXT_INPUTS = ("text_input", "max_tokens")
_TIMES_INPUT = "return_perf_metrics"


def check_inputs(model: TritonModel) -> None:
    """Raises TargetError for a model that does not declare the inputs of every request, with their names."""
    if not model.inputs & {"input_ids", "text_input"}:
        raise TargetError(f"--model {model.name}: it takes neither input_ids nor text_input, so bench cannot drive it")
    if model.missing_inputs:
        raise TargetError(
            f"--model {model.name}: it has no input {', '.join(model.missing_inputs)}, which every request of bench sets, so "
            f"it would do other work than requested; its inputs are {', '.join(sorted(model.inputs))}"
        )


@dataclass(frozen=True, slots=True)
class TritonModel:
    """The configuration of a deployed model. ``asks_for_times``: each request asks for the engine's own times of it."""

    name: str
    decoupled: bool
    inputs: frozenset[str]
    outputs: frozenset[str]
    parameters: tuple[tuple[str, str], ...]
    asks_for_times: bool = False

    @classmethod
    def of_config(cls, name: str, config: Any) -> TritonModel:
        """The model by Triton's ``ModelConfig``: the message of gRPC, or an object with the same fields."""
        return cls(
            name=name,
            decoupled=config.model_transaction_policy.decoupled,
            inputs=frozenset(tensor.name for tensor in config.input),
            outputs=frozenset(tensor.name for tensor in config.output),
            parameters=tuple(sorted((key, value.string_value) for key, value in config.parameters.items())),
        )

    @property
    def takes_token_ids(self) -> bool:
        """The core model takes token ids; the ensemble and BLS take text."""
        return "input_ids" in self.inputs

    @property
    def missing_inputs(self) -> tuple[str, ...]:
        """The inputs of every request that the model does not declare.

        Over gRPC Triton refuses a request with such an input. Over HTTP it makes a parameter of it, which the model ignores.
        """
        return tuple(name for name in (_CORE_INPUTS if self.takes_token_ids else _TEXT_INPUTS) if name not in self.inputs)

    @property
    def excludes_prompt(self) -> bool:
        """Whether the model has an input that leaves the prompt out of its answer."""
        return "exclude_input_in_output" in self.inputs

    @property
    def flags(self) -> tuple[str, ...]:
        """The boolean inputs that every request sets."""
        flags = _CORE_FLAGS if self.takes_token_ids else _TEXT_FLAGS
        wanted = (*flags, _TIMES_INPUT) if self.asks_for_times else flags
        return tuple(name for name in wanted if name in self.inputs)

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """The outputs that every request names where the protocol can: others are then not sent."""
        outputs = _CORE_OUTPUTS if self.takes_token_ids else _TEXT_OUTPUTS
        wanted = (*outputs, *STAMPS) if self.asks_for_times else outputs
        return tuple(name for name in wanted if name in self.outputs)

    def asking_for_times(self) -> TritonModel:
        """The model with requests that ask for the engine's times. Raises TargetError for one that cannot return them."""
        if _TIMES_INPUT not in self.inputs or not self.outputs.issuperset(STAMPS):
            raise TargetError(
                f"--server_timings: the model {self.name} has no input {_TIMES_INPUT}, or lacks its outputs; TensorRT-LLM has "
                "them since release 0.19, as bench serve does; without --server_timings it can be measured"
            )
        return replace(self, asks_for_times=True)

    def named(self, request: Request) -> str:
        """The model that a request is for: this one, or that of its class."""
        variant = request.variant
        return self.name if variant is None or variant.model is None else variant.model

    def end_and_pad(self, ignore_eos: bool, end_id: int | None, pad_id: int | None) -> dict[str, int]:
        """The inputs for the end token and the padding token, as far as they are known and the model has them."""
        wanted = {"end_id": NO_END_ID if ignore_eos else end_id, "pad_id": pad_id}
        return {name: value for name, value in wanted.items() if value is not None and name in self.inputs}


def deployed_tokenizer_dir(model: TritonModel, inspect: Callable[[str], TritonModel]) -> Path | None:
    """The tokenizer folder that the deployment of ``model`` itself uses, None where it is not on this machine.

    The parameter ``tokenizer_dir`` is searched in ``model`` and then in ``preprocessing``, which ``inspect`` fetches.
    """

    def parameter_sets() -> Iterator[Mapping[str, str]]:
        yield dict(model.parameters)
        with suppress(TargetError):  # a server without the ensemble's models
            yield dict(inspect("preprocessing").parameters)

    paths = (parameters.get("tokenizer_dir") for parameters in parameter_sets())
    return next((Path(path) for path in paths if path and Path(path).is_dir()), None)
