"""Text, log probabilities and finish reasons of the token ids of a sequence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.front_end.choices import Choice, Piece
from serving.front_end.core_response import CoreResponse
from serving.front_end.generation import Generation
from serving.text.tokenizer import load_tokenizer

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
_END = 2
_IDS = _TOKENIZER.encode("The quick brown fox é 😀 jumps", add_special_tokens=False)


def _response(ids: list[int], final: bool = False, log_probs: Any = (), logits: Any = None) -> CoreResponse:
    return CoreResponse(0, ids, list(log_probs), logits, final)


def _pieces(generation: Generation, ids: list[int], end_ids: tuple[int, ...] = (_END,), final: bool = True) -> list[Piece]:
    """The pieces of ``ids``, one a response, until the choice ends."""
    choice = Choice(3, generation, _TOKENIZER, frozenset(_TOKENIZER.all_special_ids), end_ids)
    pieces = []
    for number, token in enumerate(ids, start=1):
        pieces.append(choice.add(_response([token], final and number == len(ids))))
        if choice.is_finished:
            break
    if not choice.is_finished:
        pieces.append(choice.end())
    assert choice.tokens == sum(len(piece.token_ids) for piece in pieces)
    return pieces


def _text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def test_pieces_join_to_the_text_of_all_tokens() -> None:
    pieces = _pieces(Generation(max_tokens=len(_IDS)), _IDS)
    assert _text(pieces) == _TOKENIZER.decode(_IDS)
    assert [piece.finish_reason for piece in pieces] == [None] * (len(_IDS) - 1) + ["length"]
    assert {piece.index for piece in pieces} == {3}


def test_end_token_has_no_text_and_is_counted() -> None:
    pieces = _pieces(Generation(max_tokens=99, skip_special_tokens=False), [*_IDS[:3], _END])
    assert _text(pieces) == _TOKENIZER.decode(_IDS[:3])
    assert pieces[-1].finish_reason == "stop"
    assert pieces[-1].token_ids == [_END]


def test_end_token_that_is_the_last_one_allowed_is_a_stop() -> None:
    assert _pieces(Generation(max_tokens=2), [_IDS[0], _END])[-1].finish_reason == "stop"


def test_stop_text_ends_a_choice_before_it() -> None:
    pieces = _pieces(Generation(max_tokens=99, stop=("fox",)), _IDS)
    assert _text(pieces) == "The quick brown "
    assert pieces[-1].finish_reason == "stop"
    assert sum(len(piece.token_ids) for piece in pieces) < len(_IDS)


@pytest.mark.parametrize("end", [(), (_END,)])
def test_tokens_after_a_stop_text_in_its_response_are_no_part_of_the_answer(end: tuple[int, ...]) -> None:
    """A response holds several tokens where the client reads more slowly than the engine generates."""
    alone = _pieces(Generation(max_tokens=99, stop=("fox",), top_logprobs=0), _IDS)
    choice = Choice(3, Generation(max_tokens=99, stop=("fox",), top_logprobs=0), _TOKENIZER, frozenset(), (_END,))
    piece = choice.add(_response([*_IDS, *end], final=True, log_probs=[-1.0] * (len(_IDS) + len(end))))
    ids = [token for each in alone for token in each.token_ids]
    assert ids != _IDS
    assert list(piece.token_ids) == ids
    assert piece.log_probs is not None
    assert len(piece.log_probs) == len(ids)
    assert (piece.text, piece.finish_reason) == (_text(alone), "stop")
    assert (choice.tokens, choice.is_cut) == (len(ids), True)


def test_withheld_start_of_a_stop_text_is_sent_at_the_end() -> None:
    pieces = _pieces(Generation(max_tokens=99, stop=("jumps over",)), _IDS)
    assert _text(pieces) == _TOKENIZER.decode(_IDS)
    assert pieces[-1].finish_reason == "stop"  # the engine ended it


def test_choice_that_is_not_said_to_have_ended() -> None:
    pieces = _pieces(Generation(max_tokens=99), _IDS[:4], final=False)
    assert (pieces[-1].token_ids, pieces[-1].finish_reason) == ((), "stop")


def test_log_probabilities_of_the_chosen_tokens() -> None:
    choice = Choice(0, Generation(max_tokens=9, top_logprobs=0), _TOKENIZER, frozenset(), (_END,))
    first = choice.add(_response(_IDS[:2], log_probs=[-0.5, -1.0])).log_probs
    second = choice.add(_response(_IDS[2:3], log_probs=[-2.0])).log_probs
    assert first is not None
    assert second is not None
    texts = [_TOKENIZER.decode([token]) for token in _IDS[:3]]
    assert [(token.text, token.log_prob, token.top) for token in (*first, *second)] == [
        (text, value, ()) for text, value in zip(texts, (-0.5, -1.0, -2.0), strict=True)
    ]
    assert [token.offset for token in (*first, *second)] == [0, len(texts[0]), len(texts[0]) + len(texts[1])]


def test_bytes_of_tokens_join_to_characters_that_are_parted_among_them() -> None:
    choice = Choice(0, Generation(max_tokens=99, top_logprobs=0), _TOKENIZER, frozenset(), (_END,))
    found = choice.add(_response(_IDS, log_probs=[-0.5] * len(_IDS))).log_probs
    assert found is not None
    assert "\ufffd" in "".join(token.text for token in found)
    assert b"".join(token.utf8 for token in found).decode() == _TOKENIZER.decode(_IDS)


def test_likeliest_tokens_come_from_logits() -> None:
    logits = np.full((1, 3072), -np.inf, np.float32)
    logits[0, [10, 11, 12]] = [0.0, math.log(2), math.log(5)]
    choice = Choice(0, Generation(max_tokens=9, top_logprobs=2), _TOKENIZER, frozenset(), (_END,))
    pieces = choice.add(_response([10], logits=logits)).log_probs
    assert pieces is not None
    [token] = pieces
    assert token.log_prob == pytest.approx(math.log(1 / 8))
    assert [likely.text for likely in token.top] == [_TOKENIZER.decode([12]), _TOKENIZER.decode([11])]
    assert [likely.log_prob for likely in token.top] == pytest.approx([math.log(5 / 8), math.log(2 / 8)])


def test_no_log_probabilities_unless_requested() -> None:
    assert all(piece.log_probs is None for piece in _pieces(replace(Generation(), max_tokens=9), _IDS[:3]))


@pytest.mark.parametrize("tokens_a_response", [1, 4, 99])
def test_nothing_ends_a_choice_within_its_least_tokens(tokens_a_response: int) -> None:
    ids = [*_IDS[:2], 9, *_IDS[2:4], 9, *_IDS[4:]]  # 9 ends it, and the engine does not know
    generation = Generation(max_tokens=99, min_tokens=4, top_logprobs=0)
    choice = Choice(0, generation, _TOKENIZER, frozenset(_TOKENIZER.all_special_ids), (_END, 9))
    pieces = []
    while not choice.is_finished:
        new = ids[choice.tokens :][:tokens_a_response]
        pieces.append(choice.add(_response(new, log_probs=[-1.0] * len(new))))
    assert _text(pieces) == _TOKENIZER.decode(ids[:5])
    assert [token for piece in pieces for token in piece.token_ids] == ids[:6]
    assert (choice.tokens, pieces[-1].finish_reason, choice.is_cut) == (6, "stop", True)
    assert sum(len(piece.log_probs or ()) for piece in pieces) == 6


def test_the_engines_own_end_cuts_no_choice() -> None:
    choice = Choice(0, Generation(max_tokens=99, min_tokens=1), _TOKENIZER, frozenset(), (_END, 9))
    choice.add(_response([*_IDS[:2], _END]))
    assert (choice.is_finished, choice.is_cut) == (True, False)
    with_all_ends = Choice(0, Generation(max_tokens=99), _TOKENIZER, frozenset(), (_END, 9))  # no minimum
    with_all_ends.add(_response([*_IDS[:2], 9]))
    assert (with_all_ends.is_finished, with_all_ends.is_cut) == (True, False)


@pytest.mark.parametrize("tokens_a_response", [1, 4, 99])
def test_a_stop_text_counts_that_is_complete_after_the_least_tokens(tokens_a_response: int) -> None:
    ids = _TOKENIZER.encode("one two three two four", add_special_tokens=False)
    first = len(_TOKENIZER.encode("one two", add_special_tokens=False))
    choice = Choice(
        0,
        Generation(max_tokens=99, min_tokens=first, stop=("two",)),
        _TOKENIZER,
        frozenset(_TOKENIZER.all_special_ids),
        (_END,),
    )
    pieces = []
    while not choice.is_finished:
        pieces.append(choice.add(_response(ids[choice.tokens :][:tokens_a_response])))
    assert _text(pieces) == "one two three "
    assert choice.is_cut
