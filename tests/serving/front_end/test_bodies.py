"""Bodies of requests: what is refused, and in which words; what the fields mean."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serving.front_end.api_error import ApiError
from serving.front_end.bodies import ChatBody, CompletionBody, read_body
from serving.front_end.generation import Generation, Sampling, chat_generation, completion_generation

_CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
_TEXT = {"model": "demo", "prompt": "Hi"}


def _chat(**fields: Any) -> Generation:
    return chat_generation(read_body(json.dumps(_CHAT | fields).encode(), ChatBody))


def _completion(**fields: Any) -> Generation:
    return completion_generation(read_body(json.dumps(_TEXT | fields).encode(), CompletionBody))


def _error(**fields: Any) -> dict[str, Any]:
    with pytest.raises(ApiError) as caught:
        _chat(**fields)
    error: dict[str, Any] = json.loads(caught.value.body())["error"]
    return error


def test_defaults_are_those_of_openai() -> None:
    assert _chat() == Generation()
    assert _completion() == Generation(max_tokens=16)


def test_null_is_the_default() -> None:
    names = ["n", "temperature", "top_p", "stop", "max_tokens", "stream", "stream_options", "logprobs", "tools", "seed", "user"]
    assert _chat(**dict.fromkeys(names)) == Generation()


def test_fields_of_openai_and_of_vllm() -> None:
    generation = _chat(
        n=2,
        max_completion_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        seed=-1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        stop=["a", "", "b"],
        stop_token_ids=[7],
        ignore_eos=True,
        min_tokens=3,
        logprobs=True,
        top_logprobs=2,
        skip_special_tokens=False,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        return_token_ids=True,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    )
    sampling = Sampling(False, 0.5, 0.9, 40, -1, 1.0, -1.0, 1.1, ("json_schema", '{"type":"object"}'))
    expected = Generation(sampling, 2, 9, 3, ("a", "b"), (7,), True, 2, False, True, True, True, True)
    assert generation == expected


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"top_p": 0}, {"top_k": 1}])
def test_greedy(fields: dict[str, Any]) -> None:
    assert _chat(**fields).sampling.greedy


def test_no_limit_of_top_k_is_minus_one_too() -> None:
    assert _chat(top_k=-1).sampling == _chat(top_k=0).sampling == Sampling()


def test_completion_repeats_its_prompt_on_request() -> None:
    assert _completion(echo=True, n=2, best_of=2) == replace(_completion(), echo=True, n=2)


def test_json_object_is_an_object_and_no_array() -> None:
    assert _chat(response_format={"type": "json_object"}).sampling.guide == ("json_schema", '{"type":"object"}')
    assert _chat(response_format={"type": "text"}).sampling.guide is None


def test_the_fields_that_routers_add_change_nothing() -> None:
    completions = {"no_stop_trim": False, "return_hidden_states": False, "skip_special_tokens": True, "ignore_eos": False}
    reasoning = {"separate_reasoning": True, "stream_reasoning": True, "include_reasoning": True}
    assert _completion(**completions) == _completion()
    assert _chat(**completions, **reasoning, continue_final_message=False, logprobs=False) == _chat()


@pytest.mark.parametrize(
    ("fields", "message", "param", "code"),
    [
        ({"foo": 1}, "Unrecognized request argument supplied: foo", "foo", None),
        ({"stream_options": {"foo": 1}, "stream": True}, "Unrecognized request argument supplied: stream_options", None, None),
        ({"model": None}, "you must provide a model parameter", "model", None),
        ({"max_tokens": "9"}, "Invalid type for 'max_tokens': expected an integer or null, but", None, "invalid_type"),
        ({"max_tokens": 0}, "Invalid 'max_tokens': expected a value >= 1.", "max_tokens", "invalid_value"),
        ({"temperature": 3}, "Invalid 'temperature': expected a value <= 2.0.", "temperature", "invalid_value"),
        ({"messages": []}, "Invalid 'messages': ", "messages", "invalid_value"),
        ({"messages": [{"content": "x"}]}, "Missing required parameter: 'messages[0].ro", None, "missing_required_parameter"),
        ({"tools": [{}]}, "Unsupported parameter: 'tools' is not supported", "tools", "unsupported_parameter"),
        ({"logit_bias": {"1": 2}}, "Unsupported parameter: 'logit_bias'", "logit_bias", "unsupported_parameter"),
        ({"no_stop_trim": True}, "Unsupported parameter: 'no_stop_trim'", "no_stop_trim", "unsupported_parameter"),
        ({"continue_final_message": True}, "Unsupported parameter: ", "continue_final_message", "unsupported_parameter"),
        ({"return_hidden_states": True}, "Unsupported parameter: ", "return_hidden_states", "unsupported_parameter"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "Set only one of 'max_tokens'", "max_tokens", None),
        ({"max_tokens": 2, "min_tokens": 3}, "'min_tokens' is 3, more than 'max_tokens', which is 2.", "min_tokens", None),
        ({"top_logprobs": 2}, "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.", "top_logprobs", None),
        ({"stream_options": {}}, "The 'stream_options' parameter is only allowed when 'stream' is enabled.", None, None),
        ({"response_format": {"type": "xml"}}, "Invalid 'response_format': ", "response_format", None),
    ],
)  # fmt: skip
def test_error_is_worded_and_shaped_as_openai_does(
    fields: dict[str, Any], message: str, param: str | None, code: str | None
) -> None:
    error = _error(**fields)
    assert error["message"].startswith(message)
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert error["code"] == code


@pytest.mark.parametrize("fields", [{"echo": True, "logprobs": 1}, {"best_of": 3, "n": 2}, {"suffix": "x"}, {"logprobs": 21}])
def test_completions_refuse_by_name_what_is_not_served(fields: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        _completion(**fields)
    assert caught.value.param in fields


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "\xff"}', b"[" * 100_000, b'"x"'])
def test_body_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read_body(body, ChatBody)
    assert caught.value.status == 400
