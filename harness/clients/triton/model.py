"""A Triton model's configuration, and which inputs and outputs requests use; the same over gRPC and HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.clients.protocol import Repetition
from harness.clients.server_times import STAMPS
from harness.clients.triton.model_kinds import KINDS, LORA_INPUT, Ends, ModelKind, Tensor, kind_of
from harness.errors import TargetError
from workloads.elements.request import Request

DEFAULT_MODEL = "tensorrt_llm"
_DIMENSIONS = 2  # of an input with a batch
_TRUE = frozenset({"true", "1", "t", "y", "yes"})  # by upstream's models, and y by those of bench serve alone


def check_inputs(model: TritonModel) -> None:
    """Raises TargetError for a model that does not declare the inputs of every request, with their names."""
    if kind_of(model.inputs) is None:
        raise TargetError(f"--model {model.name}: it takes neither input_ids nor text_input, so bench cannot drive it")
    if model.missing_inputs:
        raise TargetError(
            f"--model {model.name}: it has no input {', '.join(model.missing_inputs)}, which every request of bench sets, so "
            f"it would do other work than requested; its inputs are {', '.join(sorted(model.inputs))}"
        )


@dataclass(frozen=True, slots=True)
class TritonModel:
    """The configuration of a deployed model. ``asks_for_times``: each request asks for the engine's own times of it.
    ``flat_inputs`` have one dimension, as where Triton does not batch (``max_batch_size: 0``); others have one more before it.
    ``repetition`` is that of its streamed texts.
    """

    name: str
    decoupled: bool
    inputs: frozenset[str]
    outputs: frozenset[str]
    parameters: tuple[tuple[str, str], ...]
    asks_for_times: bool = False
    flat_inputs: frozenset[str] = frozenset()
    repetition: Repetition = Repetition.NONE

    @classmethod
    def of_config(cls, name: str, config: Any) -> TritonModel:
        """The model by Triton's ``ModelConfig``: the message of gRPC, or an object with the same fields."""
        inputs = frozenset(tensor.name for tensor in config.input)
        parameters = {key: value.string_value for key, value in config.parameters.items()}
        kind = kind_of(inputs)
        flat = frozenset(tensor.name for tensor in config.input if len(tensor.dims) < _DIMENSIONS)
        accumulates = parameters.get("accumulate_tokens", "").strip().lower() in _TRUE
        return cls(
            name=name,
            decoupled=config.model_transaction_policy.decoupled,
            inputs=inputs,
            outputs=frozenset(tensor.name for tensor in config.output),
            parameters=tuple(sorted(parameters.items())),
            flat_inputs=frozenset() if config.max_batch_size else flat,
            repetition=Repetition.CERTAIN if accumulates else Repetition.NONE if kind is None else kind.repetition,
        )

    @property
    def kind(self) -> ModelKind:
        """Which tensors a request has, by the inputs. ``check_inputs`` refuses a model of no kind."""
        return kind_of(self.inputs) or KINDS[0]

    @property
    def takes_token_ids(self) -> bool:
        """The core model takes token ids; all others take text."""
        return self.kind.takes_token_ids

    @property
    def missing_inputs(self) -> tuple[str, ...]:
        """The inputs of every request that the model does not declare.

        Over gRPC Triton refuses a request with such an input. Over HTTP it makes a parameter of it, which the model ignores.
        """
        return tuple(name for name in self.kind.required if name not in self.inputs)

    @property
    def excludes_prompt(self) -> bool:
        """Whether the model has an input that leaves the prompt out of its answer."""
        return self.kind.excluding_input in self.inputs

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """The outputs that every request names where the protocol can: others are then not sent."""
        wanted = (*self.kind.outputs, *STAMPS) if self.asks_for_times else self.kind.outputs
        return tuple(name for name in wanted if name in self.outputs)

    def tensors(self, request: Request, streaming: bool, ends: Ends) -> list[Tensor]:
        """The inputs of a request: those that it must have, and others that the model has.

        Raises ValueError for a request without the prompt in the model's form.
        """
        kind = self.kind
        flags = (kind.excluding_input, *kind.flags, *((kind.times_input,) if self.asks_for_times else ()))
        tensors = [
            *kind.work(request, ends),
            Tensor(kind.stream_input, "BOOL", (streaming,)),
            *(Tensor(flag, "BOOL", (True,)) for flag in flags),
        ]
        sent = [tensor for tensor in tensors if tensor.name in self.inputs or tensor.name in kind.required]
        if request.variant is not None and request.variant.lora_task_id is not None:
            sent.append(Tensor(LORA_INPUT, "UINT64", (request.variant.lora_task_id,)))
        return sent

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of an input with the values of ``tensor``."""
        return (len(tensor.values),) if tensor.name in self.flat_inputs else (1, len(tensor.values))

    def asking_for_times(self) -> TritonModel:
        """The model with requests that ask for the engine's times. Raises TargetError for one that cannot return them."""
        times_input = self.kind.times_input
        if times_input not in self.inputs or not self.outputs.issuperset(STAMPS):
            raise TargetError(
                f"--server_timings: the model {self.name} has no input {times_input}, or lacks its outputs; TensorRT-LLM has "
                "them since release 0.19, as bench serve does; without --server_timings it can be measured"
            )
        return replace(self, asks_for_times=True)

    def named(self, request: Request) -> str:
        """The model that a request is for: this one, or that of its class."""
        variant = request.variant
        return self.name if variant is None or variant.model is None else variant.model


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
