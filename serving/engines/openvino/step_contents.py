"""What each step of OpenVINO's pipeline works on.

The pipeline says only how many requests were in a step. The rest follows from the rules of its scheduler
(``src/cpp/src/continuous_batching/scheduler.hpp`` of OpenVINO GenAI 2026.4): with chunked prefill each sequence in decode gets
one token, and the prompts what is left of the step's tokens, first come, first served; without it whole prompts come first, and
a step with prompts has no decode. Where the number of requests in a step, or the step of a first token, is not as these rules
have it, what the step worked on is unknown: it is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from serving.engines.openvino.running_request import Running


@dataclass(frozen=True, slots=True)
class Contents:
    """Tokens that a step processed of prompts and of sequences in decode, first tokens that it generated, and the tokens in the
    KV cache of the sequences in decode before it; None where unknown.
    """

    prefill_tokens: int | None = None
    decode_tokens: int | None = None
    first_tokens: int | None = None
    context_tokens: int | None = None


_UNKNOWN = Contents()


@dataclass(slots=True)
class _Prompt:
    running: Running
    left: int


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step by the rules: its requests, and those whose prompt it ends."""

    requests: int
    contents: Contents
    ended: tuple[int, ...]


class StepContents:
    """The requests in the pipeline, by how far the rules have brought them. ``plan`` comes before a step, ``seen`` after it and
    before the requests that it ended are removed.
    """

    def __init__(self, max_tokens: int, *, chunked: bool) -> None:
        self._max_tokens, self._chunked = max_tokens, chunked
        self._prompts: dict[int, _Prompt] = {}
        self._decoding: dict[int, int] = {}  # tokens of the prompt, less the decodes of all before its own
        self._decodes = 0  # steps so far with sequences in decode
        self._context = 0
        self._doubtful: dict[int, Running] = {}  # requests of which it is unknown how much was processed
        self._lost = False

    def add(self, request_id: int, running: Running, reused_tokens: int | None) -> None:
        """A request that was given to the pipeline; ``reused_tokens`` of its prompt are in the cache, None where unknown."""
        if reused_tokens is None or running.submit.sampling.beam_width > 1 or self._doubtful:
            self._doubt([(request_id, running)])
        else:
            tokens = len(running.submit.input_ids)
            self._prompts[request_id] = _Prompt(running, tokens - min(reused_tokens, tokens - 1))

    def remove(self, request_id: int) -> None:
        self._prompts.pop(request_id, None)
        self._doubtful.pop(request_id, None)
        if request_id in self._decoding:
            self._context -= self._decoding.pop(request_id) + self._decodes
        if not (self._prompts or self._decoding or self._doubtful):
            self._lost = False

    def plan(self) -> PlannedStep | None:
        """The next step by the rules; None where they cannot say it."""
        if self._lost or self._doubtful:
            return None
        decode = len(self._decoding)
        if not self._prompts:
            return PlannedStep(decode, Contents(0, decode, 0, self._context), ())
        left = self._max_tokens - decode if self._chunked else self._max_tokens
        prefill, requests, ended = 0, 0, []
        for request_id, prompt in self._prompts.items():
            tokens = min(left, prompt.left)
            if tokens < (1 if self._chunked else prompt.left):
                break
            prompt.left -= tokens
            left -= tokens
            prefill += tokens
            requests += 1
            if not prompt.left:
                ended.append(request_id)
        if requests and not self._chunked:
            decode = 0
        return PlannedStep(
            requests + decode, Contents(prefill, decode, len(ended), self._context if decode else 0), tuple(ended)
        )

    def seen(self, planned: PlannedStep | None, requests: int, now_ns: int) -> Contents:
        """What the step that ended at ``now_ns`` with this many ``requests`` worked on."""
        if planned is None:
            return self._without_plan(now_ns)
        ended = {request_id: self._prompts.pop(request_id) for request_id in planned.ended}
        on_time = all(prompt.running.first_token_ns == now_ns for prompt in ended.values())
        early = [request_id for request_id, prompt in self._prompts.items() if prompt.running.first_token_ns]
        if requests != planned.requests or not on_time or early:
            self._lost = True
            self._doubt((request_id, prompt.running) for request_id, prompt in ended.items())
            return _UNKNOWN
        if planned.contents.decode_tokens:
            self._decodes += 1
            self._context += planned.contents.decode_tokens
        for request_id, prompt in ended.items():
            self._decode(request_id, prompt.running)
        return planned.contents

    def _without_plan(self, now_ns: int) -> Contents:
        """The doubt about a request ends with its first token, unless the pipeline broke the rules."""
        if self._lost:
            return _UNKNOWN
        if self._decoding and self._chunked:
            self._decodes += 1
            self._context += len(self._decoding)
        elif self._decoding:
            self._lost = True  # it is unknown whether the step had prompts, and so whether the sequences decoded
            return _UNKNOWN
        beams = any(running.submit.sampling.beam_width > 1 for running in self._doubtful.values())
        started = [
            (request_id, running)
            for request_id, running in self._doubtful.items()
            if running.first_token_ns == now_ns and running.submit.sampling.beam_width == 1
        ]
        for request_id, running in started:
            del self._doubtful[request_id]
            self._decode(request_id, running)
        return _UNKNOWN if beams else Contents(first_tokens=len(started))

    def _decode(self, request_id: int, running: Running) -> None:
        tokens = len(running.submit.input_ids)
        self._decoding[request_id] = tokens - self._decodes
        self._context += tokens

    def _doubt(self, requests: Iterable[tuple[int, Running]]) -> None:
        """Doubt these requests, and all prompts: how the tokens of a step were shared is unknown."""
        self._doubtful |= dict(requests) | {request_id: prompt.running for request_id, prompt in self._prompts.items()}
        self._prompts.clear()
