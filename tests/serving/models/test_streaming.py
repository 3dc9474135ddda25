"""From the core model's replies through ``postprocessing``: streamed pieces join to the text of the whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import FinishReason, Increment, Sampling
from serving.models.core.sending import Lane
from serving.text.detokenization import decode
from serving.text.tokenizer import load_tokenizer

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)


class _Sender:
    """Fake response sender that records responses."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.finals = 0

    def send(self, response: Any = None, flags: int = 0) -> None:
        assert self.finals == 0
        self.finals += flags
        if response is not None:
            self.responses.append(response)

    def is_cancelled(self) -> bool:
        return False


def _replies(increments: Sequence[Sequence[int]], streaming: bool, prompt: list[int] | None = None) -> _Sender:
    """Responses of the core model to ``increments`` of the engine, one response per increment."""
    from serving.models.core.reply import Reply
    from serving.models.core.request import CoreRequest
    from serving.models.core.responses import TokenResponses

    outputs = frozenset({"output_ids", "sequence_length", "detokenization_context", "num_output_tokens"})
    request = CoreRequest(prompt or [5], Sampling(99), streaming, prompt is None or streaming, False, True, outputs)
    sender, lane = _Sender(), Lane(4)
    reply = Reply(1, "client", sender, TokenResponses(request), lane)
    for number, tokens in enumerate(increments, start=1):
        reply.add(Increment(list(tokens), FinishReason.LENGTH if number == len(increments) else None))
        assert lane.waiting.get_nowait().send() == (number == len(increments))
    return sender


def _texts(backend: ModuleType, sender: _Sender) -> list[str]:
    from serving.models.postprocessing import TritonPythonModel

    model = TritonPythonModel()
    parameters = {"tokenizer_dir": {"string_value": str(DEMO_ENGINE_DIR)}}
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    requests = [
        backend.Request(
            {
                "TOKENS_BATCH": response.tensors["output_ids"],
                "SEQUENCE_LENGTH": response.tensors["sequence_length"],
                "DETOKENIZATION_CONTEXT": response.tensors["detokenization_context"],
            }
        )
        for response in sender.responses
    ]
    answers = model.execute(requests)
    assert all(answer.error is None for answer in answers)
    return [answer.tensors["OUTPUT"].item().decode() for answer in answers]


_TEXT = "The king — and the queen — went to the 海 😀"


def _encode(text: str) -> list[int]:
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False)
    return ids


def test_streamed_pieces_join_to_the_text(backend: ModuleType) -> None:
    sender = _replies([[token] for token in _encode(_TEXT)], streaming=True)
    pieces = _texts(backend, sender)
    assert "".join(pieces) == _TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert sender.finals == 1
    assert [response.tensors["num_output_tokens"].item() for response in sender.responses] == [1] * len(pieces)


def test_last_piece_may_be_empty(backend: ModuleType) -> None:
    ids = _encode("sea €")
    assert "".join(_texts(backend, _replies([ids[:1], ids[1:-1], ids[-1:], []], streaming=True))) == "sea €"
    assert "".join(_texts(backend, _replies([ids[:1], ids[1:-1], []], streaming=True))) == decode(_TOKENIZER, ids[:-1], True)


def test_single_response_is_the_whole_text(backend: ModuleType) -> None:
    assert _texts(backend, _replies([_encode(_TEXT)], streaming=False)) == [_TEXT]
    assert _texts(backend, _replies([_encode(_TEXT)], streaming=True)) == [_TEXT]


def test_prompt_precedes_unstreamed_text_unless_excluded(backend: ModuleType) -> None:
    assert _texts(backend, _replies([_encode(" wide")], streaming=False, prompt=_encode("The sea is"))) == ["The sea is wide"]


def test_response_without_tokens_is_an_empty_text(backend: ModuleType) -> None:
    assert _texts(backend, _replies([[]], streaming=True)) == [""]


def test_incomplete_first_character_is_withheld(backend: ModuleType) -> None:
    assert "".join(_texts(backend, _replies([[token] for token in _encode("€ 5")], streaming=True))) == "€ 5"


def test_busy_sender_joins_tokens_but_never_delays_the_first_or_last(backend: ModuleType) -> None:
    from serving.models.core.reply import Reply
    from serving.models.core.request import CoreRequest
    from serving.models.core.responses import TokenResponses

    request = CoreRequest([5], Sampling(99), True, True, False, True, frozenset({"output_ids"}))
    sender, lane = _Sender(), Lane(3)
    lane.pace.interval_tokens = 3
    reply = Reply(1, "client", sender, TokenResponses(request), lane)
    for token in range(9):
        reply.add(Increment([token], FinishReason.LENGTH if token == 8 else None))
        if not lane.waiting.empty():
            lane.waiting.get_nowait().send()
    assert [response.tensors["output_ids"].ravel().tolist() for response in sender.responses] == [
        [0],
        [1, 2, 3],
        [4, 5, 6],
        [7, 8],
    ]
