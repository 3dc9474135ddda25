"""The kinds of models on Triton that bench drives, one value of ``ModelKind`` each: which tensors a request has.

Sources: upstream's five models (``all_models/inflight_batcher_llm``), the model of TensorRT-LLM's LLM API
(``triton_backend/all_models/llmapi``, releases 0.19 to 1.3), and triton-inference-server/vllm_backend (``src/model.py``,
``src/utils/request.py``, releases 23.11 to 26.06).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from harness.clients.protocol import Repetition
from workloads.elements.request import Request

LORA_INPUT = "lora_task_id"
NO_END_ID = -1  # an end token that no vocabulary has
_CACHED = 64  # models; each request that is encoded asks for the kind of one
_TEXT_OUTPUTS = ("text_output", "num_input_tokens", "num_output_tokens")
_TEXT_FLAGS = ("return_num_input_tokens", "return_num_output_tokens")
_UNFINISHED = ("", "None")
_BROKEN_OFF = ("cancelled", "timeout")  # of the LLM API's finish reasons


class Tensor(NamedTuple):
    """One input of a request: a row of values, which are numbers, truth values or texts by ``datatype``, KServe's name."""

    name: str
    datatype: Literal["INT32", "UINT64", "BOOL", "BYTES"]
    values: Sequence[int] | Sequence[str]


class Ends(NamedTuple):
    """The ids of the end and the padding token, None where unknown."""

    end_id: int | None
    pad_id: int | None


@dataclass(frozen=True, slots=True)
class ModelKind:
    """What requests to models of one kind have, and what is read of their answers.

    ``required`` are the inputs of every request, by which a model is known; ``work`` makes them of a request, and perhaps
    others, of which a model gets those that it has. ``flags`` are inputs that every request sets to true, and
    ``stream_input`` to whether answers are streamed, where the model has them; ``excluding_input`` among the flags leaves the
    prompt out of the answer. ``times_input`` asks for the engine's times. ``outputs`` are read. ``ignores_eos``: a request can
    ask for tokens beyond the end of the sequence. ``repetition`` is that of streamed texts where no configuration says it.
    """

    title: str
    required: tuple[str, ...]
    work: Callable[[Request, Ends], list[Tensor]]
    stream_input: str
    excluding_input: str
    outputs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    times_input: str = "return_perf_metrics"
    takes_token_ids: bool = False
    ignores_eos: bool = True
    repetition: Repetition = Repetition.NONE


@lru_cache(_CACHED)
def kind_of(inputs: frozenset[str]) -> ModelKind | None:
    """The kind of a model with these inputs: the first with all that it requires, else the nearest; None where it takes neither
    token ids nor text.
    """
    whole = next((kind for kind in KINDS if inputs.issuperset(kind.required)), None)
    return whole or next((kind for kind in KINDS if kind.required[0] in inputs), None)


def finish_reasons(output: object) -> tuple[str, ...]:
    """The finish reasons by an output ``finish_reason``: none while the answer goes on, for which upstream writes "None"."""
    return (output,) if isinstance(output, str) and output not in _UNFINISHED else ()


def broken_off(reasons: Sequence[str]) -> str | None:
    """The problem of an answer that the server ended before it was complete; None of any other."""
    reason = next((reason for reason in reasons if reason in _BROKEN_OFF), None)
    return None if reason is None else f"the server broke the answer off: its finish_reason is {reason}"


def _core_work(request: Request, ends: Ends) -> list[Tensor]:
    if request.input_ids is None:
        raise ValueError("the core model takes token ids, and this request has none")
    return [
        Tensor("input_ids", "INT32", request.input_ids),
        Tensor("input_lengths", "INT32", (len(request.input_ids),)),
        Tensor("request_output_len", "INT32", (request.output_tokens,)),
        *_ends(request, ends),
    ]


def _text_work(request: Request, ends: Ends) -> list[Tensor]:
    return [_text(request), Tensor("max_tokens", "INT32", (request.output_tokens,)), *_ends(request, ends)]


def _llm_api_work(request: Request, ends: Ends) -> list[Tensor]:
    return [_text(request), Tensor("sampling_param_max_tokens", "INT32", (request.output_tokens,))]


def _vllm_work(request: Request, ends: Ends) -> list[Tensor]:
    """vLLM's ``SamplingParams`` as a JSON object; what it leaves out has the server's defaults."""
    parameters = {"max_tokens": request.output_tokens} | ({"ignore_eos": True} if request.ignore_eos else {})
    return [_text(request), Tensor("sampling_parameters", "BYTES", (msgspec.json.encode(parameters).decode(),))]


def _text(request: Request) -> Tensor:
    if request.prompt is None:
        raise ValueError("the model takes text, and this request has none")
    return Tensor("text_input", "BYTES", (request.prompt.encode("utf-8", "replace").decode(),))


def _ends(request: Request, ends: Ends) -> list[Tensor]:
    values = {"end_id": NO_END_ID if request.ignore_eos else ends.end_id, "pad_id": ends.pad_id}
    return [Tensor(name, "INT32", (value,)) for name, value in values.items() if value is not None]


KINDS = (
    ModelKind(
        title="the core model",
        required=("input_ids", "input_lengths", "request_output_len"),
        work=_core_work,
        stream_input="streaming",
        excluding_input="exclude_input_in_output",
        outputs=("output_ids", "sequence_length"),
        takes_token_ids=True,
    ),
    ModelKind(
        title="the ensemble or tensorrt_llm_bls",
        required=("text_input", "max_tokens"),
        work=_text_work,
        stream_input="stream",
        excluding_input="exclude_input_in_output",
        outputs=_TEXT_OUTPUTS,
        flags=_TEXT_FLAGS,
    ),
    ModelKind(
        title="the model of TensorRT-LLM's LLM API",
        required=("text_input", "sampling_param_max_tokens"),
        work=_llm_api_work,
        stream_input="streaming",
        excluding_input="sampling_param_exclude_input_from_output",
        outputs=("text_output", "finish_reason"),
        flags=("return_finish_reason",),
        times_input="sampling_param_return_perf_metrics",
        ignores_eos=False,
        repetition=Repetition.POSSIBLE,
    ),
    ModelKind(
        title="a model of vllm_backend",
        required=("text_input", "sampling_parameters"),
        work=_vllm_work,
        stream_input="stream",
        excluding_input="exclude_input_in_output",
        outputs=_TEXT_OUTPUTS,
        flags=_TEXT_FLAGS,
    ),
)
"""In the order in which a model is matched. A model with the inputs of two kinds counts as the first."""
