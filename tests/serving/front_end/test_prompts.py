"""Token ids of prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.front_end.api_error import ApiError
from serving.front_end.bodies import ChatBody, CompletionBody, read_body
from serving.front_end.prompts import PromptReader, open_prompt_reader
from serving.text.chat_template import ChatTemplate

_TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ tail }}"


@pytest.fixture(scope="module")
def reader() -> PromptReader:
    return open_prompt_reader(DEMO_ENGINE_DIR)


def _chat(*messages: tuple[str, Any], **fields: Any) -> ChatBody:
    body = {"model": "m", "messages": [{"role": role, "content": content} for role, content in messages], **fields}
    return read_body(json.dumps(body).encode(), ChatBody)


def _completion(prompt: Any) -> CompletionBody:
    return read_body(json.dumps({"model": "m", "prompt": prompt}).encode(), CompletionBody)


def test_chat_without_a_template_is_the_contents(reader: PromptReader) -> None:
    prompt = reader.chat(
        _chat(("system", "Be brief."), ("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]))
    )
    assert prompt.text == "Be brief.\na\nb"
    assert prompt.token_ids == reader.tokenizer.encode(prompt.text)


def test_chat_goes_through_the_template_which_has_the_special_tokens(reader: PromptReader) -> None:
    templated = PromptReader(reader.tokenizer, ChatTemplate(_TEMPLATE, {"bos_token": "<s>"}))
    prompt = templated.chat(_chat(("user", "Hi"), chat_template_kwargs={"tail": "!"}))
    assert prompt.text == "<s>[user] Hi!"
    assert prompt.token_ids == reader.tokenizer.encode(prompt.text, add_special_tokens=False)


def test_chat_takes_text_alone(reader: PromptReader) -> None:
    with pytest.raises(ApiError, match="Invalid content type 'image_url': this model takes text"):
        reader.chat(_chat(("user", [{"type": "image_url", "image_url": {"url": "x"}}])))


@pytest.mark.parametrize("field", ["tool_calls", "function_call"])
def test_calls_of_tools_are_refused_since_they_belong_to_the_prompt(reader: PromptReader, field: str) -> None:
    body = {"model": "m", "messages": [{"role": "assistant", "content": None, field: [{"id": "a"}]}]}
    with pytest.raises(ApiError, match="a message with 'tool_calls' is not supported"):
        reader.chat(read_body(json.dumps(body).encode(), ChatBody))


def test_messages_that_the_template_refuses(reader: PromptReader) -> None:
    templated = PromptReader(reader.tokenizer, ChatTemplate("{{ raise_exception('no system role') }}", {}))
    with pytest.raises(ApiError, match="The chat template refuses these messages: no system role"):
        templated.chat(_chat(("system", "x")))


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ([5, 6], [[5, 6]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
def test_token_ids_are_the_prompts(reader: PromptReader, prompt: Any, expected: list[list[int]]) -> None:
    assert [read.token_ids for read in reader.completion(_completion(prompt))] == expected


@pytest.mark.parametrize("prompt", ["one", ["one", "two"]])
def test_texts_are_encoded(reader: PromptReader, prompt: Any) -> None:
    texts = [prompt] if isinstance(prompt, str) else prompt
    read = reader.completion(_completion(prompt))
    assert [(p.text, p.token_ids) for p in read] == [(text, reader.tokenizer.encode(text)) for text in texts]


@pytest.mark.parametrize("prompt", ["", [], [[]], ["a", 1], [-1], [[2**31]], ["a", ""]])
def test_prompts_that_are_none(reader: PromptReader, prompt: Any) -> None:
    with pytest.raises(ApiError, match="Invalid 'prompt'"):
        reader.completion(_completion(prompt))


def test_an_empty_prompt_has_the_token_that_begins_a_sequence_if_there_is_one(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(DEMO_ENGINE_DIR / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    reader = open_prompt_reader(tmp_path)
    assert [prompt.token_ids for prompt in reader.completion(_completion(""))] == [[1]]
    without = read_body(json.dumps({"model": "m", "prompt": "", "add_special_tokens": False}).encode(), CompletionBody)
    with pytest.raises(ApiError, match="the prompt is empty"):
        reader.completion(without)
