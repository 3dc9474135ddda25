"""Requests of ``tensorrt_llm_bls``: parsing, and tokenization by ``preprocessing``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from serving.errors import RequestError
from serving.models.bls.core_calls import call_once
from serving.models.parameters import required
from serving.models.unrequested import NO_ZEROS, Zeros, zeros_for
from serving.repository.routing import CLIENT_TO_PREPROCESSING, PREPROCESSING_TO_CORE, client_to_core
from serving.repository.tensors import BLS_INPUTS, OUTPUTS_BY_SWITCH

_TO_CORE = client_to_core(BLS_INPUTS)

_UNSUPPORTED = (
    "image_input",
    "image_bytes_input",
    "image_url_input",
    "image_sizes_input",
    "video_bytes_input",
    "decoder_text_input",
    "prompt_table_extra_id",
)
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class BlsRequest:
    """One tokenized request.

    ``core_inputs`` are the core model's tensors by name, without ``streaming``; ``wanted`` are the requested outputs (Triton
    requests all of them for a client that names none). ``zeros`` are answered for those without a value.
    """

    core_inputs: dict[str, Array]
    prompts: list[list[int]]
    max_tokens: list[int]
    end_ids: list[int]
    stop_words: list[tuple[str, ...]]
    streaming: bool
    excludes_input: bool
    beam_width: int
    num_return_sequences: int
    num_draft_tokens: int
    use_draft_logits: bool
    wanted: frozenset[str]
    zeros: Zeros = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """Number of sequences that the core model generates, each with responses of its own."""
        return len(self.prompts) * self.num_return_sequences

    @property
    def passed_on(self) -> frozenset[str]:
        """Core outputs that are requested and enabled by their flag, other than tokens, counts and indices."""
        enabled = (outputs for flag, outputs in OUTPUTS_BY_SWITCH.items() if self.flag(flag))
        return frozenset().union(*enabled) & self.wanted

    @property
    def counts(self) -> list[str]:
        """Token counts that are requested and enabled by their flag."""
        return [
            name for name in ("num_input_tokens", "num_output_tokens") if name in self.wanted and self.flag(f"return_{name}")
        ]

    @property
    def core_outputs(self) -> list[str]:
        """Outputs to request from the core model."""
        indices = ["batch_index"] * (len(self.prompts) > 1) + ["sequence_index"] * (self.num_return_sequences > 1)
        lengths = ["sequence_length"] * (self.beam_width > 1)  # a single beam is never padded
        return ["output_ids", *lengths, *indices, *sorted(self.passed_on)]

    def flag(self, name: str) -> bool:
        """Whether an optional flag was sent and is true."""
        values = self.core_inputs.get(name)
        return values is not None and bool(values.any())


def read_request(request: Any, excludes_input: bool, decoupled: bool, zeros: Zeros = NO_ZEROS) -> BlsRequest:
    """Parse a Triton request and tokenize it. ``excludes_input`` is the deployment's ``exclude_input_in_output``, ``zeros``
    what it answers for outputs without a value.

    Raises RequestError for an invalid request, and CalledModelError when ``preprocessing`` rejects it.
    """
    for name in _UNSUPPORTED:
        if pb_utils.get_input_tensor_by_name(request, name) is not None:
            raise RequestError(f"{name}: the embedded pipeline serves decoder-only text models, without prompt tables")
    for name in ("text_input", "max_tokens"):
        required(request, name)
    streaming = _uniform(request, "stream", False)
    if streaming and not decoupled:
        raise RequestError("Streaming is only supported if model is deployed using decoupled mode.")
    tokenized = call_once("preprocessing", _renamed(request, CLIENT_TO_PREPROCESSING), list(PREPROCESSING_TO_CORE))
    core_inputs = {core_name: tokenized[name].as_numpy() for name, core_name in PREPROCESSING_TO_CORE.items()}
    core_inputs |= {tensor.name(): tensor.as_numpy() for tensor in _renamed(request, _TO_CORE)}
    core_inputs.pop("streaming", None)
    prompts = _prompts(core_inputs)
    excluded = _uniform(request, "exclude_input_in_output", excludes_input)
    core_inputs["exclude_input_in_output"] = np.ones((len(prompts), 1), np.bool_)  # BLS adds the prompt's text itself
    read = BlsRequest(
        core_inputs=core_inputs,
        prompts=prompts,
        max_tokens=core_inputs["request_output_len"].reshape(-1).tolist(),
        end_ids=core_inputs["end_id"].reshape(-1).tolist(),
        stop_words=_stop_words(request, len(prompts)),
        streaming=streaming,
        excludes_input=streaming or excluded,
        beam_width=_uniform(request, "beam_width", 1),
        num_return_sequences=max(1, _uniform(request, "num_return_sequences", 1)),
        num_draft_tokens=_uniform(request, "num_draft_tokens", 0),
        use_draft_logits=_uniform(request, "use_draft_logits", False),
        wanted=frozenset(request.requested_output_names()),
    )
    if not decoupled and read.sequences > 1:
        raise RequestError(
            "batch sizes and num_return_sequences above 1 need tensorrt_llm_bls and the core model deployed in decoupled mode"
        )
    return replace(read, zeros=zeros_for(zeros, read.wanted))


def core_tensors(inputs: dict[str, Array]) -> list[Any]:
    """Arrays by name as Triton tensors."""
    return [pb_utils.Tensor(name, values) for name, values in inputs.items()]


def _renamed(request: Any, names: dict[str, str]) -> list[Any]:
    renamed = []
    for tensor in request.inputs():
        if tensor.name() in names:
            values = tensor.as_numpy()
            values = values[:, np.newaxis] if values.ndim == 1 else values  # undo `reshape: []` of the configuration
            renamed.append(pb_utils.Tensor(names[tensor.name()], values))
    return renamed


def _prompts(core_inputs: dict[str, Array]) -> list[list[int]]:
    lengths = core_inputs["input_lengths"].reshape(-1).tolist()
    return [row[:length].tolist() for row, length in zip(core_inputs["input_ids"], lengths, strict=True)]


def _stop_words(request: Any, rows: int) -> list[tuple[str, ...]]:
    tensor = pb_utils.get_input_tensor_by_name(request, "stop_words")
    if tensor is None:
        return [()] * rows
    return [tuple(word.decode("utf-8") for word in row if word) for row in tensor.as_numpy().reshape(rows, -1)]


def _uniform(request: Any, name: str, default: Any) -> Any:
    """Value of an optional input that must be the same in every row of the batch."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None or tensor.as_numpy().size == 0:
        return default
    values = tensor.as_numpy().reshape(-1)
    if (values != values[0]).any():
        raise RequestError(f"{name} must be the same in every row of the batch, but it is {values.tolist()}")
    return values[0].item()
