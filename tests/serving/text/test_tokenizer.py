"""A tokenizer read from its file, compared with ``transformers.AutoTokenizer`` of the same folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.tokenizer import FileTokenizer, load_tokenizer

_CORPUS = ["The king and the queen went to the sea .", "Café, naïve — 日本語 😀 don't stop", "a  b   c\n\tdone</s>"] * 3
_SPECIAL = ["<unk>", "<s>", "</s>"]
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.lists(
    st.sampled_from(["the", " king", "  sea", "</s>", "<s>", "<tool>", " <extra>", "don't", " .", "é", "😀", "\n"]), max_size=8
).map("".join)


def _word_level() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(_CORPUS, trainers.WordLevelTrainer(special_tokens=_SPECIAL, show_progress=False))
    return tokenizer


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, normalized=True)])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=16)
    return tokenizer


def _unigram(prepend_scheme: str) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>")
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


_NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_EXTRA = {"content": "<extra>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": False}
_FOLDERS: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any]]] = {
    "words": (_word_level, _NAMES),
    "words_and_eos": (_word_level, _NAMES | {"add_bos_token": False, "add_eos_token": True}),
    "bytes": (_byte_level, _NAMES | {"pad_token": "<pad>", "clean_up_tokenization_spaces": True}),
    "bytes_without_bos": (_byte_level, _NAMES | {"add_bos_token": False}),
    "bytes_and_extra": (_byte_level, _NAMES | {"added_tokens_decoder": {"404": _EXTRA}, "extra_special_tokens": ["<more>"]}),
    "prefix_space": (lambda: _unigram("always"), _NAMES | {"add_bos_token": True, "pad_token": "</s>"}),
    "no_prefix_space": (
        lambda: _unigram("never"),
        {**_NAMES, "eos_token": {**_EXTRA, "__type": "AddedToken", "content": "</s>"}},
    ),
}
_Pair = tuple[FileTokenizer, Any]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, _Pair]:
    """The tokenizer of each folder, read by us and by transformers."""
    auto = pytest.importorskip("transformers").AutoTokenizer
    folders = {"demo": DEMO_ENGINE_DIR}
    for name, (make, config) in _FOLDERS.items():
        folders[name] = folder = tmp_path_factory.mktemp(name)
        make().save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return {name: (load_tokenizer(folder), auto.from_pretrained(str(folder))) for name, folder in folders.items()}


_EACH = pytest.mark.parametrize("name", ["demo", *_FOLDERS])


@_EACH
@given(text=_TEXTS)
@example(text="")
@example(text="\r</s>")
@example(text="The  king .  <extra></s> don't <tool> 😀")
def test_text_is_encoded_and_decoded_as_by_transformers(pairs: dict[str, _Pair], name: str, text: str) -> None:
    ours, theirs = pairs[name]
    for special in (True, False):
        ids = ours.encode(text, add_special_tokens=special)
        assert ids == theirs.encode(text, add_special_tokens=special)
        for skip in (True, False):
            wanted = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
            assert ours.decode(ids, skip_special_tokens=skip) == wanted


@_EACH
@given(data=st.data())
def test_any_token_ids_are_decoded_as_by_transformers(pairs: dict[str, _Pair], name: str, data: st.DataObject) -> None:
    ours, theirs = pairs[name]
    ids = data.draw(st.lists(st.integers(0, len(theirs) + 3), max_size=30))
    for skip in (True, False):
        wanted = theirs.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        assert ours.decode(ids, skip_special_tokens=skip) == wanted


@_EACH
@given(texts=st.lists(_TEXTS, max_size=5), flag=st.booleans())
def test_many_texts_are_encoded_and_decoded_as_one_by_one(
    pairs: dict[str, _Pair], name: str, texts: list[str], flag: bool
) -> None:
    ours, _ = pairs[name]
    encoded = [ours.encode(text, add_special_tokens=flag) for text in texts]
    assert ours.encode_many(texts, add_special_tokens=flag) == encoded
    decoded = [ours.decode(ids, skip_special_tokens=flag) for ids in encoded]
    assert ours.decode_many([tuple(ids) for ids in encoded], skip_special_tokens=flag) == decoded


_OWN_ENVIRONMENT = """
import os, sys
from pathlib import Path
from serving.text.tokenizer import load_tokenizer

tokenizer = load_tokenizer(Path(sys.argv[1]))
tokenizer.encode_many(["one text", "another"] * 50)
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's list of threads")
def test_a_user_s_own_parallelism_of_tokenizers_is_kept() -> None:
    threads = {}
    for value in ("false", "true"):
        command = [sys.executable, "-c", _OWN_ENVIRONMENT, str(DEMO_ENGINE_DIR)]
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": value, "RAYON_NUM_THREADS": "3"}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        threads[value] = int(ended.stdout)
    assert threads["true"] == threads["false"] + 3


@_EACH
def test_vocabulary_and_special_tokens_are_those_of_transformers(pairs: dict[str, _Pair], name: str) -> None:
    ours, theirs = pairs[name]
    assert isinstance(ours, FileTokenizer)
    assert len(ours) == len(theirs)
    assert (ours.eos_token_id, ours.pad_token_id) == (theirs.eos_token_id, theirs.pad_token_id)
    assert set(ours.all_special_ids) == set(theirs.all_special_ids)


def test_end_of_a_model_whose_tokenizer_names_none_is_that_of_its_configuration(tmp_path: Path) -> None:
    shutil.copy(DEMO_ENGINE_DIR / "tokenizer.json", tmp_path)
    assert load_tokenizer(tmp_path).eos_token_id is None
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}', encoding="utf-8")
    assert load_tokenizer(tmp_path).eos_token_id == 2


@pytest.mark.parametrize(("name", "content"), [("tokenizer.json", "{}"), ("tokenizer_config.json", "[1]")])
def test_damaged_file_is_an_error_that_names_the_folder(tmp_path: Path, name: str, content: str) -> None:
    shutil.copy(DEMO_ENGINE_DIR / "tokenizer.json", tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{tmp_path} holds no usable Hugging Face tokenizer"):
        load_tokenizer(tmp_path)


def test_folder_without_tokenizer_json_needs_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"no tokenizer\.json.*pip install 'inflight-bench\[transformers\]'"):
        load_tokenizer(tmp_path)


def test_tokenizer_json_is_read_without_transformers() -> None:
    code = (
        "import sys\nfrom serving.engines.openvino.folder import DEMO_ENGINE_DIR\n"
        "from serving.text.tokenizer import load_tokenizer\nprint(load_tokenizer(DEMO_ENGINE_DIR).decode([700]))\n"
        "print([name for name in ('transformers', 'torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_folder_whose_name_is_no_text_can_be_read(tmp_path: Path) -> None:
    """As in Triton's stub, where Python has every name beyond ASCII as bytes."""
    folder = tmp_path / os.fsdecode(b"m\xf6del")
    shutil.copytree(DEMO_ENGINE_DIR, folder)
    assert len(load_tokenizer(folder)) == len(load_tokenizer(DEMO_ENGINE_DIR))
