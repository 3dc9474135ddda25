"""The JSON of answers, field by field."""

from __future__ import annotations

import json
from typing import Any

from serving.front_end.choices import LikelyToken, Piece, TokenLogProb
from serving.front_end.formats import AnswerHead, ChatFormat, CompletionFormat, model_body, models_body, usage_of
from serving.front_end.request_times import Metrics

_LOG_PROBS = (TokenLogProb("é", b"\xc3\xa9", -0.5, 3, (LikelyToken("é", b"\xc3\xa9", -0.5), LikelyToken("a", b"a", -1.5))),)
_CHAT, _TEXT = AnswerHead(ChatFormat(), "r1", 9, "demo"), AnswerHead(CompletionFormat(), "r1", 9, "demo")
_LOGPROB = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
_LIKELY = {"token": "a", "logprob": -1.5, "bytes": [97]}


def _event(chunk: bytes) -> Any:
    assert chunk.startswith(b"data: ")
    assert chunk.endswith(b"\n\n")
    return json.loads(chunk[6:])


def test_chunk_of_a_chat() -> None:
    choice = _CHAT.format.streamed(Piece(0, "é", (7,), _LOG_PROBS, "length"), returns_ids=True)
    assert _event(_CHAT.chunk((choice,))) == {
        "id": "chatcmpl-r1",
        "object": "chat.completion.chunk",
        "created": 9,
        "model": "demo",
        "choices": [
            {
                "index": 0,
                "delta": {"content": "é"},
                "logprobs": {"content": [{**_LOGPROB, "top_logprobs": [_LOGPROB, _LIKELY]}], "refusal": None},
                "finish_reason": "length",
                "token_ids": [7],
            }
        ],
    }


def test_first_chunk_of_a_chat_names_the_role() -> None:
    opening = _CHAT.format.opening(1)
    assert opening is not None
    event = _event(_CHAT.chunk((opening,), prompt=[1, 2]))
    assert event["choices"] == [
        {"index": 1, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert event["prompt_token_ids"] == [1, 2]
    assert _TEXT.format.opening(0) is None


def test_chunk_of_a_completion() -> None:
    choice = _TEXT.format.streamed(Piece(1, "é", (7,), _LOG_PROBS), returns_ids=False)
    assert _event(_TEXT.chunk((choice,), usage_of(3, 1))) == {
        "id": "cmpl-r1",
        "object": "text_completion",
        "created": 9,
        "model": "demo",
        "choices": [
            {
                "index": 1,
                "text": "é",
                "logprobs": {
                    "tokens": ["é"],
                    "token_logprobs": [-0.5],
                    "top_logprobs": [{"é": -0.5, "a": -1.5}],
                    "text_offset": [3],
                },
                "finish_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }


def test_usage_is_null_in_chunks_before_the_one_that_has_it() -> None:
    head = AnswerHead(ChatFormat(), "r1", 9, "demo", has_usage=True)
    assert _event(head.chunk(()))["usage"] is None
    assert _event(head.chunk((), usage_of(1, 2))) | {"usage": None} == _event(head.chunk(()))


def test_whole_chat() -> None:
    pieces = [Piece(0, "a", (5,)), Piece(0, "b", (6, 7), None, "stop")]
    answer = json.loads(_CHAT.whole((_CHAT.format.whole(pieces, "", [1]),), usage_of(1, 3), [1]))
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "ab"},
            "logprobs": None,
            "finish_reason": "stop",
            "token_ids": [5, 6, 7],
        }
    ]
    assert answer["prompt_token_ids"] == [1]


def test_whole_completion_with_its_prompt() -> None:
    pieces = [Piece(0, "a", (5,), ()), Piece(0, "b", (6,), _LOG_PROBS, "stop")]
    answer = json.loads(_TEXT.whole((_TEXT.format.whole(pieces, "Say ", [1]),), usage_of(1, 2)))
    [choice] = answer["choices"]
    assert (choice["text"], choice["token_ids"], choice["prompt_token_ids"]) == ("Say ab", [5, 6], [1])
    assert choice["logprobs"]["tokens"] == ["é"]
    assert answer["usage"]["total_tokens"] == 3


def test_models() -> None:
    model = {"id": "demo", "object": "model", "created": 9, "owned_by": "inflight-bench"}
    assert json.loads(models_body("demo", 9, None)) == {"object": "list", "data": [model]}
    assert json.loads(model_body("demo", 9, 4096)) == {**model, "max_model_len": 4096}


def test_times_of_the_engine_are_beside_the_usage_as_vllms() -> None:
    metrics = {
        "time_to_first_token_ms": 85.2,
        "generation_time_ms": 1240.5,
        "queue_time_ms": 12.3,
        "mean_itl_ms": None,
        "tokens_per_second": 103.2,
    }
    last = _event(_CHAT.last_chunk(usage_of(3, 1), Metrics(**metrics)))
    assert (last["choices"], last["usage"]["total_tokens"], last["metrics"]) == ([], 4, metrics)
    assert json.loads(_TEXT.whole((), usage_of(3, 1), metrics=Metrics(**metrics)))["metrics"] == metrics
    assert "metrics" not in _event(_CHAT.last_chunk(usage_of(3, 1)))
    assert "metrics" not in json.loads(_TEXT.whole((), usage_of(3, 1)))


def test_the_chosen_token_is_among_the_likeliest_of_a_completion() -> None:
    """As OpenAI's: "there may be up to logprobs+1 elements"; two tokens of a character's parts have one text."""
    top = (LikelyToken("a", b"a", -0.5), LikelyToken("\ufffd", b"\xc3", -1.0), LikelyToken("\ufffd", b"\xa9", -1.5))
    for chosen, log_prob, expected in (("z", -9.0, {"z": -9.0}), ("a", -0.5, {}), ("\ufffd", -1.5, {})):
        tokens = (TokenLogProb(chosen, b"", log_prob, 0, top),)
        choice = _event(_TEXT.chunk((_TEXT.format.streamed(Piece(0, chosen, (7,), tokens), returns_ids=False),)))["choices"][0]
        assert choice["logprobs"]["top_logprobs"] == [{"a": -0.5, "\ufffd": -1.0, **expected}]
