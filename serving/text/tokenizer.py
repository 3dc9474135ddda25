"""Hugging Face tokenizers by their folder. ``tokenizer.json`` is read directly.

``transformers.AutoTokenizer`` imports torch wherever it is installed, which takes 10 to 20 s of CPU; ``tokenizers`` alone
needs 0.1 s for the same file. The tokens that ``transformers`` adds from ``tokenizer_config.json`` are added here too; those
that ``tokenizer.json`` has keep their own flags.
``add_bos_token`` and ``add_eos_token`` have no effect beside a ``tokenizer.json``, whose template decides, as in transformers
5.5. The tests hold both against each other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, Tokenizer

from serving.text.byte_fallback import ByteFallback, read_byte_fallback

_FILE = "tokenizer.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


@dataclass(frozen=True)
class FileTokenizer:
    """A tokenizer of a ``tokenizer.json``, with those methods of ``transformers`` that are used here, by their names.

    ``all_special_ids`` are the ids without text when special tokens are skipped, in ascending order.
    """

    backend: Tokenizer
    eos_token_id: int | None
    pad_token_id: int | None
    all_special_ids: tuple[int, ...]
    byte_fallback: ByteFallback | None = None

    def __len__(self) -> int:
        return int(self.backend.get_vocab_size())

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        ids: list[int] = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(
        self, token_ids: Sequence[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: Literal[False] = False
    ) -> str:
        """Text of token ids, in which no space is removed."""
        text: str = self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text

    def repaired(self, token_ids: Sequence[int], skip_special_tokens: bool) -> Sequence[int]:
        """``token_ids`` for ``decode``, where a cut character costs its own text alone (``text/byte_fallback.py``)."""
        return token_ids if self.byte_fallback is None else self.byte_fallback.repaired(token_ids, skip_special_tokens)

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """A token as the vocabulary has it; None where it has none of this id."""
        token: str | None = self.backend.id_to_token(token_id)
        return token

    def encode_many(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Token ids of each text, on all cores unless TOKENIZERS_PARALLELISM is false."""
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def decode_many(self, token_ids: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        """The text of each sequence of token ids, as ``encode_many`` does it."""
        texts: list[str] = self.backend.decode_batch([list(ids) for ids in token_ids], skip_special_tokens=skip_special_tokens)
        return texts


def load_tokenizer(tokenizer_dir: Path) -> Any:
    """The tokenizer of a Hugging Face folder, without network access: a FileTokenizer, or ``transformers``' own.

    Raises ValueError when there is none, and when there is no ``tokenizer.json`` and ``transformers`` is not installed.
    """
    if not tokenizer_dir.is_dir():
        raise ValueError(f"{tokenizer_dir} is not a folder")
    load = _read_tokenizer if (tokenizer_dir / _FILE).is_file() else _load_with_transformers
    try:
        return load(tokenizer_dir)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{tokenizer_dir} has no {_FILE}, and other forms need transformers: pip install 'inflight-bench[transformers]'"
        ) from error
    except Exception as error:
        raise ValueError(f"{tokenizer_dir} holds no usable Hugging Face tokenizer: {error}") from error


def _load_with_transformers(tokenizer_dir: Path) -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # suppresses the advice to install torch
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(tokenizer_dir), padding_side="left")


def _read_tokenizer(tokenizer_dir: Path) -> FileTokenizer:
    config = _read_object(tokenizer_dir / "special_tokens_map.json") | _read_object(tokenizer_dir / "tokenizer_config.json")
    backend = Tokenizer.from_str((tokenizer_dir / _FILE).read_text(encoding="utf-8"))
    if backend.padding is not None:
        config.setdefault("pad_token", backend.padding["pad_token"])
    backend.no_truncation()
    backend.no_padding()
    backend.add_tokens(list(_listed_by_id(config)))
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_special_tokens([token for token in _special_tokens(config) if token.content not in added])
    end = _named_id(backend, config, "eos_token")
    return FileTokenizer(
        backend,
        eos_token_id=_read_end_id(tokenizer_dir) if end is None else end,
        pad_token_id=_named_id(backend, config, "pad_token"),
        all_special_ids=tuple(sorted(id_ for id_, token in backend.get_added_tokens_decoder().items() if token.special)),
        byte_fallback=read_byte_fallback(backend),
    )


def _read_object(path: Path) -> dict[str, object]:
    """A JSON object; empty where there is no such file."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return content


def _listed_by_id(config: Mapping[str, Any]) -> Iterator[AddedToken]:
    """The tokens of ``added_tokens_decoder``, in the order of their ids; ``add_tokens`` ignores those of ``tokenizer.json``."""
    listed = config.get("added_tokens_decoder") or {}
    for _, token in sorted(listed.items(), key=lambda item: int(item[0])):
        yield _added_token(token, is_special=bool(token.get("special", False)))


def _special_tokens(config: Mapping[str, Any]) -> Iterator[AddedToken]:
    named = [config[name] for name in _NAMED if config.get(name) is not None]
    for name in _LISTED:
        tokens = config.get(name) or []
        named += tokens.values() if isinstance(tokens, dict) else tokens
    for token in named:
        yield _added_token(token, is_special=True)


def _added_token(token: str | Mapping[str, Any], is_special: bool) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=is_special, normalized=False)
    return AddedToken(token["content"], special=is_special, **{flag: token[flag] for flag in _FLAGS if flag in token})


def _content(token: str | Mapping[str, Any] | None) -> str | None:
    return token if token is None or isinstance(token, str) else str(token["content"])


def _named_id(backend: Tokenizer, config: Mapping[str, Any], name: str) -> int | None:
    content = _content(config.get(name))
    id_: int | None = None if content is None else backend.token_to_id(content)
    return id_


def _read_end_id(tokenizer_dir: Path) -> int | None:
    """The model's own end of a sequence, where the tokenizer's configuration has no name for it, as with GPT-2."""
    end = _read_object(tokenizer_dir / "config.json").get("eos_token_id")
    return end if isinstance(end, int) else None
