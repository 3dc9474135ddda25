"""Chat templates, compared with ``apply_chat_template`` of ``transformers.AutoTokenizer`` of the same folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.chat_template import load_chat_template

_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>\n{{ message.content | trim }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% if think is defined %}<think>{% endif %}\n{% endif %}"
)
_MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi, é 😀 "}]


def _folder(path: Path, **config: Any) -> Path:
    path.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DEMO_ENGINE_DIR / name, path / name)
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return path


def test_conversation_is_rendered_as_transformers_renders_it(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = _folder(tmp_path / "model", chat_template=_TEMPLATE)
    theirs, ours = AutoTokenizer.from_pretrained(str(folder)), load_chat_template(folder)
    assert ours is not None
    for begins in (True, False):
        expected = theirs.apply_chat_template(_MESSAGES, tokenize=False, add_generation_prompt=begins)
        assert ours.render(_MESSAGES, begins) == expected
    assert ours.render(_MESSAGES, think=True).endswith("<|assistant|><think>")


@pytest.mark.parametrize(
    "config",
    [
        {"chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]},
        {"chat_template": "yes"},
    ],
    ids=["named", "alone"],
)
def test_template_of_the_configuration(tmp_path: Path, config: dict[str, Any]) -> None:
    template = load_chat_template(_folder(tmp_path / "model", **config))
    assert template is not None
    assert template.render([]) == "yes"


def test_file_comes_before_the_configuration(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model", chat_template="configured")
    (folder / "chat_template.jinja").write_text("of the file {{ eos_token }}")
    template = load_chat_template(folder)
    assert template is not None
    assert template.render([]) == "of the file </s>"


def test_folder_without_a_template_has_none() -> None:
    assert load_chat_template(DEMO_ENGINE_DIR) is None


def test_messages_that_a_template_refuses(tmp_path: Path) -> None:
    template = load_chat_template(_folder(tmp_path / "model", chat_template="{{ raise_exception('roles must alternate') }}"))
    assert template is not None
    with pytest.raises(ValueError, match="roles must alternate"):
        template.render(_MESSAGES)


def test_configuration_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not JSON"):
        load_chat_template(tmp_path)
