"""Exact requests: requests that OpenVINO's sampler cannot serve, with their own forward passes and sampling.

One of them at a time advances by one token (or one chunk of its prompt) between two steps of the pipeline, so they cost more
than requests of the pipeline, and their output does not depend on the batch. Serves ``embedding_bias``, ``bad_words_list``, a
decaying top-p, draft tokens, and LoRA.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.engines.messages import Submit
from serving.engines.openvino.logits import CHUNK_TOKENS, LogitsSession
from serving.engines.openvino.prefix_cache import Allocation
from serving.engines.openvino.running_request import Tracked
from serving.engines.openvino.scheduling import blocks_for
from serving.engines.openvino.telemetry import Telemetry
from serving.engines.openvino.token_choice import choose, ends_with_stop_word, log_softmax, next_top_p, shape_logits
from serving.engines.protocol import Details, FinishReason, Increment, Sampling


def needs_exact(sampling: Sampling) -> bool:
    """Whether a request uses a parameter that the pipeline's sampler lacks."""
    return bool(
        sampling.embedding_bias
        or sampling.bad_words
        or sampling.draft_ids
        or sampling.lora_task_id is not None
        or sampling.top_p_decay != 1.0
        or sampling.top_p_reset_id is not None
        or sampling.top_p_min > 0.0
    )


class ExactRunning(Tracked):
    """One exact request."""

    def __init__(self, submit: Submit, session: LogitsSession, started_ns: int) -> None:
        super().__init__(submit, Allocation(blocks_for(len(submit.input_ids)), 0), started_ns)
        self._session = session
        self._sampling = submit.sampling
        self._random = np.random.Generator(np.random.Philox(submit.sampling.seed))
        self._top_p = submit.sampling.top_p
        self._pending: list[int] = [*submit.input_ids, *submit.sampling.draft_ids]  # inputs not yet computed
        self._first_row = 0 if submit.returns.context_logits else len(submit.input_ids) - 1
        self._rows: list[NDArray[np.float32]] = []  # logits from that position on, until prompt and draft are computed
        self._context = b""
        self._tokens: list[int] = []  # chosen, not yet delivered
        self._unread = 0  # those of the newest step, until ``read``
        self._finish: FinishReason | None = None
        self._log_probs: list[float] = []
        self._logits: list[NDArray[np.float32]] = []

    def step(self) -> None:
        """Compute one chunk, and choose the tokens that it determines."""
        chunk, self._pending = self._pending[:CHUNK_TOKENS], self._pending[CHUNK_TOKENS:]
        before = len(self.output)
        if before:
            rows = self._session.extend(chunk)
        else:
            rows = self._session.extend(chunk, skip=max(0, self._first_row - self._session.tokens))
            self._rows.append(rows)
        if self._pending:
            return
        self._finish = self._take(rows[-1]) if before else self._begin(np.concatenate(self._rows))
        if self._finish is None and not self._pending:
            self._pending = [self.output[-1]]
        self._unread = len(self.output) - before

    def read(self, now_ns: int, telemetry: Telemetry) -> Increment | None:
        """Increment of the step that ended at ``now_ns``, or None."""
        count, self._unread = self._unread, 0
        if count:
            self.note_tokens(count, now_ns, telemetry)
        if not count or (self._finish is None and not self.submit.streaming):
            return None
        return self._increment(self._finish)

    def undelivered_tokens(self) -> int:
        """Tokens that were generated and not delivered."""
        return len(self._tokens)

    def close(self) -> None:
        self._session.close()

    def _begin(self, rows: NDArray[np.float32]) -> FinishReason | None:
        """After prompt and draft: choose the first tokens, and accept draft tokens as long as they match."""
        self._rows.clear()
        if self.submit.returns.context_logits:
            self._context = rows[: len(self.submit.input_ids)].tobytes()
        rows = rows[len(self.submit.input_ids) - 1 - self._first_row :]
        draft = self._sampling.draft_ids
        self._draft_tokens = len(draft)
        finish = self._take(rows[0])
        while finish is None and len(self.output) <= len(draft) and self.output[-1] == draft[len(self.output) - 1]:
            self._accepted_draft_tokens += 1
            finish = self._take(rows[len(self.output)])
        if finish is not None and len(self.output) <= len(draft) and self.output[-1] == draft[len(self.output) - 1]:
            self._accepted_draft_tokens += 1
        if finish is None and self._accepted_draft_tokens < len(draft):  # drop the rest of the draft
            self._session.restart()
            self._pending = [*self.submit.input_ids, *self.output]
        return finish

    def _take(self, logits: NDArray[np.float32]) -> FinishReason | None:
        sampling = self._sampling
        shaped = shape_logits(logits, sampling, self.submit.input_ids, self.output)
        token = choose(shaped, sampling, self._top_p, self._random)
        self._top_p = next_top_p(self._top_p, token, sampling)
        self.output.append(token)
        self._tokens.append(token)
        returns = self.submit.returns
        if returns.log_probs:
            self._log_probs.append(float(log_softmax(logits)[token]))
        if returns.generation_logits:
            self._logits.append(logits)
        if token == sampling.end_id or ends_with_stop_word(self.output, sampling.stop_words):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.output) >= sampling.max_tokens else None

    def _increment(self, finish: FinishReason | None) -> Increment:
        tokens, self._tokens = self._tokens, []
        returns = self.submit.returns
        if not returns.anything:
            return Increment(tokens, finish)
        details = Details(
            log_probs=tuple(self._log_probs),
            context_logits=self._context,
            generation_logits=_joined(self._logits),
            perf=self.perf(ended=finish is not None, generated=len(self.output)) if returns.perf_metrics else None,
        )
        self._context = b""
        self._log_probs, self._logits = [], []
        return Increment(tokens, finish, details=details)


def _joined(rows: Sequence[NDArray[np.float32]]) -> bytes:
    return b"".join(row.tobytes() for row in rows)
