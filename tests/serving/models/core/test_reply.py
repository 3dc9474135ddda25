"""Replies of the core model: responses by increments, failures while sending, shared senders."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serving.engines.protocol import Beam, Details, FinishReason, Increment, PerfMetrics, Returns, Sampling
from serving.models.core.sending import Lane

_ALL = frozenset(
    {
        "output_ids", "sequence_length", "cum_log_probs", "output_log_probs", "context_logits", "generation_logits",
        "batch_index", "sequence_index", "detokenization_context", "arrival_time_ns", "last_token_time_ns",
        "kv_cache_alloc_new_blocks", "acceptance_rate", "num_output_tokens",
    }
)  # fmt: skip
_EVERYTHING = Returns(log_probs=True, context_logits=True, generation_logits=True, perf_metrics=True)


class _Sender:
    def __init__(self) -> None:
        self.sent: list[tuple[Any, int]] = []

    def send(self, response: Any = None, flags: int = 0) -> None:
        assert not any(final for _, final in self.sent)
        self.sent.append((response, flags))

    def is_cancelled(self) -> bool:
        return False


def _request(**changes: Any) -> Any:
    from serving.models.core.request import CoreRequest

    return replace(CoreRequest([5, 6], Sampling(9), True, True, False, True, _ALL), **changes)


def _answers(request: Any, *increments: Increment, dtype: Any = np.float32) -> list[dict[str, Any]]:
    from serving.models.core.reply import Reply
    from serving.models.core.responses import DetailedResponses

    sender, lane = _Sender(), Lane(1)
    reply = Reply(1, "client", sender, DetailedResponses(request, 17, dtype, 4), lane)
    for increment in increments:
        reply.add(increment)
        lane.waiting.get_nowait().send()
    assert [final for _, final in sender.sent] == [0] * (len(increments) - 1) + [1]
    return [response.tensors for response, _ in sender.sent if response is not None]


def _logits(*rows: int) -> bytes:
    return np.array([[row] * 4 for row in rows], dtype=np.float32).tobytes()


def test_streamed_response_holds_the_details_of_its_tokens(backend: Any) -> None:
    first = Increment([7], details=Details((-1.0,), _logits(1, 2), _logits(3), perf=PerfMetrics(kv_new_blocks=1)))
    last = Increment(
        [8, 9], FinishReason.LENGTH, details=Details((-2.0, -3.0), b"", _logits(4, 5), perf=PerfMetrics(last_token_time_ns=8))
    )
    one, two = _answers(_request(returns=_EVERYTHING), first, last)
    assert (one["output_ids"].tolist(), two["output_ids"].tolist()) == ([[[7]]], [[[8, 9]]])
    assert one["context_logits"].shape == (1, 2, 4)
    assert "context_logits" not in two
    assert (one["generation_logits"].shape, two["generation_logits"].shape) == ((1, 1, 1, 4), (1, 1, 2, 4))
    assert (one["cum_log_probs"].item(), two["cum_log_probs"].item()) == (-1.0, -6.0)
    assert two["output_log_probs"].tolist() == [[[-2.0, -3.0]]]
    assert (one["arrival_time_ns"].item(), two["last_token_time_ns"].item()) == (17, 8)
    assert one["kv_cache_alloc_new_blocks"].item() == 1


def test_shorter_beams_are_padded(backend: Any) -> None:
    request = _request(
        streaming=False, exclude_input=False, pad_id=3, sampling=Sampling(9, beam_width=2, return_beams=2), returns=_EVERYTHING
    )
    beams = (Beam((7, 8), -1.0, (-0.5, -0.5), _logits(1, 2)), Beam((9,), -2.0, (-2.0,), _logits(3)))
    [answer] = _answers(request, Increment((), FinishReason.STOP, details=Details(beams=beams)))
    assert answer["output_ids"].tolist() == [[[5, 6, 7, 8], [5, 6, 9, 3]]]
    assert answer["sequence_length"].tolist() == [[4, 3]]
    assert answer["cum_log_probs"].tolist() == [[-1.0, -2.0]]
    assert answer["output_log_probs"].tolist() == [[[-0.5, -0.5], [-2.0, 0.0]]]
    assert answer["generation_logits"].shape == (1, 2, 2, 4)
    assert answer["num_output_tokens"].item() == 3
    assert answer["detokenization_context"].shape == (1, 0)


def test_logits_have_the_declared_type(backend: Any) -> None:
    details = Details(generation_logits=_logits(1))
    [answer] = _answers(
        _request(returns=Returns(generation_logits=True)), Increment([7], FinishReason.STOP, details=details), dtype=np.float16
    )
    assert answer["generation_logits"].dtype == np.float16


def test_outputs_not_requested_are_left_out(backend: Any) -> None:
    request = _request(returns=_EVERYTHING, wanted_outputs=frozenset({"output_ids"}))
    [answer] = _answers(request, Increment([7], FinishReason.STOP, details=Details((-1.0,))))
    assert set(answer) == {"output_ids"}


@pytest.mark.parametrize("streaming", [True, False])
def test_a_cancelled_request_ends_without_tokens(backend: Any, streaming: bool) -> None:
    answers = _answers(_request(returns=_EVERYTHING, streaming=streaming), Increment((), FinishReason.CANCELLED))
    assert [answer["output_ids"].tolist() for answer in answers] == ([] if streaming else [[[[]]]])


def test_only_the_last_part_of_a_shared_request_is_final(backend: Any) -> None:
    from serving.models.core.reply import SharedSender

    sender = _Sender()
    shared = SharedSender(sender, 3)
    shared.send("a", flags=1)
    shared.send(flags=1)  # a part may end without a response
    shared.send("b")
    assert shared.is_cancelled() is False
    shared.send("c", flags=1)
    assert sender.sent == [("a", 0), ("b", 0), ("c", 1)]


def _token_counts(streaming: bool, largest_interval: int) -> list[int]:
    """Tokens in the responses to four increments, which all came before the first response was sent."""
    from serving.models.core.reply import Reply
    from serving.models.core.responses import TokenResponses

    sender, lane = _Sender(), Lane(largest_interval)
    reply = Reply(1, "client", sender, TokenResponses(_request(streaming=streaming)), lane)
    for number in range(4):
        reply.add(Increment([number], FinishReason.LENGTH if number == 3 else None))
    while not lane.waiting.empty():
        lane.waiting.get().send()
    assert [final for _, final in sender.sent] == [0] * (len(sender.sent) - 1) + [1]
    return [response.tensors["output_ids"].size for response, _ in sender.sent]


def test_tokens_that_wait_are_joined_unless_the_interval_is_one(backend: Any) -> None:
    assert _token_counts(streaming=True, largest_interval=4) == [4]
    assert _token_counts(streaming=True, largest_interval=1) == [1, 1, 1, 1]
    assert _token_counts(streaming=False, largest_interval=1) == [4]


def test_send_failure_ends_only_its_own_request(backend: Any) -> None:
    from serving.models.core.model import TritonPythonModel
    from serving.models.core.reply import Reply
    from serving.models.core.responses import TokenResponses

    class Full(_Sender):
        def send(self, response: Any = None, flags: int = 0) -> None:
            if getattr(response, "error", None) is None and not self.sent:
                raise RuntimeError("Failed to increase the shared memory pool size")
            super().send(response, flags)

    cancelled: list[int] = []
    noted: list[tuple[int, int]] = []
    model = TritonPythonModel()
    lane, model._replies = Lane(4), {}
    model._engine = SimpleNamespace(cancel=cancelled.append)
    model._metrics = SimpleNamespace(note_answer=lambda *tokens: noted.append(tokens))
    senders = [Full(), _Sender()]
    for number, sender in enumerate(senders):
        reply = Reply(number, "client", sender, TokenResponses(_request()), lane)
        model._replies[number] = reply
        reply.add(Increment([1]))
    for reply in list(model._replies.values()):
        reply.add(Increment([2], FinishReason.LENGTH))
    lane.put(model._replies[0])  # a late increment of a failed request is dropped
    while not lane.waiting.empty():
        model._send(lane.waiting.get())
    assert cancelled == [0]
    assert [final for _, final in senders[0].sent] == [1]
    assert "could not be sent" in senders[0].sent[0][0].error.message
    assert [final for _, final in senders[1].sent] == [1]
    assert model._replies == {}
    assert noted == [(2, 2)]
