"""Chat templates: the text of a conversation, as the model was trained on it.

A template is in ``chat_template.jinja``, or in ``tokenizer_config.json``, there also as a list of named ones. It is rendered by
the function that ``transformers``' ``apply_chat_template`` calls, without its tokenizers, whose import takes 10 to 20 s where
torch is installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = "chat_template.jinja"
_CONFIG = "tokenizer_config.json"
_DEFAULT = "default"


@dataclass(frozen=True)
class ChatTemplate:
    """``special_tokens`` are the texts by which a template names them, such as ``bos_token``."""

    text: str
    special_tokens: Mapping[str, str]

    def render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text of a conversation, with special tokens. Raises ValueError for messages that the template refuses."""
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        conversation = [dict(message) for message in messages]
        try:
            rendered, _ = render_jinja_template(
                [conversation],
                chat_template=self.text,
                add_generation_prompt=add_generation_prompt,
                **{**self.special_tokens, **variables},
            )
        except (TemplateError, TypeError) as error:
            raise ValueError(str(error)) from error
        text: str = rendered[0]
        return text


def load_chat_template(tokenizer_dir: Path) -> ChatTemplate | None:
    """The template of a tokenizer's folder; None where it has none. Raises ValueError for an unreadable configuration."""
    config = _read_config(tokenizer_dir / _CONFIG)
    file = tokenizer_dir / _FILE
    text = file.read_text(encoding="utf-8") if file.is_file() else _configured(config.get("chat_template"))
    if text is None:
        return None
    tokens = {name: _content(token) for name, token in config.items() if name.endswith("_token") and token}
    return ChatTemplate(text, {name: content for name, content in tokens.items() if content is not None})


def _read_config(path: Path) -> Mapping[str, object]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _configured(template: Any) -> str | None:
    if isinstance(template, list):
        template = next((named.get("template") for named in template if named.get("name") == _DEFAULT), None)
    return template if isinstance(template, str) else None


def _content(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
