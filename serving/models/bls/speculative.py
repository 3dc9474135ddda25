"""Speculative decoding: a small model drafts a few tokens, the target model verifies them in one step.

For ``draft_input_ids`` the target returns the drafted tokens that it would have chosen itself and one more token, so every
round adds at least one token, and the text is the target's own greedy text. Source: upstream's BLS model.
"""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np

from serving.errors import RequestError, ServingError
from serving.models.bls.core_calls import CoreCalls
from serving.models.bls.reply import Running, int32, response_of, texts
from serving.models.bls.request import Array, BlsRequest, core_tensors
from serving.text.generated_text import GeneratedText
from serving.text.stop_words import first_stop_sequence, from_word_list

_SUMMED = frozenset({"kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks", "cum_log_probs"})
_FIRST = frozenset({"arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns"})
_JOINED = {"output_log_probs": 2, "generation_logits": 2}  # token axis
_MIN_TOKENS = ("min_tokens", "min_length")  # the new name takes precedence
_TARGET_ONLY = ("lora_task_id", "lora_weights", "lora_config", "prompt_embedding_table", "prompt_vocab_size")
_STATEFUL = (  # inputs with state from the first generated token on, which each round would reset
    "guided_decoding_guide_type", "guided_decoding_guide", "presence_penalty", "frequency_penalty",
)  # fmt: skip


def check_speculation(request: BlsRequest, draft_name: str) -> None:
    """Raise RequestError for a request that speculative decoding cannot serve."""
    if request.num_draft_tokens < 1:
        raise RequestError(
            f"num_draft_tokens must be at least 1, not {request.num_draft_tokens}"
            if request.num_draft_tokens
            else "use_draft_logits needs num_draft_tokens"
        )
    if not draft_name:
        raise RequestError(
            "num_draft_tokens needs a draft model: the parameter tensorrt_llm_draft_model_name of tensorrt_llm_bls is not set"
        )
    refused = {
        "stream": request.streaming,
        "return_context_logits": request.flag("return_context_logits"),
        "a batch size above 1": len(request.prompts) > 1,
        "a beam_width above 1": request.beam_width > 1,
        "num_return_sequences above 1": request.num_return_sequences > 1,
        "sampling (top_k, top_p)": _samples(request.core_inputs),
        **{name: _is_set(request.core_inputs.get(name)) for name in _STATEFUL},
    }
    for name, present in refused.items():
        if present:
            raise RequestError(f"num_draft_tokens: speculative decoding cannot be combined with {name}")


def _is_set(values: Array | None) -> bool:
    return values is not None and values.size > 0 and (values.dtype == object or bool(values.any()))


def _samples(inputs: dict[str, Array]) -> bool:
    """Whether the core model would sample: it is greedy with top_k 1, with neither top_k nor top_p, or with temperature 0."""
    top_k, top_p, temperature = (
        inputs[name].reshape(-1)[0].item() if name in inputs else default
        for name, default in (("runtime_top_k", 0), ("runtime_top_p", 0.0), ("temperature", 1.0))
    )
    return not (top_k == 1 or (top_k == 0 and top_p == 0.0) or temperature == 0.0)


class Speculation:
    """One request, decoded in rounds of draft and verification."""

    def __init__(
        self,
        core: CoreCalls,
        request: BlsRequest,
        running: Running,
        target_name: str,
        draft_name: str,
        text: GeneratedText,
    ) -> None:
        self._core = core
        self._request = request
        self._running = running
        self._target_name = target_name
        self._draft_name = draft_name
        self._text = text
        [self._prompt] = request.prompts
        [self._max_tokens] = request.max_tokens
        [end_id] = request.end_ids
        self._ends = [*from_word_list(request.core_inputs["stop_words_list"][0]), (end_id,)]
        self._min_tokens = next(
            (int(request.core_inputs[name].item()) for name in _MIN_TOKENS if name in request.core_inputs), 0
        )
        self._generated: list[int] = []
        self._passed_on: dict[str, Array] = {}
        self._drafted = self._accepted = 0

    def run(self) -> None:
        """Generate the text and send it as one response."""
        while not self._running.cancelled:
            draft, logits = self._draft()
            new = self._verify(draft, logits)
            self._drafted += len(draft)
            self._accepted += _common(draft, new)
            if self._append(new):
                break
        self._running.reply.send(self._response(), final=True)

    def _draft(self) -> tuple[list[int], Array | None]:
        """Draft at most ``num_draft_tokens``; with the target's own token they stay within the output length."""
        count = min(self._request.num_draft_tokens, self._max_tokens - len(self._generated) - 1)
        if count < 1:
            return [], None
        inputs = {name: values for name, values in self._round_inputs(count).items() if name not in _TARGET_ONLY}
        outputs = ["output_ids"]
        for name in ("return_log_probs", "return_generation_logits", "return_perf_metrics"):
            inputs.pop(name, None)
        if self._request.use_draft_logits:
            inputs["return_generation_logits"] = np.ones((1, 1), np.bool_)
            outputs.append("generation_logits")
        drafted = self._call(self._draft_name, inputs, outputs)
        tokens = drafted["output_ids"].reshape(-1).tolist()[:count]
        logits = drafted.get("generation_logits")
        return tokens, None if logits is None else logits[0, 0, : len(tokens)][np.newaxis]

    def _verify(self, draft: list[int], logits: Array | None) -> list[int]:
        inputs = self._round_inputs(len(draft) + 1)
        if draft:
            inputs["draft_input_ids"] = np.array([draft], np.int32)
        if logits is not None:
            inputs["draft_logits"] = logits
        verified = self._call(self._target_name, inputs, ["output_ids", *sorted(self._request.passed_on)])
        tokens = verified.pop("output_ids").reshape(-1).tolist()
        for name, values in verified.items():
            self._passed_on[name] = _joined(name, self._passed_on.get(name), values)
        room: int = self._max_tokens - len(self._generated)
        return list(tokens[:room])

    def _round_inputs(self, tokens: int) -> dict[str, Array]:
        """Inputs of a round: the request, continued after the tokens generated so far."""
        sequence = [*self._prompt, *self._generated]
        inputs = self._request.core_inputs | {
            "input_ids": np.array([sequence], np.int32),
            "input_lengths": int32(len(sequence)),
            "request_output_len": int32(tokens),
        }
        least = int32(min(tokens, max(0, self._min_tokens - len(self._generated))))
        return inputs | {name: least for name in _MIN_TOKENS if name in inputs}

    def _call(self, model_name: str, inputs: dict[str, Array], outputs: list[str]) -> dict[str, Array]:
        running = self._running
        running.model_name, running.core_id = model_name, uuid.uuid4().hex
        with self._core.responses(model_name, running.core_id, core_tensors(inputs), outputs, running.reply.is_gone) as stream:
            responses = [{name: tensor.as_numpy() for name, tensor in tensors.items()} for tensors in stream]
        if len(responses) != 1:
            raise ServingError(f"{model_name} returned {len(responses)} responses to one round of speculative decoding")
        return responses[0]

    def _append(self, new: list[int]) -> bool:
        """Append the tokens of a round, up to the end of the sequence if it is among them; returns whether generation ends."""
        before = len(self._generated)
        self._generated += new
        end = first_stop_sequence(self._generated, self._ends, max(before, self._min_tokens - 1))
        if end is not None:
            del self._generated[end:]
        is_last = end is not None or not new or len(self._generated) >= self._max_tokens
        self._text.add(self._generated[before:], is_last)
        return is_last or self._text.stopped

    def _response(self) -> Any:
        request = self._request
        values = {**request.zeros, **self._passed_on}
        values["text_output"] = texts([self._text.whole()])
        if request.flag("return_num_input_tokens"):
            values["num_input_tokens"] = int32(len(self._prompt))
        if request.flag("return_num_output_tokens"):
            values["num_output_tokens"] = int32(len(self._generated))
        if request.flag("return_perf_metrics"):
            values["total_draft_tokens"] = int32(self._drafted)
            values["total_accepted_draft_tokens"] = int32(self._accepted)
            rate = self._accepted / self._drafted if self._drafted else 0.0
            values["acceptance_rate"] = np.array([[rate]], np.float32)
        return response_of(values, request.wanted)


def _common(draft: list[int], verified: list[int]) -> int:
    """Number of accepted draft tokens: the length of the common prefix."""
    return next(
        (k for k, (proposed, other) in enumerate(zip(draft, verified, strict=False)) if proposed != other),
        min(len(draft), len(verified)),
    )


def _joined(name: str, earlier: Array | None, values: Array) -> Array:
    """A passed-on output of this round, combined with that of the rounds before."""
    if earlier is None or not (name in _SUMMED or name in _FIRST or name in _JOINED):
        return values
    if name in _FIRST:
        return earlier
    if name in _SUMMED:
        return earlier + values
    return np.concatenate([earlier, values], axis=_JOINED[name])
