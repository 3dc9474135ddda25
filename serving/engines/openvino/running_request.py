"""Requests in OpenVINO's pipeline: conversion of the output of a step to an increment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino_genai as genai

from serving.engines.messages import Submit
from serving.engines.openvino.logits import LogitsModel, LogitsSession
from serving.engines.openvino.prefix_cache import Allocation
from serving.engines.openvino.scheduling import blocks_for
from serving.engines.openvino.telemetry import Telemetry
from serving.engines.openvino.token_choice import ends_with_stop_word
from serving.engines.protocol import Beam, Details, FinishReason, Increment, PerfMetrics

_RUNNING = genai.GenerationStatus.RUNNING
_CACHE_TOO_SMALL = "the KV cache is too small for this request; raise max_tokens_in_paged_kv_cache"


class Tracked:
    """Times and output of a request."""

    def __init__(self, submit: Submit, allocation: Allocation, started_ns: int) -> None:
        self.submit = submit
        self.allocation = allocation
        self.output: list[int] = []
        self.first_token_ns = 0
        self._started_ns = started_ns
        self._last_token_ns = 0
        self._draft_tokens = 0
        self._accepted_draft_tokens = 0

    @property
    def in_context(self) -> bool:
        """Whether the request is in its context phase."""
        return self.first_token_ns == 0

    def note_tokens(self, count: int, now_ns: int, telemetry: Telemetry) -> None:
        """Record the arrival of ``count`` tokens."""
        if self.first_token_ns == 0:
            self.first_token_ns = now_ns
            telemetry.time_to_first_token.add(now_ns - self.submit.submitted_ns)
        elif self._last_token_ns:
            telemetry.inter_token_latency.add((now_ns - self._last_token_ns) // count, count)
        self._last_token_ns = now_ns

    def perf(self, *, ended: bool, generated: int) -> PerfMetrics:
        total = blocks_for(len(self.submit.input_ids) + max(generated - 1, 0)) - self.allocation.reused_blocks
        return PerfMetrics(
            first_scheduled_time_ns=self._started_ns,
            first_token_time_ns=self.first_token_ns,
            last_token_time_ns=self._last_token_ns if ended else 0,
            kv_new_blocks=self.allocation.new_blocks,
            kv_reused_blocks=self.allocation.reused_blocks,
            kv_total_blocks=max(total, self.allocation.new_blocks),
            draft_tokens=self._draft_tokens,
            accepted_draft_tokens=self._accepted_draft_tokens,
        )


class Running(Tracked):
    """One request in the pipeline. ``handle`` is its ``openvino_genai.GenerationHandle``."""

    def __init__(self, submit: Submit, handle: Any, allocation: Allocation, started_ns: int, logits: LogitsModel) -> None:
        super().__init__(submit, allocation, started_ns)
        self.handle = handle
        self._stop_words = submit.sampling.stop_words
        self._read_each_step = submit.streaming or bool(self._stop_words) or submit.sampling.beam_width > 1
        self._details = submit.returns.anything or submit.sampling.beam_width > 1
        self._only_tokens = submit.streaming and not (self._stop_words or self._details)
        self._searching = False
        self._undelivered: list[int] = []  # tokens of an unstreamed request
        self._undelivered_log_probs: list[float] = []
        self._logits = logits
        self._follower: LogitsFollower | None = None

    def read(self, now_ns: int, telemetry: Telemetry) -> Increment | None:
        """Increment of this step, or None."""
        ended = self.handle.get_status() != _RUNNING
        if self._only_tokens and not ended:  # the fast path of nearly every streamed token
            tokens: list[int] = []
            while self.handle.can_read():
                for output in self.handle.read().values():
                    tokens += output.generated_ids
            if not tokens:
                return None
            self.note_tokens(len(tokens), now_ns, telemetry)
            self.output += tokens
            return Increment(tokens)
        if not (ended or self._read_each_step):
            if self.first_token_ns == 0 and self.handle.can_read():
                self.first_token_ns = now_ns
                telemetry.time_to_first_token.add(now_ns - self.submit.submitted_ns)
            return None
        return self._read_all(now_ns, telemetry, ended=ended)

    def _read_all(self, now_ns: int, telemetry: Telemetry, *, ended: bool) -> Increment | None:
        if self.handle.get_status() == genai.GenerationStatus.IGNORED:
            return Increment((), error=_CACHE_TOO_SMALL)
        if self.submit.sampling.beam_width > 1:
            self._searching = True
            return self._read_beams(now_ns) if ended else None
        tokens, log_probs, finish = self._read_tokens()
        if tokens:
            self.note_tokens(len(tokens), now_ns, telemetry)
        if self._stop_words and (kept := self._until_stop_word(tokens)) is not None:
            tokens, log_probs, finish = tokens[:kept], log_probs[:kept], FinishReason.STOP
            if not ended:
                self.handle.cancel()
            ended = True
        self.output.extend(tokens)
        return self._increment(tokens, log_probs, (finish or FinishReason.LENGTH) if ended else None)

    @property
    def in_context(self) -> bool:
        """A beam search returns no token before its end: its first step counts as the context phase."""
        return self.first_token_ns == 0 and not self._searching

    def undelivered_tokens(self) -> int:
        """Tokens that were generated and not delivered, of a request that is about to be cancelled: its ``output`` gets them.
        0 for a beam search, whose tokens are unknown before its end.
        """
        if self.submit.sampling.beam_width > 1:
            return 0
        tokens, _, _ = self._read_tokens()
        self.output.extend(tokens)
        return len(self._undelivered) + len(tokens)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def _read_tokens(self) -> tuple[list[int], list[float], FinishReason | None]:
        tokens: list[int] = []
        log_probs: list[float] = []
        finish: FinishReason | None = None
        while self.handle.can_read():
            for output in self.handle.read().values():
                tokens.extend(output.generated_ids)
                if self._details:
                    log_probs.extend(output.generated_log_probs)
                if output.finish_reason == genai.GenerationFinishReason.STOP:
                    finish = FinishReason.STOP
        return tokens, log_probs, finish

    def _until_stop_word(self, tokens: Sequence[int]) -> int | None:
        """Number of new tokens up to and including the first stop word; None where there is none."""
        for count in range(1, len(tokens) + 1):
            if ends_with_stop_word([*self.output, *tokens[:count]], self._stop_words):
                return count
        return None

    def _increment(self, tokens: list[int], log_probs: list[float], finish: FinishReason | None) -> Increment | None:
        if not self.submit.streaming:
            self._undelivered.extend(tokens)
            self._undelivered_log_probs.extend(log_probs)
            if finish is None:
                return None
            tokens, log_probs = self._undelivered, self._undelivered_log_probs
        if not (tokens or finish):
            return None
        if not self._details:
            return Increment(tokens, finish)
        return Increment(tokens, finish, details=self._detail(tokens, log_probs, ended=finish is not None))

    def _detail(self, tokens: list[int], log_probs: list[float], *, ended: bool) -> Details:
        returns = self.submit.returns
        context = generation = b""
        if returns.context_logits or returns.generation_logits:
            if self._follower is None:
                self._follower = LogitsFollower(self._logits.session(), self.submit.input_ids, returns.context_logits)
            context, generation = self._follower.follow(tokens)
        return Details(
            log_probs=tuple(log_probs) if returns.log_probs else (),
            context_logits=context,
            generation_logits=generation if returns.generation_logits else b"",
            perf=self.perf(ended=ended, generated=len(self.output)) if returns.perf_metrics else None,
        )

    def _read_beams(self, now_ns: int) -> Increment:
        """The beams of a search that ended. When their first tokens came is unknown: the pipeline returns all at the end."""
        outputs = [output for output in self.handle.read().values() if output.generated_ids] if self.handle.can_read() else []
        outputs.sort(key=lambda output: -output.score)
        returns = self.submit.returns
        context, beams = b"", []
        for output in outputs[: self.submit.sampling.return_beams]:
            logits = b""
            if returns.generation_logits or (returns.context_logits and not context):
                follower = LogitsFollower(self._logits.session(), self.submit.input_ids, returns.context_logits)
                first_context, logits = follower.follow(output.generated_ids)
                context = context or first_context
                follower.close()
            log_probs = tuple(output.generated_log_probs)
            kept = logits if returns.generation_logits else b""
            beams.append(Beam(tuple(output.generated_ids), sum(log_probs), log_probs, kept))
        longest = max((len(beam.token_ids) for beam in beams), default=0)
        if longest:
            self._last_token_ns = now_ns
            self.output = list(beams[0].token_ids)
        stopped = all(output.finish_reason == genai.GenerationFinishReason.STOP for output in outputs)
        perf = self.perf(ended=True, generated=longest) if returns.perf_metrics else None
        details = Details(context_logits=context, beams=tuple(beams), perf=perf)
        return Increment((), FinishReason.STOP if stopped else FinishReason.LENGTH, details=details)


class LogitsFollower:
    """Recomputes the logits of the pipeline's tokens with an exact copy of the network."""

    def __init__(self, session: LogitsSession, prompt: Sequence[int], want_context: bool) -> None:
        self._session = session
        self._prompt_tokens = len(prompt)
        self._pending = list(prompt)
        self._want_context = want_context

    def follow(self, tokens: Sequence[int]) -> tuple[bytes, bytes]:
        """Logits of the prompt (once, if requested) and of these tokens, as float32 bytes."""
        if not tokens:
            return b"", b""
        skip = 0 if self._want_context else len(self._pending) - 1
        rows = self._session.extend([*self._pending, *tokens[:-1]], skip)
        self._pending = [tokens[-1]]
        context = rows[: self._prompt_tokens].tobytes() if self._want_context else b""
        self._want_context = False
        return context, np.ascontiguousarray(rows[-len(tokens) :]).tobytes()

    def close(self) -> None:
        self._session.close()
